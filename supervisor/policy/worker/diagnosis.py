"""Why an attempt ended: the cause, from its exit status and from the requests that extralife sent to it.

The rule, first match wins:

| observation | cause | counts against the program |
|---|---|---|
| extralife had asked it to exit (operator, shutdown, config, slot) | `stopped` | no |
| extralife ended it because of a stall | `stalled` | yes |
| extralife ended it because it had diverged | `diverged` | yes |
| extralife ended it because it was [sick](health.py) | `sick` | yes |
| exit code in the program's `done_codes` | `done` | no |
| code 78 (EX_CONFIG) from a program of the contract | `config` | no: it can never work, so it is given up |
| code 77 from a program of the contract | `fenced` | yes: another attempt owned the directory |
| code 75 from a program of the contract, unasked | `left` | yes: someone else's SIGTERM, or it exits like this every time |
| code 69 from a program of the contract | `no_gpu` | no: it [waits for its GPU](../box/lost_gpu.py) |
| code 65 from a program of the contract | `diverged` | yes: [rolled back](divergence.py) |
| it ran out of memory | `out_of_memory`, `cuda_out_of_memory`, `oom_killed` | yes: [a smaller batch](out_of_memory.py) |
| a signal that somebody sends (`SENT`), or a shell's code for it, 128 + n | `killed` | yes |
| any other signal | `crash` | yes |
| any other code | `crash` | yes |
| no code, no signal | `lost` | yes |

Worked example: signal 9 that extralife did not send -> `killed`, "killed by SIGKILL, which extralife did not send". Code
1 with a last exception "ValueError: bad shape" -> `crash`, "exit code 1: ValueError: bad shape" ([the
line](reason_line.py)).

Why this order: a worker that was asked to exit and then died of our SIGKILL was *stopped*, not *killed*; its exit record
alone cannot show the difference.
"""

from __future__ import annotations

import signal as signals
from typing import Final

from supervisor.policy.worker import out_of_memory, reason_line
from supervisor.records import Record
from workers.contract import EXIT_CONFIG, EXIT_DIVERGED, EXIT_FENCED, EXIT_LEFT, EXIT_NO_GPU, EXIT_NO_MEMORY

NO_GPU: Final = "no_gpu"
SENT: Final = frozenset({signals.SIGKILL, signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT})
_SHELL: Final = 128  # a shell adds this to the signal that killed its command
SAVED: Final = (0, EXIT_LEFT)  # exit codes of a worker of the contract that has saved


class Diagnosis(Record):
    """`counted`: whether the restart policy counts it as a death; `doubtful`: whether somebody should look at it."""

    cause: str
    counted: bool
    why: str
    doubtful: bool = False


def diagnose(
    *, code: int | None, signal: int | None, stop_reason: str | None, stall: str | None, done_codes: tuple[int, ...],
    contract: bool, last_lines: tuple[str, ...] = (), fate: str = "", oom_kill: str = "",
) -> Diagnosis:  # fmt: skip
    """Diagnose one end. `stop_reason`: why extralife asked it to exit (None: it did not).

    `contract`: its exit codes follow workers/contract.py. `fate` is a clause for an end without a code or a signal.
    `oom_kill` is the evidence for the kernel's OOM killer if the signal was SIGKILL (`out_of_memory.oom_kill`).
    """
    how = _how(code, signal, fate)
    if stop_reason == "diverged":
        return Diagnosis("diverged", counted=True, why=f"ended because its losses were no longer finite, {how}")
    if stop_reason == "sick":
        return Diagnosis("sick", counted=True, why=f"ended because its training went wrong, {how}")
    if stop_reason is not None and stop_reason != "stall":
        return Diagnosis("stopped", counted=False, why=f"stopped on request ({stop_reason}), {how}")
    if stop_reason == "stall":
        return Diagnosis("stalled", counted=True, why=f"ended after a stall ({stall or 'unknown'}), {how}")
    if code is not None and code in done_codes:
        return Diagnosis("done", counted=False, why=f"finished, {how}")
    if contract and code in _CONTRACT:
        cause, counted, text = _CONTRACT[code]
        return Diagnosis(cause, counted, _with_last(text, last_lines))
    out = _out_of_memory(code, signal, last_lines, contract=contract, oom_kill=oom_kill)
    if out is not None:
        return out
    if signal in SENT:
        return Diagnosis("killed", counted=True, why=f"{how}, which extralife did not send")
    if code is not None and code - _SHELL in SENT:
        why = f"{how}: a process of it was killed by {signal_name(code - _SHELL)}, which extralife did not send"
        return Diagnosis("killed", counted=True, why=why)
    if signal is not None or code is not None:
        return Diagnosis("crash", counted=True, why=_with_last(how, last_lines))
    return Diagnosis("lost", counted=True, why=how)


_CONTRACT: Final[dict[int | None, tuple[str, bool, str]]] = {
    EXIT_CONFIG: ("config", False, "the program reports a configuration that cannot work"),
    EXIT_DIVERGED: ("diverged", True, "its losses were no longer finite"),
    EXIT_FENCED: ("fenced", True, "another attempt owned its run directory"),
    EXIT_NO_GPU: (NO_GPU, False, f"exit code {EXIT_NO_GPU}"),
    EXIT_LEFT: ("left", True, "it saved and exited on someone else's request"),
}


def _out_of_memory(
    code: int | None, signal: int | None, last_lines: tuple[str, ...], *, contract: bool, oom_kill: str
) -> Diagnosis | None:
    """The verdict of the rule in `out_of_memory.py`; None when memory was not the cause."""
    if signal == signals.SIGKILL and oom_kill:
        return Diagnosis(out_of_memory.OOM_KILLED, counted=True, why=f"killed by the kernel's OOM killer: {oom_kill}")
    lines = (*last_lines, reason_line.find(last_lines))
    cause = out_of_memory.of_last_lines(lines) if signal == signals.SIGABRT or code is not None else None
    if cause is None and contract and code == EXIT_NO_MEMORY:
        cause = out_of_memory.OUT_OF_MEMORY
    if cause is None:
        return None
    where = "the GPU's" if cause == out_of_memory.CUDA_OUT_OF_MEMORY else "the host's"
    return Diagnosis(cause, counted=True, why=_with_last(f"ran out of {where} memory, {_how(code, signal, '')}", last_lines))


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; `signal 200` for a number without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _how(code: int | None, signal: int | None, fate: str) -> str:
    if signal is not None:
        return f"killed by {signal_name(signal)}"
    if code is not None:
        return f"exit code {code}"
    return fate or "how it ended is unknown"


def _with_last(text: str, last_lines: tuple[str, ...]) -> str:
    line = reason_line.find(last_lines)
    return f"{text}: {line[:200]}" if line else text
