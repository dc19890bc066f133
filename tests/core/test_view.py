"""What people are shown: what is not known is None, and never 0."""

import dataclasses
import json
from dataclasses import replace

import pytest
from core_kit import Core, settings, spec
from fakes import FakeSources

from supervisor.model.inputs import Halted, OwnCheckpoint, Sample
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import Level, Progress
from supervisor.model.state import Slowness
from supervisor.policy.upkeep.cost import CostSettings
from supervisor.policy.worker.confinement import CgroupSettings
from supervisor.reports.status_view import box_view, status_view, troubles
from supervisor.reports.view import eta_s, program_view, program_views, spec_view


def view(core, sample=None, configured=True):
    known = core.settings if configured else None
    return program_view(core.program("Pong"), sample, known, core.state, now_s=core.now_s)


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_without_readings_is_shown_without_zeros(phase):
    core = Core(settings("Pong", slots=1)).into(phase)
    for configured in (True, False):
        shown = view(core, configured=configured)
        json.dumps(shown, allow_nan=False)
        assert shown["phase"] == phase.value
        assert shown["why"]
        for key in ("steps", "frames", "episodes", "mean_return", "loss", "steps_per_s", "eta_s", "ckpt_step", "ckpt_age_s"):
            assert shown[key] is None, key
        assert (shown["pid"] is None) == (phase not in {Phase.RUNNING, Phase.STOPPING})
        assert (shown["retry_in_s"] is None) == (phase is not Phase.BACKOFF)
        assert (shown["stdout_log"] is None) == (not configured)


def test_the_last_return_stays_when_it_has_ended_but_is_not_that_of_the_next_attempt():
    core = Core(settings("Pong", slots=1)).running("Pong")
    core.look(Pong={"mean_return": 21.0})
    core.ended("Pong", code=1)
    core.running("Pong")
    assert view(core)["mean_return"] is None
    core.ended("Pong", code=0)
    assert (view(core)["phase"], view(core)["mean_return"]) == ("DONE", 21.0)


def test_steps_that_nothing_shows_are_at_least_those_of_the_newest_checkpoint():
    core = Core(settings("Pong", slots=1)).running("Pong")
    for own, shown, steps in ((100, None, 100), (300, None, 300), (300, 250, 250)):
        sample = core.sample("Pong", own=OwnCheckpoint(f"/w/{own}.pt", own, core.now_s), steps=shown)
        assert view(core, sample)["steps"] == steps


def test_what_is_configured_for_a_program():
    shown = spec_view(spec("Pong", autostart=False, priority=7), settings("Pong"), in_use=False)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown == {
        "name": "Pong", "group": "Pong", "in_use": False, "argv": ["train", "Pong"], "directory": "", "priority": 7,
        "autostart": False, "done_codes": [0], "stop_grace_s": 20.0, "start_timeout_s": None, "window_deaths": 8,
        "stdout_log": "/state/programs/Pong/stdout.log", "stderr_log": "/state/programs/Pong/stderr.log",
        "log_max_bytes": 50 * 2**20, "log_backups": 3, "start_s": None, "start_retries": None, "stop_signal": "TERM",
        "redirect_stderr": False, "user": "", "socket": "/run/supervisor.sock",
    }  # fmt: skip


def test_the_logs_are_where_the_configuration_says():
    own = spec("Pong", stdout_log="/var/log/pong.log", redirect_stderr=True, log_max_bytes=0, log_backups=1)
    core = Core(settings(own)).running("Pong")
    assert [view(core)[key] for key in ("stdout_log", "stderr_log")] == ["/var/log/pong.log", None]
    shown = spec_view(own, core.settings, in_use=True)
    keys = "stdout_log", "stderr_log", "log_max_bytes", "log_backups", "redirect_stderr"
    assert [shown[key] for key in keys] == ["/var/log/pong.log", None, 0, 1, True]
    core.load(settings())
    usual = program_view(core.program("Pong"), None, core.settings, core.state, now_s=core.now_s)
    assert usual["stderr_log"].endswith("/Pong/stderr.log"), "it is leaving: its own settings are gone"


def test_a_running_program():
    core = Core(settings("Pong")).running("Pong")
    core.look(Pong={"steps": 100, "ckpt_step": 60, "ckpt_count": 1})
    core.later(30.0)
    sample = core.sample("Pong", steps=400, steps_per_s=10.0, target=1000, target_kind="env_steps", status="warm")
    shown = view(core, sample)
    assert (shown["steps"], shown["ckpt_step"], shown["ckpt_age_s"], shown["eta_s"]) == (400, 60, 30.0, 60.0)
    assert shown["why"] == "warm"
    assert shown["uptime_s"] == 31.0
    sampled = view(
        core, dataclasses.replace(sample, ckpt_count=2, ckpt_step=300, ckpt_at_s=core.now_s - 5, status="training")
    )
    assert (sampled["ckpt_step"], sampled["ckpt_age_s"]) == (300, 5.0)
    assert sampled["why"].startswith("training began"), "a status that only repeats the phase says nothing"


def test_readings_of_another_attempt_are_not_shown():
    core = Core(settings("Pong", "Qbert", "Enduro", slots=2)).running("Enduro", "Pong")
    samples = {
        "Pong": dataclasses.replace(core.sample("Pong", steps=5), token="old"),
        "Enduro": core.sample("Enduro", steps=7),
    }
    shown = program_views(core.state, samples, core.settings, now_s=core.now_s)
    assert [(one["name"], one["steps"]) for one in shown] == [("Enduro", 7), ("Pong", None), ("Qbert", None)]


def test_the_last_known_position_stays_after_the_end():
    core = Core(settings("Pong")).running("Pong")
    core.ended("Pong", code=0, steps=500, ckpt_step=480)
    shown = view(core)
    assert (shown["steps"], shown["ckpt_step"], shown["exit_code"]) == (500, 480, 0)
    assert shown["ckpt_age_s"] is None, "when it was made is not known: not just now"


def test_backoff_shows_when_and_how_often():
    core = Core(settings("Pong")).into(Phase.BACKOFF)
    shown = view(core)
    assert (shown["retry_in_s"], shown["restarts"], shown["deaths_in_window"], shown["slow_retry"]) == (1.0, 2, 2, False)
    core.later(5.0)
    assert view(core)["retry_in_s"] == 0.0
    assert view(core, configured=False)["deaths_in_window"] == 0


@pytest.mark.parametrize(("state", "says"), [("S", "being healed"), ("D", "no signal reaches it")])
def test_a_stalled_worker_says_so(state, says):
    core = Core(settings("Pong")).running("Pong")
    at_s = core.now_s
    core.watch(31, Pong={"progress_at_s": at_s, "proc_state": state})
    assert view(core, core.sample("Pong", status="fine"))["why"].endswith(says)


@pytest.mark.parametrize(
    ("ails", "says"),
    [
        ({"save_error": "No space left on device"}, "training, but cannot save: No space left on device"),
        ({"slow": Slowness(3.0, "x")}, "training, but at less than half of its usual rate"),
        ({"slow": Slowness(3.0, "0.5 steps/s", anew=True)}, "0.5 steps/s"),
        ({"slow": Slowness(3.0, "0.5 steps/s", anew=True, warning="no CUDA")}, "0.5 steps/s; its last warning: no CUDA"),
        ({"slow": Slowness(3.0, "x", 1500)}, "no step beyond 1,500 for long, although it works: see explain"),
    ],
)
def test_a_worker_that_trains_on_but_ails_says_so(ails, says):
    core = Core(settings("Pong")).running("Pong")
    program = core.state.programs["Pong"]
    ailing = dataclasses.replace(program, attempt=dataclasses.replace(program.attempt, **ails))
    sample = core.sample("Pong", status="fine")
    assert program_view(ailing, sample, core.settings, core.state, now_s=core.now_s)["why"] == says


def test_a_quiet_program_says_for_how_long_and_by_what_it_is_known_to_work():
    core = Core(settings(spec("Pong", progress=Progress.AUTO)), checks=1000).running("Pong")
    since_s = core.now_s
    core.watch(
        700, Pong={"progress_at_s": since_s, "live_at_s": None, "witness_at_s": lambda now_s: now_s, "witness": "cpu"}
    )
    sample = core.memory.watches["Pong"].sample
    shown = view(core, sample)
    assert (shown["quiet_s"], shown["why"]) == (700.0, "quiet for 11m 40s, but it uses CPU time")
    assert shown["progress_source"] is None, "none has spoken"
    never = dataclasses.replace(sample, progress_at_s=None, source="log")
    assert view(core, never)["quiet_s"] == core.now_s - core.attempt("Pong").intended_at_s
    assert view(core, never)["progress_source"] == "log"
    assert view(core, dataclasses.replace(sample, progress_at_s=core.now_s))["quiet_s"] is None, "it has printed again"
    assert view(core)["quiet_s"] is None
    assert view(core)["progress_source"] is None
    child = Halted(12, 5, "python", "T", core.now_s)
    assert view(core, dataclasses.replace(sample, halted=(child,)))["why"] == (
        "a process of its tree does not run: python(12) (state T)"
    )


@pytest.mark.parametrize(
    ("known", "eta"),
    [
        ({"steps": 40_000, "steps_per_s": 500.0, "target": 100_000, "target_kind": "env_steps"}, 120.0),
        ({"steps": 200_000, "steps_per_s": 500.0, "target": 100_000, "target_kind": "env_steps"}, 0.0),
        ({"steps": 1000, "episodes": 10, "steps_per_s": 50.0, "target": 20, "target_kind": "episodes"}, 20.0),
        ({"steps": 1000, "episodes": 0, "steps_per_s": 50.0, "target": 20, "target_kind": "episodes"}, None),
        ({"steps": 1000, "steps_per_s": 50.0, "target": 20, "target_kind": None}, None),
        ({"target": 7200, "target_kind": "seconds_left"}, 7200.0),
        ({"steps": 1000, "steps_per_s": 0.0, "target": 20, "target_kind": "env_steps"}, None),
        ({"steps": None, "steps_per_s": 5.0, "target": 20, "target_kind": "env_steps"}, None),
        ({"steps": 1000, "steps_per_s": 5.0}, None),
    ],
)
def test_eta(known, eta):
    assert eta_s(Sample("t", **known)) == eta
    assert eta_s(None) is None


def test_the_box():
    core = Core(settings("Pong")).running("Pong")
    shown = box_view(core.state, now_s=core.now_s, boot_at_s=None)
    assert (shown["mtbf_s"], shown["boot_up_s"], shown["last_reboot"], shown["reboots_total"]) == (None, None, None, 0)
    core.later(1000.0).reboot("boot-2", up_s=900.0, down_s=50.0)
    core.later(90_000.0).reboot("boot-3", up_s=80_000.0, cause="orderly")
    shown = box_view(core.state, now_s=core.now_s, boot_at_s=core.now_s - 100.0)
    assert (shown["boots"], shown["reboots_total"], shown["reboots_24h"]) == (3, 2, 1)
    assert shown["mtbf_s"] == 900.0 + 80_000.0 + 100.0, "one unclean reboot in all the time that the box was up"
    assert shown["last_reboot"]["cause"] == "orderly"
    core.later(10.0).reboot("boot-4", up_s=None, down_s=None)
    after = box_view(core.state, now_s=core.now_s, boot_at_s=core.now_s - 100.0)
    assert after["mtbf_s"] == shown["mtbf_s"], "a life of unknown length is not one of 0s"
    json.dumps(shown, allow_nan=False)


def test_the_header_of_a_daemon_that_runs_that_ends_and_that_is_dead():
    core = Core(settings("Pong", cost=CostSettings(2.5))).running("Pong")

    def header(state=core.state, memory=core.memory, **known):
        return status_view(FakeSources(state, core.settings, memory, now_s=core.now_s + 5.0, **known))["daemon"]

    running = header()
    assert (running["state"], running["pid"], running["uptime_s"]) == ("running", core.state.daemon_pid, core.now_s + 5.0)
    level = {
        "name": "light",
        "slots": 2,
        "num_envs": 32,
        "batch_size": 512,
        "mode": "fixed",
        "trial": False,
        "pinned": False,
    }
    assert {key: running["level"][key] for key in level} == level
    assert (running["config_file"], running["main_log"], running["usd_per_hour"]) == (None, "/state/extralife.log", 2.5)
    assert header(replace(core.state, stopping=True))["state"] == "stopping"
    assert header(memory=replace(core.memory, ended=True))["state"] == "reloading"
    dead = header(memory=Memory(), alive=False, version=None)
    unknown = {"pid": None, "version": None, "state": "dead", "started_wall_s": None, "uptime_s": None, "boot_up_s": None}
    assert {key: dead[key] for key in unknown} == unknown
    assert [*dead] == [*running, "last_sign_wall_s", "says"], "the same keys in the same order, and when it was last there"
    blind = status_view(FakeSources(core.state, alive=False))["daemon"]
    assert (blind["config_file"], blind["main_log"], blind["usd_per_hour"], blind["cgroups"]) == (None, None, None, None)
    assert blind["level"]["num_envs"] is None


def test_a_program_is_shown_as_far_as_its_process_bears_it_out():
    core = Core(settings("Pong")).running("Pong")
    (seen,) = status_view(FakeSources(core.state, core.settings))["programs"]
    (unseen,) = status_view(FakeSources(core.state, core.settings, alive=False))["programs"]
    assert (seen["phase"], unseen["phase"]) == ("RUNNING", "GONE")


OFF = {"on": False, "why": "there is no cgroup v2 here", "controllers": []}
HEAVY = Level(name="heavy", memory_mb=6000)


@pytest.mark.parametrize(
    ("level", "confined", "view", "said"),
    [
        (HEAVY, {}, OFF, "no worker is held to the 6,000 MB of level heavy: there is no cgroup v2 here"),
        (HEAVY, {}, OFF | {"why": "", "controllers": ["cpu"]},
         "no worker is held to the 6,000 MB of level heavy: its cgroups have no memory controller"),
        (HEAVY, {}, OFF | {"controllers": ["cpu", "memory"]}, ""),
        (Level(), {}, OFF, ""),
        (HEAVY, {"use": False}, OFF, ""),
    ],
)  # fmt: skip
def test_a_limit_of_memory_that_nobody_is_held_to(level, confined, view, said):
    made = replace(settings("Pong"), level=level, cgroups=CgroupSettings(**confined))
    assert status_view(FakeSources(settings=made, confinement=view))["daemon"]["cgroups"] == {**view, "unmet": said}
    assert status_view(FakeSources(settings=made, confinement={}))["daemon"]["cgroups"] is None


@pytest.mark.needs("offsite")
@pytest.mark.needs("slurm")
def test_what_keeps_it_from_its_work():
    core = Core(settings("Pong")).running("Pong")
    daemon = status_view(FakeSources(core.state, core.settings))["daemon"]
    assert troubles(daemon) == []
    ill = daemon | {"journal": daemon["journal"] | {"error": "EIO"}, "foundations": [{"why": "the socket is gone"}]}
    assert troubles(ill) == ["the journal cannot be written: EIO", "the socket is gone"]
    port = {"listen": "127.0.0.1:9001", "error": "Address already in use"}
    far = daemon | {"http": port, "cluster": {"error": "timeout"}, "offsite": {"fence": {"box": "bob"}}}
    assert troubles(far) == [
        "box bob has taken over these trainings, so no program runs here",
        "the cluster does not answer: timeout",
        "the TCP port 127.0.0.1:9001 of [http] is not open: Address already in use",
    ]
    assert troubles(daemon | {"http": port | {"error": ""}, "cluster": {"error": ""}}) == []
