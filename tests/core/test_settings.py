"""Where things are, and what a specification says by itself."""

from dataclasses import replace

from core_kit import settings

from supervisor.model.settings import Level, Paths, ProgramSpec, Rung
from supervisor.policy.script.figures import Sources
from supervisor.policy.script.placeholders import Template
from workers.contract import seed_after


def test_everything_has_a_place_of_its_own():
    paths = Paths("/var/lib/x", "/run/x")
    durable = [
        paths.journal, paths.recording, paths.alive, paths.alert_log, paths.last_config, paths.main_log, paths.lock,
        paths.backups, paths.offsite, paths.run_dir("Pong"), paths.log("Pong", "stdout"), paths.log("Pong", "stderr"),
        paths.attempt_dir("Pong", 3, "ab"),
    ]  # fmt: skip
    gone_after_a_reboot = [
        paths.socket, paths.marker, paths.beat("Pong", 3), paths.control("Pong", 3), paths.shim_record("Pong"),
        paths.notify_socket("Pong"), paths.leave_by("Pong", 3),
    ]  # fmt: skip
    assert all(path.startswith("/var/lib/x/") for path in durable)
    assert all(path.startswith("/run/x/") for path in gone_after_a_reboot)
    every = [*durable, *gone_after_a_reboot]
    assert len(set(every)) == len(every)
    assert [path.removeprefix("/var/lib/x/") for path in durable] == [
        "journal.sqlite", "recording.sqlite", "alive", "reboot_alerts.log", "last-config", "extralife.log", "lock", "backups",
        "offsite", "programs/Pong", "programs/Pong/stdout.log", "programs/Pong/stderr.log", "programs/Pong/attempts/3-ab",
    ], "what an upgraded daemon finds again"  # fmt: skip
    assert [path.removeprefix("/run/x/") for path in gone_after_a_reboot] == [
        "supervisor.sock", "boot-marker", "beats/Pong.3.beat", "beats/Pong.3.control", "shims/Pong.json", "notify/Pong",
        "beats/Pong.3.leave-by",
    ], "where a worker of the daemon before writes"  # fmt: skip
    assert paths.attempt_dir("Pong", 3, "ab") != paths.attempt_dir("Pong", 4, "ab")
    assert paths.beat("Pong", 3) != paths.beat("Pong", 4), "an attempt never reads another's beat"


def test_a_level_that_is_not_on_the_ladder_changes_nothing():
    fixed = settings("Pong")
    rungs = tuple(Rung(Level(name, slots), fixed.programs) for name, slots in (("light", 1), ("heavy", 8)))
    ladder = replace(fixed, level=rungs[0].level, ladder=rungs)
    assert ladder.at("heavy").level.slots == 8
    assert ladder.at("light") is ladder
    assert ladder.at("heavier") is ladder
    assert fixed.at("heavy") is fixed


def test_the_patterns_of_figures_have_the_seed_of_the_attempt():
    spec = ProgramSpec("a", ("x",), "d", figures=Sources(events_glob="{seed}/*"), template=Template((("seed", "4"),)))
    assert [spec.sources_at(rollbacks).events_glob for rollbacks in (0, 2)] == ["4/*", f"{seed_after(4, 2)}/*"]
    assert replace(spec, template=Template()).sources_at(2) == replace(spec, template=None).sources_at(2) == spec.figures


def test_the_user_of_each_log_outside_of_the_state_directory():
    mine = ProgramSpec("a", ("x",), "d", user="alice", stdout_log="/home/alice/a.log", stderr_log="NONE")
    ours = ProgramSpec("b", ("x",), "d", stderr_log="/var/log/b.log", user="")
    assert replace(settings("Pong"), programs=(mine, ours)).log_users == {"/home/alice/a.log": "alice", "/var/log/b.log": ""}
