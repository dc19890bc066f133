"""What an attempt died of: every row of the table, and what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker.diagnosis import Diagnosis, diagnose
from workers import contract

ASKED = ["operator", "shutdown", "config", "slot", "restart"]


def of(
    code=None, signal=None, stop_reason=None, stall=None, done_codes=(0,), contract=True, last_lines=(), fate="", oom_kill=""
):
    return diagnose(
        code=code, signal=signal, stop_reason=stop_reason, stall=stall, done_codes=done_codes, contract=contract,
        last_lines=last_lines, fate=fate, oom_kill=oom_kill,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "cause", "counted", "why"),
    [
        ({"code": 75, "stop_reason": "operator"}, "stopped", False, "stopped on request (operator), exit code 75"),
        ({"signal": 9, "stop_reason": "shutdown"}, "stopped", False, "stopped on request (shutdown), killed by SIGKILL"),
        ({"code": 0, "stop_reason": "slot"}, "stopped", False, "stopped on request (slot), exit code 0"),
        ({"signal": 9, "stop_reason": "stall", "stall": "hang"}, "stalled", True, "ended after a stall (hang), killed by SIGKILL"),
        ({"code": 75, "stop_reason": "stall"}, "stalled", True, "ended after a stall (unknown), exit code 75"),
        ({"code": 0}, "done", False, "finished, exit code 0"),
        ({"code": 3, "done_codes": (0, 3)}, "done", False, "finished, exit code 3"),
        ({"code": 0, "done_codes": ()}, "crash", True, "exit code 0"),
        ({"code": 78}, "config", False, "the program reports a configuration that cannot work"),
        ({"code": 78, "last_lines": ("no game 'Pung'",)}, "config", False, "the program reports a configuration that cannot work: no game 'Pung'"),
        ({"code": 78, "contract": False}, "crash", True, "exit code 78"),
        ({"code": 77}, "fenced", True, "another attempt owned its run directory"),
        ({"code": 77, "contract": False}, "crash", True, "exit code 77"),
        ({"code": 75}, "left", True, "it saved and exited on someone else's request"),
        ({"code": 75, "contract": False}, "crash", True, "exit code 75"),
        ({"code": 65}, "diverged", True, "its losses were no longer finite"),
        ({"code": 65, "contract": False}, "crash", True, "exit code 65"),
        ({"code": 75, "stop_reason": "diverged"}, "diverged", True, "ended because its losses were no longer finite, exit code 75"),
        ({"signal": 9, "stop_reason": "sick"}, "sick", True, "ended because its training went wrong, killed by SIGKILL"),
        ({"code": 75, "stop_reason": "slow"}, "stopped", False, "stopped on request (slow), exit code 75"),
        ({"code": 71}, "out_of_memory", True, "ran out of the host's memory, exit code 71"),
        ({"code": 71, "contract": False}, "crash", True, "exit code 71"),
        ({"code": 1, "last_lines": ("MemoryError",)}, "out_of_memory", True, "ran out of the host's memory, exit code 1: MemoryError"),
        ({"code": 71, "last_lines": ("torch.OutOfMemoryError: CUDA out of memory.",)}, "cuda_out_of_memory", True, "ran out of the GPU's memory, exit code 71: torch.OutOfMemoryError: CUDA out of memory."),
        ({"signal": 6, "last_lines": ("terminate called after throwing an instance of 'std::bad_alloc'",)}, "out_of_memory", True, "ran out of the host's memory, killed by SIGABRT: terminate called after throwing an instance of 'std::bad_alloc'"),
        ({"signal": 11, "last_lines": ("MemoryError",)}, "crash", True, "killed by SIGSEGV: MemoryError"),
        ({"signal": 9, "oom_kill": "Killed process 7 (python)"}, "oom_killed", True, "killed by the kernel's OOM killer: Killed process 7 (python)"),
        ({"code": 1, "oom_kill": "it struck"}, "crash", True, "exit code 1"),
        ({"signal": 9, "stop_reason": "operator", "oom_kill": "it struck"}, "stopped", False, "stopped on request (operator), killed by SIGKILL"),
        ({"signal": 9}, "killed", True, "killed by SIGKILL, which extralife did not send"),
        ({"signal": 15}, "killed", True, "killed by SIGTERM, which extralife did not send"),
        ({"signal": 2}, "killed", True, "killed by SIGINT, which extralife did not send"),
        ({"code": 130}, "killed", True, "exit code 130: a process of it was killed by SIGINT, which extralife did not send"),
        ({"code": 139}, "crash", True, "exit code 139"),
        ({"signal": 11}, "crash", True, "killed by SIGSEGV"),
        ({"signal": 200}, "crash", True, "killed by signal 200"),
        ({"code": 1, "last_lines": ("x", "ValueError: bad shape", " ")}, "crash", True, "exit code 1: ValueError: bad shape"),
        ({}, "lost", True, "how it ended is unknown"),
        ({"fate": "it vanished"}, "lost", True, "it vanished"),
    ],
)  # fmt: skip
def test_the_table(seen, cause, counted, why):
    assert of(**seen) == Diagnosis(cause, counted, why)


def test_each_exit_code_of_the_contract_has_its_cause():
    of_code = {
        contract.EXIT_LEFT: "left", contract.EXIT_FENCED: "fenced", contract.EXIT_CONFIG: "config",
        contract.EXIT_DIVERGED: "diverged", contract.EXIT_NO_MEMORY: "out_of_memory",
    }  # fmt: skip
    for code, cause in of_code.items():
        assert of(code=code).cause == cause
    assert of(code=contract.EXIT_DONE).cause == "done"


def test_a_long_last_line_is_cut():
    assert len(of(code=1, last_lines=("x" * 10_000,)).why) < 300


@given(
    st.none() | st.integers(0, 255), st.none() | st.integers(1, 64), st.sampled_from([None, "stall", *ASKED]),
    st.booleans(), st.lists(st.text(), max_size=3).map(tuple),
)  # fmt: skip
def test_what_was_asked_for_is_never_held_against_it(code, signal, stop_reason, by_contract, last_lines):
    verdict = of(code=code, signal=signal, stop_reason=stop_reason, contract=by_contract, last_lines=last_lines)
    assert verdict.why
    assert verdict.cause
    if stop_reason in ASKED:
        assert (verdict.cause, verdict.counted) == ("stopped", False)
    if stop_reason == "stall":
        assert verdict.counted
    if stop_reason is None and verdict.cause not in {"done", "config", "no_gpu"}:  # the last waits for its GPU
        assert verdict.counted, "nothing that starts it again may be free: it would start at full speed for ever"
