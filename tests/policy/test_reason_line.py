"""The line that says why a program died, among the last lines of its output."""

import pytest

from supervisor.policy.worker.diagnosis import diagnose
from supervisor.policy.worker.out_of_memory import CUDA_OUT_OF_MEMORY
from supervisor.policy.worker.reason_line import find, unhandled

TORCHRUN = (
    "E1127 failed (exitcode: 1) local_rank: 1", "Traceback (most recent call last):", "  File x",
    "a.ChildFailedError: ", "=====",
)  # fmt: skip
REPORT = (
    "Root Cause (first observed failure):", "[0]:", "  rank      : 1 (local_rank: 1)", "  exitcode  : 1 (pid: 7)",
    "=====",
)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), ""),
        (("", " "), ""),
        (("cannot open x",), "cannot open x"),
        (("cannot open x", " 53%|##  | 32/60 [00:01<00:00, 28.95it/s]", "====="), "cannot open x"),
        (("=====",), "====="),
        (("run.sh: line 3:  5001 Aborted      python t.py", "    5002 Done      | tee -a run.log"), "run.sh: line 3:  5001 Aborted      python t.py"),
        (("\x1b[31mcannot open x\x1b[0m", "\x1b[A"), "cannot open x"),
        (("ValueError: bad", "wandb: View run at"), "ValueError: bad"),
        ((" 45%|#  | 27/60 [00:01]Traceback (most recent call last):", "  File x", "queue.Empty", "bye"), "queue.Empty"),
        (("KeyError: 1", "Traceback (most recent call last):", "  File x", "KeyError: 2"), "KeyError: 2"),
        (("an Error: in a sentence", "the end"), "the end"),
        (("ValueError: bad", *TORCHRUN), "ValueError: bad"),
        (TORCHRUN, "a.ChildFailedError:"),
        (("subprocess.CalledProcessError: Command died",), "subprocess.CalledProcessError: Command died"),
        (("[rank1]: ValueError: bad", "[rank0]: RuntimeError: closed by peer", *TORCHRUN, *REPORT), "ValueError: bad"),
        (("[rank0]: RuntimeError: closed by peer", *TORCHRUN, *REPORT), "RuntimeError: closed by peer"),
        ((*TORCHRUN, *REPORT[:3], "  traceback : Signal 6 (SIGABRT) received by PID 7"), "Signal 6 (SIGABRT) received by PID 7"),
    ],
)  # fmt: skip
def test_the_line_is_that_of_the_exception(lines, reason):
    assert find(lines) == reason


def test_a_rank_that_runs_out_of_memory_is_no_crash():
    lines = (
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried", "[rank0]: RuntimeError: closed", *TORCHRUN,
        *REPORT,
    )  # fmt: skip
    found = diagnose(code=1, signal=None, stop_reason=None, stall=None, done_codes=(0,), contract=False, last_lines=lines)
    assert found.cause == CUDA_OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("before", "last", "found"),
    [
        ("step=29", "RuntimeError: CUDA error", "RuntimeError: CUDA error"),
        ("Exception ignored in: <function f>", "TypeError: x", ""),
        ("Exception in thread Thread-1:", "OSError: x", ""),
        ("step=29", "KeyboardInterrupt", ""),
    ],
)
def test_an_exception_that_ended_a_program_is_one_that_nobody_handled(before, last, found):
    lines = (before, "Traceback (most recent call last):", "  File x", last)
    assert unhandled(lines) == unhandled((*lines, "wandb: synced")) == found
    boxed = "╭─── Traceback (most recent call last) ────╮", "│ /a.py:3 in main │", "│ ❱ 3 f() │", "╰────╯", last, "bye"
    assert unhandled((before, *boxed)) == found
    shell = "./run.sh: line 3:  9861 Killed                  python3 train.py"
    assert unhandled((shell, *lines, "Done")) == (found or shell)
    assert unhandled(("Segmentation fault (core dumped)", "Done")) == "Segmentation fault (core dumped)"
    assert unhandled(("Killed 3 monsters", "./run.sh: line 9: 7 Terminated    tensorboard")) == ""
    assert unhandled(("ValueError: of a log", "bye")) == unhandled(()) == ""
