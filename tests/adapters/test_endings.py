"""What is left of an attempt, as one ending: every field from where it comes, and nothing of files that are odd."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from supervisor.adapters.process import cgroups, endings
from supervisor.model.inputs import Ending, Report
from supervisor.model.settings import Paths
from supervisor.policy.worker.confinement import Limits
from workers import contract
from workers.contract import WorkerPhase
from workers.exit_record import ExitRecord

TOKEN, OTHER = "ab" * 16, "cd" * 16
KILLED = ExitRecord(
    TOKEN, 4242, None, signal.SIGKILL, core_dumped=False, ended_ns=90_000_000_000, ended_wall_s=1.0, user_s=1.0,
    system_s=1.0, max_rss_bytes=4096, leftovers=("sleep(7)",), oom_kills=(1, 2),
)  # fmt: skip


class Left:
    """The files of attempt 3 of Pong."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(str(root / "state"), str(root / "run"))
        self.directory = Path(self.paths.attempt_dir("Pong", 3, TOKEN))
        self.beside = Path(self.paths.shim_record("Pong") + ".exit")  # the shim's second place for it
        for each in (self.directory, self.beside.parent, Path(self.paths.beat("Pong", 3)).parent):
            each.mkdir(parents=True)

    def exit(self, record: ExitRecord = KILLED) -> None:
        (self.directory / "exit.json").write_text(json.dumps(asdict(record)))

    def beat(self, phase: WorkerPhase = WorkerPhase.TRAINING, **figures: int) -> None:
        body = contract.pack_beat(contract.Beat(phase, 3, 1, "b" * 32, TOKEN, 1, 5, 5, 5, **figures))
        record = contract._Record(self.paths.beat("Pong", 3), contract._BEAT_MAGIC, b"", len(body))
        record.write(body)
        record.close()

    def log(self, channel: str, text: str) -> None:
        Path(self.paths.log("Pong", channel)).write_bytes(text.encode())

    def ending(self, from_bytes: tuple[int, int] = (0, 0)) -> Ending | None:
        return endings.read_ending(self.paths, "Pong", 3, TOKEN, from_bytes, journal_s)

    def without_record(self, **more: object) -> Ending:
        return endings.without_record(self.paths, "Pong", 3, TOKEN, fate="its shim was killed", **more)  # type: ignore[arg-type]


def journal_s(at_ns: int) -> float:
    return 1000.0 + at_ns / 1e9


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_an_ending_has_all_that_the_attempt_left(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings._KERNEL_LOG, "oom_kill_of", "Killed process {}".format, raising=False)
    monkeypatch.setattr(endings.procfs, "contained", lambda: False)
    left.exit()
    left.beat(env_steps=44, ckpt_step=40, ckpt_ns=80_000_000_000, batch_size=512)
    left.log("stdout", "of an earlier one\nout\n")
    left.log("stderr", "err\n")
    (left.directory / "reports.jsonl").write_text('{"kind": "resumed", "step": 7}\n')
    whole = Ending(
        code=None, signal=9, leftovers=("sleep(7)",), last_lines=("out", "err"), max_rss_bytes=4096, steps=44,
        ckpt_step=40, ckpt_at_s=1080.0, reports=(Report("resumed", {"step": 7}),), batch_size=512, oom_kills=(1, 2),
        oom_line="Killed process 4242", ended_at_s=1090.0,
    )  # fmt: skip
    assert left.ending(from_bytes=(18, 0)) == whole
    assert endings.read_ending(left.paths, "Pong", 3, TOKEN, (18, 0)) == replace(whole, ckpt_at_s=None, ended_at_s=None)
    cgroups._note(str(left.directory), cgroups.Confined("/x", Limits(50, 60, 7, 100), counts_oom=True))
    assert left.ending((18, 0)) == replace(whole, oom_own=True, memory_max_bytes=60)
    left.exit(replace(KILLED, signal=signal.SIGTERM))
    ended = left.ending()
    assert ended is not None
    assert (ended.signal, ended.oom_line) == (15, ""), "the kernel kills by SIGKILL alone"


def test_a_worker_that_leaves_by_itself_before_its_target_has_decided_so(left: Left) -> None:
    for name, steps, decided in (("TRAINING", 44, False), ("LEAVING", 44, True), ("LEAVING", 50, False)):
        left.beat(WorkerPhase[name], env_steps=steps, target=50, target_kind=contract.TargetKind.ENV_STEPS)
        assert (left.without_record().target, left.without_record().decided) == (50, decided)


def test_an_attempt_that_never_ran_has_no_last_lines(left: Left) -> None:
    left.exit(replace(KILLED, signal=None, spawn_error="no such command"))
    left.log("stdout", "of an earlier one\n")
    ended = left.ending()
    assert ended is not None
    assert (ended.fate, ended.last_lines, ended.code, ended.signal) == ("no such command", (), None, None)


def test_the_exit_record_is_in_either_place_and_never_another_attempts(left: Left) -> None:
    assert left.ending() is None
    left.beside.write_text(json.dumps(asdict(KILLED)))
    assert endings.read_exit(left.paths, "Pong", 3, TOKEN) == KILLED
    assert endings.read_exit(left.paths, "Pong", 3, OTHER) is None
    (left.directory / "exit.json").write_text("torn")
    assert endings.read_exit(left.paths, "Pong", 3, TOKEN) == KILLED
    left.exit(replace(KILLED, token=OTHER))
    assert endings.read_exit(left.paths, "Pong", 3, TOKEN) == KILLED
    left.exit(replace(KILLED, pid=7))
    found = endings.read_exit(left.paths, "Pong", 3, TOKEN)
    assert found == replace(KILLED, pid=7), "the attempt's own directory goes first"


def test_the_last_beat_counts_if_it_is_this_attempts(left: Left) -> None:
    left.beat(WorkerPhase.BUILDING)
    assert left.without_record().steps is None, "before the training zero steps are not known"
    left.beat(env_steps=5)
    assert left.without_record(journal_s=journal_s) == Ending(fate="its shim was killed", steps=5)
    assert endings.without_record(left.paths, "Pong", 3, OTHER, fate="x") == Ending(fate="x")


# --- last lines ---------------------------------------------------------------------------------------------------------


def test_last_lines_are_whole_and_as_they_were_shown(left: Left) -> None:
    path = left.paths.log("Pong", "stdout")
    for text, lines in (
        ("", ()),
        ("one\n\n  \ntwo", ("one", "two")),
        ("  indented\t\n", ("  indented\t",)),
        ("10 %\r20 %\r30 %\r\ndone\r\n", ("30 %", "done")),
        ("x" * 401 + "\n", ("x" * 400,)),
        (f"first\n{'x' * 32 * 1024}\nlast\n", ("x" * 400, "last")),  # of a long log the end is read
        ("".join(f"{number}\n" for number in range(21)), tuple(str(number) for number in range(1, 21))),
    ):
        left.log("stdout", text)
        assert endings.last_lines(path) == lines
    Path(path).write_bytes(b"a\xffb\n")
    assert endings.last_lines(path) == ("a\ufffdb",)


def test_the_last_warning_of_an_attempt_is_found_far_above_its_last_lines(left: Left) -> None:
    logs = left.paths.log("Pong", "stdout"), left.paths.log("Pong", "stderr")
    left.log("stdout", "".join(f"step={number}\n" for number in range(9000)))
    before = "UserWarning: CUDA is old, said the attempt before\n"
    left.log("stderr", f"{before}UserWarning: CUDA unknown error\n" + "10%|#  | 1/10\r" * 4000)
    assert endings.last_warning(logs, (0, len(before))) == "UserWarning: CUDA unknown error"
    assert endings.last_warning((logs[0], ""), (0, 0)) == ""


# --- reports --------------------------------------------------------------------------------------------------------------


def test_reports_are_read_in_order_without_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    odd = [b"[]", b"{}", b'"kind"', b'{"kind": 5}', b"\xff", b"[" * 5000, b"torn"]
    path.write_bytes(
        b"\n".join([b'{"kind": "a", "x": NaN, "y": -Infinity, "z": 1.5}', *odd, b'{"kind": "b"}', b'{"kind": "to'])
    )
    assert endings.read_reports(str(path)) == (Report("a", {"x": None, "y": None, "z": 1.5}), Report("b", {}))
    assert endings.read_reports(str(tmp_path / "none")) == ()
