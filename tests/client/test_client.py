"""The client that foreign scripts import: alone, under a daemon's environment, in children, on every Python that is here."""

import errno
import fcntl
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import uuid
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tools import ROOT

CLIENT = ROOT / "client"
SHARED = ("contract.py", "store.py", "durable.py")
sys.path.insert(0, str(CLIENT))

from extralife.run import Run  # noqa: E402

from supervisor.adapters.process.checkpoints import survey, verify  # noqa: E402
from supervisor.adapters.process.probes import beat_sample  # noqa: E402
from workers import contract  # noqa: E402
from workers.contract import Control  # noqa: E402
from workers.daemon_side import ControlWriter, read_beat  # noqa: E402

COUNTER = """
import sys, time
import extralife
run = extralife.init(int(sys.argv[1]), {"net": [64, 64]}, float(sys.argv[2]), "run-here")
found = run.restore()
step = found.step if found else 0
print("begins at", step, flush=True)
while step < run.total and not run.should_stop():
    step += 1
    run.step(step, loss=1 / step, episode_return=step)
    if run.should_save():
        with run.checkpoint(step) as directory:
            (directory / "below").mkdir()
            (directory / "below" / "state").write_text(str(step))
    time.sleep(0.002)
run.leave()
"""


class Around:
    """What a daemon puts around an attempt: directories, fence and environment. No daemon."""

    def __init__(self, directory):
        self.token, self.run_dir, self.beat_file = uuid.uuid4().hex, directory / "mine", directory / "beat"
        self.run_dir.mkdir(exist_ok=True)
        (self.run_dir / "fence").write_text(self.token)
        self.environ = {
            contract.ENV_PROGRAM: "mine", contract.ENV_TOKEN: self.token, contract.ENV_ATTEMPT: "1",
            contract.ENV_RUN_DIR: str(self.run_dir), contract.ENV_BEAT: str(self.beat_file),
            contract.ENV_CONTROL: str(directory / "control"), contract.ENV_BOOT_ID: "b" * 32,
        }  # fmt: skip

    def run(self, total=None, identity=None, save_every_s=None, **more):
        return Run(total, identity or {}, save_every_s, "never", {**self.environ, **more})

    def reports(self):
        path = self.run_dir / "attempts" / f"1-{self.token}" / "reports.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def asks(self, **wishes):
        ControlWriter(self.environ[contract.ENV_CONTROL]).write(Control(self.token, **wishes))


@pytest.fixture
def around(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    yield Around(tmp_path)
    signal.signal(signal.SIGTERM, before)


def save(run, step, text="weights"):
    run.step(step)
    with run.checkpoint(step) as directory:
        (directory / "model").write_text(text)
    return directory.with_suffix("")


def script(text, *args, cwd, python=sys.executable, **environ):
    env = {**os.environ, "PYTHONPATH": str(CLIENT), "PYTHONDONTWRITEBYTECODE": "1", **environ}
    return subprocess.run(
        [python, "-W", "error", "-c", text, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


def pythons():
    """One of each version from 3.8 on that can be found here and runs."""
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin/python"))
    found = {sys.version_info[:2]: sys.executable}
    for each in [*map(str, kept), *(shutil.which(f"python3.{minor}") or "" for minor in range(8, 15))]:
        look = "import sys; print(*sys.version_info[:2])"
        done = subprocess.run([each or "false", "-c", look], capture_output=True, text=True, check=False)
        version = tuple(map(int, done.stdout.split()))
        if done.returncode == 0 and (3, 8) <= version < (3, 15):
            found.setdefault(version, each)
    return list(found.values())


# --- one contract, one file, any Python --------------------------------------------------------------------------------


def test_the_daemon_its_workers_and_the_client_have_one_contract(tmp_path):
    for name in SHARED:
        assert (CLIENT / "extralife" / name).samefile(ROOT / "workers" / name)
    shutil.copytree(CLIENT, tmp_path / "client", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "workers", tmp_path / "workers", ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta as b; b.build_wheel('.'); b.build_sdist('.')"
    done = subprocess.run(
        [sys.executable, "-c", build], cwd=tmp_path / "client", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "client").glob("*.whl")
    assert wheel.stat().st_size <= 44_000
    with zipfile.ZipFile(wheel) as archive:
        for name in SHARED:
            assert archive.read(f"extralife/{name}") == (ROOT / "workers" / name).read_bytes()
        about = next(name for name in archive.namelist() if name.endswith("METADATA"))
        assert "Requires-Dist" not in archive.read(about).decode()
    (source,) = (tmp_path / "client").glob("*.tar.gz")
    with tarfile.open(source) as archive:
        files = {member.name.partition("/")[2]: member for member in archive}
        for name in SHARED:
            assert archive.extractfile(files[f"extralife/{name}"]).read() == (ROOT / "workers" / name).read_bytes()


def test_it_counts_saves_and_resumes_on_each_python_without_a_daemon(tmp_path):
    for number, python in enumerate(pythons()):
        here = tmp_path / str(number)
        here.mkdir()
        done = script(COUNTER, "40", "0.06", cwd=here, python=python)
        assert (python, done.returncode, done.stdout, done.stderr) == (python, 0, "begins at 0\n", "")
        again = script(COUNTER, "60", "0.06", cwd=here, python=python)
        assert (python, again.returncode, again.stdout) == (python, 0, "begins at 40\n")
        newest = verify(survey(here / "run-here")[0])
        assert (newest.env_steps, newest.verified) == (60, True)
        assert (newest.path / "below" / "state").read_text() == "60"


def test_importing_it_loads_the_standard_library_alone_and_no_framework():
    look = "import extralife, sys; extralife.init; print(sorted({n.partition('.')[0] for n in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(CLIENT)!r}); {look}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert set(re.findall(r"'(\w+)'", done.stdout)) - sys.stdlib_module_names <= {"__main__", "extralife"}


def test_a_client_of_another_version_is_understood(tmp_path, around):
    """One that lacks our newest figure, and one that has a figure more."""
    text = (ROOT / "workers" / "contract.py").read_text()
    row = next(line for line in text.splitlines() if line.startswith("    best_spread: float"))
    for version, lines in {"older": "", "newer": f'{row}\n    more: float = _measured("not known yet")\n'}.items():
        package = tmp_path / version / "extralife"
        shutil.copytree(CLIENT / "extralife", package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "contract.py").write_text(text.replace(f"{row}\n", lines))
        say = "import extralife; r = extralife.init(9); r.restore(); r.step(7, loss=0.5, test_return=3.0)"
        done = script(say, cwd=tmp_path, **{**around.environ, "PYTHONPATH": str(package.parent)})
        assert (done.returncode, done.stderr) == (0, "")
        beat = read_beat(around.beat_file)
        assert (beat.env_steps, beat.loss, beat.test_return, beat.target) == (7, 0.5, 3.0, 9)


# --- reporting -----------------------------------------------------------------------------------------------------------


def test_figures_fill_the_beat(around):
    run = around.run(total=500)
    assert read_beat(around.beat_file).phase is contract.WorkerPhase.IMPORTING
    run.phase("compiling", 60)
    assert read_beat(around.beat_file).phase is contract.WorkerPhase.COMPILING
    run.step(3, loss=0.25, reward=1.5, entropy=0.7, updates=4)
    beat = read_beat(around.beat_file)
    assert (beat.phase, beat.env_steps, beat.target) == (contract.WorkerPhase.TRAINING, 3, 500)
    assert beat.phase_deadline_ns > contract.now_ns() + 590 * 10**9, "a step may take ten minutes if nobody says otherwise"
    assert (beat.loss, beat.mean_return, beat.entropy, beat.updates) == (0.25, 1.5, 0.7, 4)
    assert beat.rss_bytes > 1 << 20
    for score in range(101):
        run.step(4, episode_return=float(score))
    beat = read_beat(around.beat_file)
    assert (beat.episodes, beat.mean_return, beat.first_return, beat.best_return) == (101, 50.5, 49.5, 50.5)
    began_s = time.monotonic() - 2.0
    run._marks.appendleft((began_s, 0))
    run._look_at_ns = 0
    run.step(1000)
    assert 999 / (time.monotonic() - began_s) < read_beat(around.beat_file).steps_per_s < 501
    with run.phase("evaluating"):
        assert read_beat(around.beat_file).phase is contract.WorkerPhase.EVALUATING
    assert read_beat(around.beat_file).phase is contract.WorkerPhase.TRAINING


def test_figures_that_were_reported_before_go_straight_to_their_places(around, capfd):
    """The second step with a figure takes the short way; it must mean the same, and its mistakes be told the same."""
    run = around.run()
    for n, (loss, reward, entropy) in enumerate([(0.5, 1.0, 0.9), (0.25, 1.5, 0.8), (0.125, 2.0, 0.7)], 1):
        run.step(n, loss=loss, reward=reward, entropy=entropy)
        beat = read_beat(around.beat_file)
        assert (beat.env_steps, beat.loss, beat.mean_return, beat.entropy) == (n, loss, reward, entropy)
    run.step(4, entropy=None, reward=2)
    assert (read_beat(around.beat_file).entropy, read_beat(around.beat_file).mean_return) == (0.7, 2.0), "None is not known"
    run.step(5, entropy="high", reward=3.0)
    assert "step(5) was not reported: beat field entropy cannot hold 'high'" in capfd.readouterr().err


def test_nothing_raises_into_the_loop_and_a_mistake_is_reported_once(around, capfd):
    run = around.run()
    for _ in range(3):
        run.step("seven")
        run.step(-1)
        run.step(2, **{"": 0.5})
        run.step(3, entropy="high")
        run.step(3, accuracy="high")
        run.phase("sleeping")
        run.phase(None)
        run.step(5, episode_return=float("nan"))
    assert read_beat(around.beat_file).env_steps == 5
    said = capfd.readouterr().err.splitlines()
    assert len(said) == len(set(said)) == 7
    assert "extralife: the figure 'accuracy' is not shown: could not convert string to float: 'high'" in said


def test_figures_with_own_names_are_in_the_record_and_in_the_sample(around, capfd):
    run = around.run()
    for n in (1, 2):
        run.step(n, accuracy=np.float32(n / 4), **{"eval/f1": n, "nan_share": float("nan"), "share_x": 1.0}, other=None)
    run.phase("evaluating")
    beat = read_beat(around.beat_file)
    assert (beat.env_steps, beat.own) == (2, {"accuracy": 0.5, "eval/f1": 2.0, "share_x": 1.0})
    sample = beat_sample(replace(beat, own={**beat.own, "ckpt_step": 7.0, "loss": 1.0}), "S", float, None)
    assert {name: sample.figures.get(name) for name in ("accuracy", "eval/f1", "share_x", "ckpt_step", "loss")} == {
        "accuracy": 0.5, "eval/f1": 2.0, "share_x": None, "ckpt_step": None, "loss": None,
    }  # fmt: skip
    run.step(3, accuracy=0.75)  # without a phase, the client's thread shows it
    deadline_s = time.monotonic() + 30
    while read_beat(around.beat_file).own["accuracy"] != 0.75:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    run.step(4, **{f"{number}-{'ä' * 50}": 1 / 3 for number in range(40)})
    run.phase("evaluating")
    beat = read_beat(around.beat_file)
    assert beat.env_steps == 4
    assert 5 < len(beat.own) <= contract.MOST_OWN, "as many as there is room for"
    assert "at most 32 figures with own names can be shown" in capfd.readouterr().err


def test_losses_that_are_not_finite_count_and_many_in_a_row_are_a_divergence(around):
    run = around.run(total=10_000, save_every_s=0.0)
    for step in range(100):
        run.step(step % 10, loss=float("nan"))
    assert not run.should_stop(), "it has not learned yet"
    save(run, 10)
    run.step(10, loss=0.25)
    run.step(11, loss=float("nan"))
    assert not run.should_save(), "a NaN must not push the good checkpoints out"
    save(run, 12)
    assert [found.env_steps for found in survey(around.run_dir)] == [10]
    run.step(13, loss=0.5)
    assert run.should_save()
    for step in range(14, 114):
        assert not run.should_stop()
        run.step(step, loss=float("inf"))
    assert read_beat(around.beat_file).nan_count == 201
    assert run.should_stop()
    assert [(each["kind"], each["step"]) for each in around.reports()] == [("diverged", 13)]
    with pytest.raises(SystemExit) as left:
        run.leave()
    assert left.value.code == contract.EXIT_DIVERGED


def test_what_the_daemon_says_for_this_start(around):
    plain = around.run()
    assert (plain.batch_size(256), plain.num_envs(8), plain.seed(1)) == (256, 8, 1)
    told = around.run(EXTRALIFE_BATCH_SIZE="64", EXTRALIFE_NUM_ENVS="32", EXTRALIFE_ROLLBACKS="1", EXTRALIFE_SEED="1")
    assert (told.batch_size(256), told.num_envs(8), told.seed(5)) == (64, 32, contract.seed_after(1, 1))
    assert told.batch_size(16) == 16, "never more than the script wants"
    beat = read_beat(around.beat_file)
    assert (beat.batch_size, beat.num_envs) == (16, 32)


def test_steps_and_means_may_be_numbers_of_numpy_or_whole_floats(around, capfd):
    """`total=1e6` is common, and so is the mean of an array of float32: neither may cost the reports or a checkpoint."""
    run = around.run(total=1e3)
    for step, mean in ((np.int64(5), np.float32(1.5)), (6.0, torch.tensor(2.5)), (torch.tensor(7), np.float64(3.5))):
        run.step(step, loss=0.5)
        assert (read_beat(around.beat_file).env_steps, read_beat(around.beat_file).target) == (int(step), 1000)
        with run.checkpoint(step, mean_return=mean) as directory:
            (directory / "model").write_text("weights")
        found = around.run(total=1e3).restore()
        assert (found.step, found.mean_return) == (int(step), float(mean))
    endless = around.run(total=float("inf"))
    endless.step(8)
    assert (read_beat(around.beat_file).env_steps, read_beat(around.beat_file).target) == (8, contract.UNKNOWN)
    for row in range(100):
        run.step(np.int64(1000 + row), loss=float("nan"))
    assert (around.reports()[-1]["kind"], around.reports()[-1]["step"]) == ("diverged", 7)
    assert "was not reported" not in capfd.readouterr().err


def test_a_step_that_is_no_whole_number_costs_the_checkpoint_and_not_the_training(around, capfd):
    run = around.run(total=100)
    for wrong in (5.5, -1, "seven", None, float("nan")):
        run.step(3)
        run.step(wrong)
        assert not run.should_save()
        with run.checkpoint(wrong, mean_return="high") as directory:
            (directory / "model").write_text("weights")
        assert run.at == 3
    assert survey(around.run_dir) == []
    assert [each["kind"] for each in around.reports()] == ["checkpoint_failed"], "once"
    save(run, 10)
    with run.checkpoint(11, mean_return="high") as directory:
        (directory / "model").write_text("weights")
    assert [each.env_steps for each in survey(around.run_dir)] == [11, 10]
    said = capfd.readouterr().err
    assert "extralife: no checkpoint is saved: the step must be a whole number, at least 0, not 5.5" in said
    assert "'high' as mean_return, which is no number" in said


# --- who speaks ----------------------------------------------------------------------------------------------------------


def test_children_and_other_ranks_neither_beat_nor_save(tmp_path, around):
    text = """
import os, subprocess, sys
import extralife
run = extralife.init()
run.step(5)
say = "import extralife; r = extralife.init(); r.restore(); r.step(888); r.should_save() and 1 / 0"
subprocess.run([sys.executable, "-c", say], check=True)
subprocess.run([sys.executable, "-c", say], check=True, env={**os.environ, "RANK": "1", "EXTRALIFE_SPEAKER": ""})
os.execv(sys.executable, [sys.executable, "-c", "import extralife; r = extralife.init(); r.step(6); print(r.is_reporter)"])
"""
    done = script(text, cwd=tmp_path, **around.environ)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert read_beat(around.beat_file).env_steps == 6
    assert survey(around.run_dir) == []


@pytest.mark.parametrize(
    ("environ", "speaks"),
    [({"RANK": "0", "LOCAL_RANK": "0"}, True), ({"RANK": "4", "LOCAL_RANK": "0"}, False), ({"SLURM_PROCID": "1"}, False)],
)
def test_only_rank_0_speaks(around, environ, speaks):
    run = around.run(save_every_s=0.0, **environ)
    run.step(5)
    assert (run.is_reporter, run.should_save(), around.beat_file.exists()) == (speaks, speaks, speaks)


def test_every_rank_resumes_at_the_same_checkpoint(around):
    save(around.run(), 70)
    assert around.run(RANK="1").restore().step == around.run(RANK="0").restore().step == 70


# --- checkpoints ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_one_of_the_daemons_and_the_newest_whole_one_is_resumed(around):
    first = around.run(identity={"net": [64]})
    for step in (10, 20, 30):
        save(first, step, text=str(step))
    found = [verify(each) for each in survey(around.run_dir)]
    assert [(each.env_steps, each.verified) for each in found] == [(30, True), (20, True), (10, True)]
    beat = read_beat(around.beat_file)
    assert (beat.ckpt_step, beat.ckpt_count) == (30, 3)
    assert beat.ckpt_stall_us > 0

    (found[0].path / "model").write_text("31")  # as many bytes
    run = around.run(identity={"net": [64]})
    restored = run.restore()
    assert (restored.step, (restored.path / "model").read_text()) == (20, "20")
    assert [(each["kind"], each.get("step")) for each in around.reports()] == [("checkpoint_bad", None), ("resumed", 20)]
    assert read_beat(around.beat_file).resumed_step == 20


def test_another_identity_is_refused_for_good(around, capfd):
    save(around.run(identity={"net": [64]}), 10)
    with pytest.raises(SystemExit) as left:
        around.run(identity={"net": [128]}).restore()
    assert left.value.code == contract.EXIT_CONFIG
    assert "has net [64], this run has net [128]" in capfd.readouterr().err


@pytest.mark.parametrize("wrong", [float("inf"), np.int64(3), Path("/data")])
def test_an_identity_that_no_checkpoint_can_hold_is_refused_before_the_training(around, capfd, wrong):
    with pytest.raises(SystemExit) as left:
        around.run(identity={"clip": wrong})
    assert left.value.code == contract.EXIT_CONFIG
    run = around.run()
    run.identity = {"clip": wrong}
    with pytest.raises(SystemExit) as left:
        run.restore()
    assert left.value.code == contract.EXIT_CONFIG
    assert capfd.readouterr().err.count("extralife: the identity must consist of values of JSON") == 2


def test_without_one_whole_checkpoint_training_begins_and_says_why(around):
    path = save(around.run(), 10)
    (path / "model").unlink()
    assert around.run().restore() is None
    assert [each["kind"] for each in around.reports()] == ["checkpoint_bad", "from_scratch"]
    assert "model is missing" in around.reports()[1]["error"]


def test_a_disk_that_refuses_costs_the_checkpoint_and_not_the_training(around, capfd):
    run = around.run()
    save(run, 10)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        for step in (20, 30):
            save(run, step, text="x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [(each["kind"], each["step"]) for each in around.reports()] == [("checkpoint_failed", 20)], "once for one cause"
    assert sorted(path.name for path in (around.run_dir / "checkpoints").iterdir()) == [f"ckpt-10.{around.token}"]
    (around.run_dir / "checkpoints").chmod(0o700)
    save(run, 40)
    assert survey(around.run_dir)[0].env_steps == 40
    with pytest.raises(ZeroDivisionError), run.checkpoint(50):
        _ = 1 / 0
    assert survey(around.run_dir)[0].env_steps == 40
    capfd.readouterr()
    for wrong in ("link", "nothing", "manifest.json"):
        with run.checkpoint(60) as directory:
            if wrong == "link":
                (directory / "model").symlink_to("/etc/hostname")
            elif wrong != "nothing":
                (directory / wrong).write_text("{}")
    said = capfd.readouterr().err
    assert "model is a link" in said
    assert "wrote no file" in said
    assert "manifest.json is the name of its manifest" in said
    assert survey(around.run_dir)[0].env_steps == 40


def test_an_attempt_that_was_replaced_commits_nothing_and_leaves(around):
    run = around.run(total=100)
    save(run, 10)
    (around.run_dir / "fence").write_text("f" * 32)
    save(run, 20)
    assert [each.env_steps for each in survey(around.run_dir)] == [10]
    assert run.should_stop()
    with pytest.raises(SystemExit) as left:
        run.leave()
    assert left.value.code == contract.EXIT_FENCED


def test_a_lower_step_replaces_nothing(around):
    save(around.run(), 10)
    save(around.run(), 5)
    assert [each.env_steps for each in survey(around.run_dir)] == [10]
    assert "a lower step never replaces a higher one" in around.reports()[-1]["error"]


def test_two_processes_never_share_a_directory_without_a_daemon(tmp_path):
    text = COUNTER.replace("run.leave()", "input()")
    with subprocess.Popen(
        [sys.executable, "-c", text, "1", "0"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(CLIENT)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as first:  # fmt: skip
        assert first.stdout.readline() == "begins at 0\n"
        second = script(COUNTER, "1", "0", cwd=tmp_path)
        assert second.returncode == 1
        assert "is in use by another process" in second.stderr
        first.communicate("\n")


def test_a_beat_that_cannot_be_written_costs_the_reports_and_not_the_checkpoints(tmp_path, around, capfd):
    """As in a container that has the state directory but not /run: the shim outside holds the lock of the run directory."""
    with (around.run_dir / "lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        run = around.run(EXTRALIFE_BEAT=str(tmp_path / "not here" / "beat"))
        assert run.restore() is None
        save(run, 10)
        assert around.run().restore().step == 10
        (around.run_dir / "fence").write_text("f" * 32)
        save(run, 20)
        assert run.should_stop(), "the fence is the daemon's even so"
    assert [each.env_steps for each in survey(around.run_dir)] == [10]
    assert "progress cannot be reported to the daemon" in capfd.readouterr().err


def test_a_full_tmpfs_costs_the_beats_and_not_the_training(tmp_path, around):
    """Storing into a page that the file system cannot provide would be SIGBUS, at each start."""
    full = tmp_path / "full"
    full.mkdir()
    say = "import extralife; r = extralife.init(9); r.restore(); r.step(3); print(r.supervised)"
    fill = f"mount -t tmpfs -o size=16k tmpfs {full} && cat /dev/zero >{full}/all 2>/dev/null"
    env = {**os.environ, **around.environ, contract.ENV_BEAT: str(full / "beat"), "PYTHONPATH": str(CLIENT)}
    inside = ["unshare", "-rm", "sh", "-c", f'{fill}; test -s {full}/all || exit 99; exec "$0" -c "$1"', sys.executable, say]
    try:
        done = subprocess.run(inside, env=env, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("this box has no unshare")
    if "unshare" in done.stderr or done.returncode == 99:
        pytest.skip("this box allows no mount")
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert "progress cannot be reported to the daemon: [Errno 28] No space left on device" in done.stderr


def test_a_file_system_without_locks_can_hold_checkpoints(tmp_path, capfd, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    save(Run(100, {}, None, tmp_path, {}), 10)
    assert Run(100, {}, None, tmp_path, {}).restore().step == 10
    assert f"{tmp_path} cannot be locked (Function not implemented)" in capfd.readouterr().err


def test_a_sigterm_while_python_ends_is_no_death(tmp_path):
    """The daemon's request may be seen in the loop before its signal comes, and Python has put the default back by then."""
    late = (
        "import os, signal\nclass Late:\n    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):\n"
        "        kill(pid, number)\nlate = Late()\nimport builtins\nbuiltins.late = late\n"
    )
    done = script(late + COUNTER, "3", "0", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert script(late + "raise SystemExit(0)", cwd=tmp_path).returncode == -signal.SIGTERM, "without the client's leave"


# --- being asked ---------------------------------------------------------------------------------------------------------


def test_it_saves_as_the_daemon_asks_and_at_its_own_longest_interval(around):
    run = around.run()
    assert not run.should_save()
    around.asks(save_now=1)
    assert run.should_save()
    assert not run.should_save()
    run._save_at_s = time.monotonic()
    assert run.should_save()
    assert not run.should_save()
    done = around.run(total=5)
    done.step(5)
    assert done.should_save(), "what is finished is kept"
    assert not done.should_save()


def test_the_announced_end_of_the_box_can_be_asked_for(tmp_path):
    run = Run(10, {}, None, tmp_path, {contract.ENV_LEAVE_BY: str(tmp_path / "end")})
    assert run.seconds_left() is None
    (tmp_path / "end").write_text(contract.leave_by_text(time.time() + 100.0, "aws"))
    assert 0.0 < run.seconds_left() <= 100.0
    (tmp_path / "end").write_text(contract.leave_by_text(5.0, "aws"))
    assert run.seconds_left() == 0.0
    (tmp_path / "end").write_text(contract.leave_by_text(None, "aws"))
    assert run.seconds_left() is None


def test_sigterm_asks_to_save_first_and_then_to_leave_and_an_earlier_handler_still_hears_of_it(around):
    heard = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append("earlier"))
    run = around.run(total=100)
    run.step(7)
    assert not run.should_save()
    assert not run.should_stop()
    signal.raise_signal(signal.SIGTERM)
    assert heard == ["earlier"]
    assert not run.should_stop(), "it came between should_save and should_stop"
    assert run.should_save()
    save(run, 7)
    assert not run.should_save()
    assert run.should_stop()
    with pytest.raises(SystemExit) as left:
        run.leave()
    assert left.value.code == contract.EXIT_LEFT
    assert read_beat(around.beat_file).phase is contract.WorkerPhase.LEAVING


def code_of_leave(run):
    with pytest.raises(SystemExit) as left:
        run.leave()
    return left.value.code


def test_a_script_that_never_asks_to_save_stops_at_once(around):
    run = around.run(total=100)
    around.asks(leave_by_ns=contract.now_ns() + 10**10)
    assert run.should_stop()
    around.asks()
    assert code_of_leave(run) == contract.EXIT_LEFT, "a request that is taken back later was one"


def test_a_script_that_ends_by_itself_is_done_and_a_rank_that_leaves_with_another_is_not(around):
    early = around.run(total=100)
    early.step(40)
    assert code_of_leave(early) == contract.EXIT_DONE, "an early stop would stop again after each start"
    other = around.run(total=100)
    other.step(40)
    other.stop()
    assert other.should_stop()
    assert code_of_leave(other) == contract.EXIT_LEFT
    other.step(100)
    assert code_of_leave(other) == contract.EXIT_DONE


def test_where_it_stands_is_written_when_the_daemon_wants_to_know(tmp_path, around):
    text = (
        "import extralife, os, signal\ndef deep_in_the_training():\n    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "extralife.init()\ndeep_in_the_training()\n"
    )
    done = script(text, cwd=tmp_path, **around.environ, EXTRALIFE_STACKS=str(tmp_path / "stacks.txt"))
    assert done.returncode == 0
    assert "deep_in_the_training" in (tmp_path / "stacks.txt").read_text()


RANKS = """
import os, sys
import torch.distributed as dist
import torch.multiprocessing as mp
import extralife

def rank(number, run):
    dist.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=number, world_size=2)
    run = run or extralife.init(total=20, directory="here")
    found = run.restore()
    step = found.step if found else 0
    while step < run.total:
        step += 1
        run.step(step, own=1)
        dist.barrier()
        if run.should_save():
            with run.checkpoint(step) as directory:
                (directory / "rank").write_text(str(number))
    dist.destroy_process_group()
    run.leave()

if __name__ == "__main__":
    run = extralife.init(total=20, directory="here") if sys.argv[2] == "parent" else None
    if run:
        run.restore()
    if sys.argv[1] == "process":
        processes = [mp.get_context("fork").Process(target=rank, args=(number, run)) for number in range(2)]
        for each in processes:
            each.start()
        for each in processes:
            each.join()
        assert [each.exitcode for each in processes] == [0, 0]
    else:
        mp.start_processes(rank, (run,), nprocs=2, start_method=sys.argv[1])
    print(os.getpid())
    if run:
        run.leave()
"""


OTHERS = [pytest.param(*each, marks=pytest.mark.slow) for each in (("spawn", "parent"), ("process", "child"))]


@pytest.mark.parametrize(("how", "first"), [("fork", "parent"), *OTHERS])
def test_of_ranks_that_a_script_starts_itself_rank_0_reports_and_saves(tmp_path, around, how, first):
    (tmp_path / "train.py").write_text(RANKS)
    for environ, kept in ((({}, tmp_path / "here"), (around.environ, around.run_dir)))[how == "spawn" :]:
        command = [sys.executable, "train.py", how, first, str(tmp_path / f"group-{kept.name}")]
        env = {**os.environ, **environ, "PYTHONPATH": str(CLIENT)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=100)
        assert done.returncode == 0, done.stderr
        (saved,) = survey(kept)
        assert (saved.env_steps, (saved.path / "rank").read_text()) == (20, "0")
    beat = read_beat(around.beat_file)
    assert (beat.env_steps, beat.target, beat.ckpt_step, beat.own) == (20, 20, 20, {"own": 1.0})
    assert beat.phase is contract.WorkerPhase.LEAVING
    assert (beat.pid == int(done.stdout)) == (first == "parent"), "the parent leaves last, with what its rank 0 reached"


WORKERS = """
import multiprocessing, os, signal
import extralife

def worker(pipe, run):
    run = run or extralife.init(total=10)
    run.step(999)
    with run.checkpoint(999) as directory:
        (directory / "model").write_text("wrong")
    pipe.send((run.is_reporter, run.should_save()))
    pipe.recv()

if __name__ == "__main__":
    run = None
    for how in ("fork", "spawn", "forkserver"):  # the first worker calls init before its parent does
        context = multiprocessing.get_context(how)
        ours, theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs, run), daemon=True)
        process.start()
        assert ours.recv() == (False, False), how
        process.terminate()
        process.join(50)
        assert process.exitcode == -signal.SIGTERM, how
        run = run or extralife.init(total=10)
        run.step(5)
    run.step(6)
    assert run.is_reporter
"""


def test_workers_of_a_vectorised_environment_report_nothing_and_end_by_sigterm(tmp_path, around):
    (tmp_path / "train.py").write_text(WORKERS)
    env = {**os.environ, **around.environ, "PYTHONPATH": str(CLIENT)}
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, env=env, timeout=100, check=True)
    assert read_beat(around.beat_file).env_steps == 6
    assert survey(around.run_dir) == []
