"""What a good configuration becomes: values, their order of precedence, command lines, origins."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import pytest
from config_kit import Place, flags_of
from tools import MEMORY_DIR, ROOT

from supervisor import config, places
from supervisor.adapters.process.processes import worker_env
from supervisor.config import cores
from supervisor.config.cores import usable_cores
from supervisor.config.whole_input import ConfigInput
from supervisor.model.settings import Paths, Progress
from workers import args, contract
from workers.options import OPTIONS

EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.toml"))
TEN = "MsPacman BeamRider Asteroids Enduro Pong Freeway SpaceInvaders Seaquest Breakout Qbert".split()


# --- the examples and the embedded default -----------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_right(example: Path, place: Place) -> None:
    loaded = config.load(str(example), place.environ)
    assert not loaded.warnings
    assert loaded.settings.paths.config_file == str(example)


@pytest.mark.parametrize("example", ["a100", "box"])
def test_a_box_trains_the_ten_games_and_climbs(example: str) -> None:
    settings = config.load(str(ROOT / "deploy" / "examples" / f"{example}.toml"), {}, look=False).settings
    assert sorted(spec.game for spec in settings.programs) == sorted(TEN)
    assert all(spec.builtin and spec.name == spec.game for spec in settings.programs)
    begins = "config OK: 10 programs, level light: 2 slots x 32 environments, batch 512; climbs 6 levels up to heavy"
    assert config.summary(settings) == begins
    assert (settings.paths.state_dir, settings.paths.runtime_dir) == ("/var/lib/extralife", "/run/extralife")


@pytest.mark.needs("slurm")
def test_the_example_for_a_cluster_trains_the_ten_games_as_jobs() -> None:
    settings = config.load(str(ROOT / "deploy" / "slurm" / "extralife.toml"), {}, look=False).settings
    assert sorted(spec.game for spec in settings.programs) == sorted(TEN)
    assert (settings.remote, settings.launcher.gpus, settings.level.slots) == (True, 1, 4)


def test_the_service_begins_with_the_box_example() -> None:
    script = (ROOT / "deploy" / "install.sh").read_text()
    (path,) = re.findall(r"^readonly DEFAULT_CONFIG=(.+)$", script, flags=re.MULTILINE)
    shared = (ROOT / "deploy" / "release.sh").read_text()
    assert (ROOT / path) in EXAMPLES
    assert "STATE=/var/lib/extralife RUNTIME=/run/extralife " in shared, "the directories that the example names"


def test_without_any_file_two_games_are_trained(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.directory)
    if Path("/etc/extralife/extralife.toml").exists():
        pytest.skip("this machine has a configuration of its own")
    loaded = config.load(None, place.environ)
    assert [spec.name for spec in loaded.settings.programs] == ["Breakout", "Pong"]
    assert loaded.settings.paths.config_file is None
    assert str(loaded.origins["level.slots"]).startswith("the embedded default:")


# --- precedence ----------------------------------------------------------------------------------------------------------


def test_default_file_environment_flag(place: Place) -> None:
    text = "[level]\nslots = 3\n[program.Pong]\n"
    level = "daemon.log_level"
    assert place.load(text).values[level] == "info"
    text = f'[daemon]\nlog_level = "error"\n{text}'
    found = place.load(text)
    assert (found.values[level], str(found.origins[level])) == ("error", f"{place.file}:2")
    found = place.load(text, {"EXTRALIFE_LOG_LEVEL": "debug"})
    assert (found.values[level], str(found.origins[level])) == ("debug", "environment EXTRALIFE_LOG_LEVEL")
    found = place.load(text, {"EXTRALIFE_LOG_LEVEL": "debug"}, log_level="warning", slots="5")
    assert (found.values[level], str(found.origins[level])) == ("warning", "flag --log-level")
    assert found.settings.daemon.log_level == "warning"
    assert (found.settings.level.slots, str(found.origins["level.slots"])) == (5, "flag --slots")
    assert place.settings(text, {"EXTRALIFE_SLOTS": "4"}).level.slots == 4


def test_every_daemon_key_is_an_environment_variable(place: Place) -> None:
    environ = {"EXTRALIFE_SAMPLE_PERIOD_S": "0.25", "EXTRALIFE_LOG_BACKUPS": "0", "EXTRALIFE_LOG_MAX_BYTES": ""}
    daemon = place.settings("[program.Pong]\n", environ).daemon
    assert (daemon.sample_period_s, daemon.log_backups) == (0.25, 0)
    assert daemon.log_max_bytes == 50 * 2**20, "an empty variable is one that is not set"


def test_level_training_program_rl(place: Place) -> None:
    text = (
        "[level]\nnum_envs = 16\nbatch_size = 128\n[training]\nlr = 1e-4\nbatch_size = 256\n"
        "[program.Pong]\nlr = 2e-4\n[program.Qbert]\nnum_envs = 24\n"
    )
    settings = place.settings(text)
    pong, qbert = (flags_of(spec) for spec in settings.programs)
    assert (pong["--num-envs"], pong["--batch-size"], pong["--lr"]) == ("16", "256", "0.0002")
    assert (qbert["--num-envs"], qbert["--batch-size"], qbert["--lr"]) == ("24", "256", "0.0001")
    loaded = place.load(text, {"RL_LR": "3e-4", "RL_NUM_ENVS": "8"})
    for spec in loaded.settings.programs:
        assert flags_of(spec)["--lr"] == "0.0003"
        assert spec.num_envs == 8
    assert loaded.settings.level.num_envs == 8, "what is shown is what runs"
    assert str(loaded.origins["program.Pong.lr"]) == "environment RL_LR"
    assert str(place.load(text).origins["program.Pong.num_envs"]) == f"{place.file}:2"


def test_each_value_of_the_load_has_its_origin(place: Place) -> None:
    text = "[levels.light]\nthreads = 3\n[levels.heavy]\nslots = 4\n[training]\nlr = 0.5\n[program.Pong]\n"
    loaded = place.load(text, {"RL_BATCH_SIZE": "64"})
    keys = ("batch_size", "num_envs", "threads", "lr", "gamma")
    found = {key: (loaded.values[f"program.Pong.{key}"], str(loaded.origins[f"program.Pong.{key}"])) for key in keys}
    assert found == {
        "batch_size": (64, "environment RL_BATCH_SIZE"), "num_envs": (32, "default of levels.light.num_envs"),
        "threads": (3, f"{place.file}:2"), "lr": (0.5, f"{place.file}:6"), "gamma": (0.99, "default"),
    }  # fmt: skip
    assert (loaded.values["load.mode"], str(loaded.origins["load.mode"])) == ("climb", "with [levels]")
    rows = {key: (loaded.values[key], str(loaded.origins[key])) for key in loaded.values if key.startswith("levels.")}
    assert rows == {
        "levels.light.slots": (2, "default"), "levels.light.num_envs": (32, "default"),
        "levels.light.batch_size": (64, "environment RL_BATCH_SIZE"), "levels.light.threads": (3, f"{place.file}:2"),
        "levels.light.memory_mb": (None, "default"), "levels.heavy.slots": (4, f"{place.file}:4"),
        "levels.heavy.num_envs": (32, "as in light"), "levels.heavy.batch_size": (64, "environment RL_BATCH_SIZE"),
        "levels.heavy.threads": (3, "as in light"), "levels.heavy.memory_mb": (None, "as in light"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cpu_max", "quota"),
    [("max 100000", None), ("100000 100000", 1), ("50000 100000", 1), ("150000 100000", 2), ("x", None), ("1 0", None)],
)
def test_a_quota_counts_as_cores(tmp_path: Path, cpu_max: str, quota: int | None) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(cpu_max + "\n")
    allowed = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == (allowed if quota is None else min(allowed, quota))
    assert usable_cores(tmp_path / "missing") == allowed


# What a container shows: /proc/self/cgroup, and files below /sys/fs/cgroup with a quota of one core.
CGROUPS = {
    "v1 without its path": ("4:memory:/docker/a\n3:cpu,cpuacct:/docker/a\n", {"cpu,cpuacct/cpu.cfs_quota_us": "100000"}),
    "v1 by its own name": ("3:cpu,cpuacct:/docker/a\n0::/\n", {"cpu/docker/a/cpu.cfs_quota_us": "100000"}),
    "v2 without its path": ("0::/docker/a\n", {"cpu.max": "100000 100000"}),
    "v2 outside of its namespace": ("0::/../../a\n", {"cpu.max": "100000 100000"}),
    "v2, a service within a slice with a quota": ("0::/a/b\n", {"a/cpu.max": "100000 100000", "a/b/cpu.max": "max 100000"}),
}


@pytest.mark.parametrize(("own", "files"), CGROUPS.values(), ids=CGROUPS)
def test_the_quota_of_a_container_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str]
) -> None:
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _pid: set(range(128)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    for name, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.with_name("cpu.cfs_period_us").write_text("100000")
    assert usable_cores(tmp_path) == 1


# --- built-in programs -----------------------------------------------------------------------------------------------------


def test_the_worker_understands_its_command_line(place: Place) -> None:
    spec = place.program("mine", "[program.mine]\ngame = 'Pong'\nuse_double_dqn = false\ngamma = 0.5\nsteps = 9000\n")
    assert spec.argv[:4] == (sys.executable, "-P", "-m", "workers")
    parsed = args.parse(spec.argv[4:], {})
    assert (parsed.program, parsed.game) == ("mine", "Pong")
    assert (parsed.use_double_dqn, parsed.gamma, parsed.steps) == (False, 0.5, 9000)
    assert (parsed.num_envs, parsed.batch_size, parsed.threads) == (32, 512, max(1, usable_cores() // 2))
    given = {key: value for key, value in dataclasses.asdict(parsed).items() if key in OPTIONS}
    loaded = place.load(place.file.read_text())
    assert given | {"lr": None, "max_grad_norm": None} == {key: loaded.values[f"program.mine.{key}"] for key in OPTIONS}, (
        "the rest is the default"
    )


@pytest.mark.parametrize(
    ("text", "game"),
    [
        ("[program.Pong]\n", "Pong"),
        ("[program.Pong]\ngame = 'Qbert'\n", "Qbert"),
        ("[training]\ngame = 'Qbert'\n[program.seed1]\n", "Qbert"),
        ("[training]\ngame = 'Qbert'\n[program.Pong]\n", "Pong"),
        ("[program.Catch]\n", "Catch"),
    ],
)
def test_which_game(place: Place, text: str, game: str) -> None:
    (spec,) = place.settings(text).programs
    assert spec.game == game == flags_of(spec)["--game"]


def test_surroundings_of_a_built_in_program(place: Place) -> None:
    text = '[level]\nthreads = 2\n[program.Pong]\nenv = { CUDA_VISIBLE_DEVICES = "1", OMP_NUM_THREADS = "7" }\n'
    env = dict(place.program("Pong", text, {"PYTHONPATH": "/extra"}).env)
    assert env["PYTHONUNBUFFERED"] == "1"
    assert (env["MKL_NUM_THREADS"], env["OMP_NUM_THREADS"]) == ("2", "7"), "its own word is the last"
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["PYTHONPATH"] == f"{ROOT}{os.pathsep}/extra", "a checkout is found from the run directory"


# --- commands ----------------------------------------------------------------------------------------------------------------


def test_a_command_is_taken_as_it_is(place: Place) -> None:
    text = """
[program.my-run]
command = "sh -c 'echo \\"two words\\"'"
directory = "sub"
env = { A = "1" }
progress = "files"
progress_glob = "ckpt/*.pt"
done_codes = [3, 0, 3]
"""
    (place.directory / "sub").mkdir()
    loaded = place.load(text, {"OMP_NUM_THREADS": "9", "RL_WHATEVER": "1"})
    (spec,) = loaded.settings.programs
    assert spec.argv == ("sh", "-c", 'echo "two words"')
    assert spec.directory == str(place.directory / "sub"), "relative to the file"
    assert (spec.progress, spec.progress_glob, spec.done_codes) == (Progress.FILES, "ckpt/*.pt", (0, 3))
    assert not spec.builtin
    env = dict(spec.env)
    assert env["A"] == "1"
    assert "OMP_NUM_THREADS" not in env, "the environment's own word counts"
    assert env["MKL_NUM_THREADS"] == str(max(1, usable_cores() // 2))
    assert not loaded.warnings


def test_a_service_is_not_judged_and_waits_for_nothing(place: Place) -> None:
    plain = place.program("x", '[program.x]\ncommand = "tensorboard"\n')
    spec = place.program("x", '[program.x]\ncommand = "tensorboard"\nkind = "service"\nrestart = "always"\n')
    assert (spec.service, spec.restart, spec.progress, spec.min_free_mb) == (True, "always", Progress.NONE, 0)
    assert (plain.service, plain.restart, plain.min_free_mb) == (False, "failed", None)
    assert spec.digest != plain.digest


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            'command = "no-such-program-anywhere"',
            "line 2: program.x.command: no-such-program-anywhere is not found, or not executable (yet)",
        ),
        ('command = "sleep 1"\ndirectory = "/nowhere"', "line 3: program.x.directory: /nowhere does not exist (yet)"),
        ('command = "./run.sh"', "line 2: program.x.command: ./run.sh is not found, or not executable (yet)"),
    ],
)
def test_what_may_come_right_is_a_warning(place: Place, keys: str, says: str) -> None:
    """A disk that is mounted later must not keep every other program from training."""
    assert place.load(f"[program.x]\n{keys}\n").warnings == (f"{place.file}, {says}",)


def test_a_command_is_looked_for_where_it_will_be_started(place: Place) -> None:
    script = place.directory / "mine"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    here = f'directory = "{place.directory}"\n'
    for found in (
        f'command = "./mine"\n{here}',
        f'command = "{script}"\n',
        f'command = "mine"\nenv = {{ PATH = "{place.directory}" }}\n',
    ):
        assert place.load(f"[program.x]\n{found}").warnings == ()
    assert place.load('[program.x]\ncommand = "mine"\n', {"PATH": str(place.directory)}).warnings == ()
    for missing in (
        f'command = "mine"\n{here}',
        'command = "sleep 1"\nenv = { PATH = "/nowhere" }\n',
        'command = "{{a}}"\n',
    ):
        (warning,) = place.load(f"[program.x]\n{missing}").warnings
        program = missing.partition('"')[2].partition('"')[0].split()[0].replace("{{a}}", "{a}")
        assert warning == f"{place.file}, line 2: program.x.command: {program} is not found, or not executable (yet)"
    assert place.load('[program.x]\ncommand = "{name} 1"\n').warnings == (), "its name may be one"


@pytest.mark.needs("notices")
def test_without_a_file_paths_are_relative_to_the_current_directory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.directory)
    (place.directory / "a").mkdir()
    text = '[notice]\nfile = "x/../end"\n[program.x]\ncommand = "sleep 1"\ndirectory = "a"\n'
    settings = config.load_input(ConfigInput(text=text), place.environ, "kept").settings
    assert (settings.notice.file, settings.paths.config_file) == (f"{place.directory}/end", None)
    assert settings.programs[0].directory == f"{place.directory}/a"
    monkeypatch.setenv("HOME", "/h")
    assert place.settings('[notice]\nfile = "~/end"\n[program.Pong]\n').notice.file == "/h/end"


def test_a_relative_state_directory_is_a_warning(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.directory)
    del place.environ["EXTRALIFE_STATE_DIR"]
    loaded = place.load('[daemon]\nstate_dir = "here"\n[program.Pong]\n')
    assert loaded.settings.paths.state_dir == str(place.directory / "here")
    assert loaded.warnings == (
        f"{place.file}, line 2: daemon.state_dir = 'here' depends on where extralife is started; write an absolute path",
    )


# --- explain ----------------------------------------------------------------------------------------------------------------


def test_every_setting_is_explained_once_and_secrets_are_not_told(place: Place) -> None:
    text = (
        '[program.Pong]\nenv = { WANDB_API_KEY = "hush", WANDB_MODE = "offline" }\n'
        '[program.x]\ncommand = "sleep 1"\n[program.x.env]\nmy_token = "hush"\nPlain = "seen"\n'
    )
    loaded = place.load(text)
    rows = {key: (value, str(origin)) for key, value, origin in config.explain(loaded)}
    assert list(rows) == sorted(rows)
    assert rows["program.Pong.env.WANDB_API_KEY"][0] == "***"
    assert rows["program.x.env.my_token"][0] == "***"
    assert "hush" not in str(rows)
    assert dict(loaded.settings.programs[0].env)["WANDB_API_KEY"] == "hush"
    assert rows["program.Pong.env.WANDB_MODE"][0] == "offline"
    assert rows["program.x.env.Plain"] == ("seen", f"{place.file}:7")
    assert rows["program.Pong.game"] == ("Pong", f"{place.file}:1")
    assert rows["program.Pong.gamma"] == (0.99, "default")
    assert rows["program.Pong.num_envs"] == (32, "default of level.num_envs")
    assert rows["daemon.state_dir"][1] == "environment EXTRALIFE_STATE_DIR"
    assert set(OPTIONS) <= {key.removeprefix("program.Pong.") for key in rows}
    for section in ("level", "restart", "stall", "checkpoint", "daemon"):
        values = getattr(loaded.settings, section)
        elsewhere = getattr(values, "FIELDS", {}).values()  # of features: explained where they are given
        for field in dataclasses.fields(values):
            assert f"{section}.{field.name}" in rows or field.name in elsewhere


# --- where things are ----------------------------------------------------------------------------------------------------------


def test_two_state_directories_never_share_a_runtime_directory() -> None:
    a, b = (config.runtime_dir_for(f"/data/{name}", {}) for name in "ab")
    assert a != b
    assert a == config.runtime_dir_for("/data/x/../a", {})
    assert len(a.rpartition("-")[2]) == 8
    assert len(f"{a}/notify/{'x' * 64}") <= 107
    assert config.runtime_dir_for("/data/a", {"RUNTIME_DIRECTORY": "/run/extralife"}) == "/run/extralife"


def test_root_under_systemd_has_its_state_in_var_lib() -> None:
    found = config.state_dir_for({"INVOCATION_ID": "0" * 32, "HOME": "/h"})
    assert found == ("/var/lib/extralife" if os.geteuid() == 0 else "/h/.local/state/extralife")


def test_systemd_says_where(place: Place) -> None:
    environ = {"STATE_DIRECTORY": str(place.directory / "s"), "RUNTIME_DIRECTORY": f"{MEMORY_DIR}/xl-test", "HOME": "/root"}
    place.file.write_text("[program.Pong]\n")
    loaded = config.load(str(place.file), environ)
    assert loaded.settings.paths == Paths(str(place.directory / "s"), f"{MEMORY_DIR}/xl-test", str(place.file))
    assert str(loaded.origins["daemon.state_dir"]) == "environment STATE_DIRECTORY"


def test_the_file_is_looked_for_in_order(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.directory)
    environ = {"HOME": str(place.directory)}
    user = place.directory / ".config" / "extralife" / "extralife.toml"
    user.parent.mkdir(parents=True)
    user.write_text("[program.Qbert]\n")
    assert places.find_config(environ) == str(user)
    place.file.write_text("[program.Pong]\n")
    assert places.find_config(environ) == str(place.file)
    assert places.find_config({**environ, "EXTRALIFE_CONFIG": "/x.toml"}) == "/x.toml"
    loaded = config.load(None, {**place.environ, "EXTRALIFE_CONFIG": str(user)})
    assert [spec.name for spec in loaded.settings.programs] == ["Qbert"]


def test_a_command_has_the_variables_of_supervisor_unless_its_own_say_otherwise(place: Place) -> None:
    text = '[program.x]\ncommand = "sleep 1"\ngroup = "g"\nenv = { SUPERVISOR_ENABLED = "0" }\n'
    env = worker_env(Paths("/s", "/r"), place.program("x", text), 1, "0" * 32, "1" * 32)
    assert {key: value for key, value in env.items() if key.startswith("SUPERVISOR_")} == {
        "SUPERVISOR_ENABLED": "0", "SUPERVISOR_SERVER_URL": "unix:///r/supervisor.sock", "SUPERVISOR_PROCESS_NAME": "x",
        "SUPERVISOR_GROUP_NAME": "g",
    }  # fmt: skip


def test_what_a_program_that_runs_the_daemon_has_reaches_no_worker(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that inherited the speaker of another would report nothing and save nothing."""
    of_another = (contract.SPEAKER_ENV, contract.ENV_ROLLBACKS, contract.ENV_RESUME)
    for name in of_another:
        monkeypatch.setenv(name, "1")
    program = place.program("x", '[program.x]\ncommand = "sleep 1"\n')
    assert not worker_env(Paths("/s", "/r"), program, 1, "0" * 32, "1" * 32).keys() & set(of_another)


# --- what is kept of a good one ----------------------------------------------------------------------------------------------


def test_what_is_kept_is_what_was_given(place: Place) -> None:
    text = "[program.Pong]\n"
    others = {"RL_LR": "0.5", "OTHER": "1", "EXTRALIFE_SLOTS": "3", "EXTRALIFE_TOKEN": "x"}
    given = place.load(text, others, log_level="debug", state_dir=None).given
    environ = {key: place.environ[key] for key in ("EXTRALIFE_RUNTIME_DIR", "EXTRALIFE_STATE_DIR")}
    assert given == ConfigInput(
        str(place.file), text, environ | {"EXTRALIFE_SLOTS": "3", "RL_LR": "0.5"}, {"log_level": "debug"}
    )
    assert given.to_json() == json.dumps(dataclasses.asdict(given), sort_keys=True)
    loaded = config.load_input(given, {"RL_LR": "0.25", "EXTRALIFE_SLOTS": "9", "CUDA_VISIBLE_DEVICES": "5"}, "kept")
    (spec,) = loaded.settings.programs
    assert (flags_of(spec)["--lr"], loaded.settings.level.slots, spec.visible) == ("0.5", 3, "5")
    assert loaded.settings.daemon.log_level == "debug"
    assert loaded.settings.paths == Paths(environ["EXTRALIFE_STATE_DIR"], environ["EXTRALIFE_RUNTIME_DIR"], str(place.file))
    assert str(loaded.origins["program.Pong.game"]) == "kept:1"
