"""Whether an attempt has finished its work when its command ends. An exit code is evidence, not the verdict.

The rule for an end that extralife did not ask for, first match wins:

| observation | verdict |
|---|---|
| it hung at 99 % of its target or more (not that of a bar which began anew) | finished, and hung at its exit |
| it hung, and its main thread was in the interpreter's exit, without an exception before | finished, and hung at its exit |
| it died after it had resumed at its target, or there of `input()` without an answer | finished; the reason names it |
| it crashed at its target, with a checkpoint of that step, or without checkpoints and not in a save | the same |
| without a target: it died like the attempt before, made no step since, and says that it has finished | the same |
| a success code below 90 % of its target or at no known step, after an exception or `Killed` | a crash behind a pipe |
| a success code (`done_codes`) below 90 % of its target, and one more step was due | asked to leave from outside: a death |
| the same by a step that fell back twice, as one of an epoch does | finished; doubtful: `target_steps` does not fit it |
| the same for the third time without getting farther | finished by its own account, as after an early stop |
| a success code just after `extralifectl signal`, target unknown | asked to leave from outside: a death |
| any other success code | finished (an exception is told); with `restart = "always"` it [starts again](restart.py) |

The target is `target_steps`, or that of its beats or its output. The success code of a client's `run.leave()` is believed,
so is one after `early stopping` in the last lines.
A bar that began anew, or at whose end the output says `Epoch 3/10`, shows one trial of a search, or an epoch: below its end
it was in the middle of that. A kill at the end of a bar finishes nothing.

**What a clean end leaves running** may work on for `stop_grace_s`. Then it is one of two things:

| processes that remain after the grace | |
|---|---|
| new steps came after the command had left | its work, in the background: not ended, reported with the remedy |
| the command had shown steps | the rest of its work: ended and named |
| the command lived less than 1 s | its work, in the background |
| less than 30 s, and one of them is detached (nohup, setsid, tmux -d, a double fork) | its work, in the background |
| all others | the rest of its work: ended and named; doubtful if no step is known |

**A success code that the daemon finds only after a reboot** is believed if the reboot cannot have asked for it: by a worker
of the contract, which leaves with another code on request; at 90 % of the target; or if the box ended without a shutdown.

While work in the background runs, its attempt lives, until its last process ends; the exit code of that is the attempt's.

Worked example, a target of 100,000: somebody's SIGTERM arrives at step 34; the script saves and exits with 0. It starts
again, resumes at 34, and exits with 0 at 100,000: finished. Another script stops early at step 60,000, resumes there and
exits at once, twice: finished at the third end. `train.py | tee log` dies at step 29 of a CUDA error, and the shell exits
with 0, the code of `tee`: a crash, however often. A script that shows epochs 0 to 4 of 5, or each 20th step of 100 up to
80, is finished at its last one, unless an operator's signal came just before.

Why not believe 0 alone: most trainers exit with 0 on SIGTERM, so somebody's `pkill` would end a night at its first minute.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from supervisor.formats import span
from supervisor.policy.script.figures import Bar
from supervisor.policy.worker import out_of_memory
from supervisor.policy.worker.diagnosis import Diagnosis
from supervisor.records import Record, replace

_AT: Final = 0.99  # share of the target: nothing is left to train
_SHORT: Final = 0.9  # below this share, the missing steps are not only unprinted
_MOST_SHORT_ENDS: Final = 3
_ASKED: Final = "EOFError: EOF when reading a line"  # input("press Enter to exit")
_MOST_LAPS: Final = 2  # one may be a rollback of its own
_NO_WORK_S: Final = 1.0  # a command that leaves this soon has done nothing itself
_LAUNCH_S: Final = 30.0  # a launcher may load modules and activate an environment first
_LAST_GAP: Final = 0.01  # share of the target: one that counts from 0 shows 59 of 60 at its end
_SAYS_DONE: Final = re.compile(r"\b(?:finished|completed?|train_runtime)\b", re.IGNORECASE)
_EARLY: Final = re.compile(r"\bearly[ _-]?stopp(?:ed|ing)\b(?!.*(?:counter|patience|out of|[:=]))", re.IGNORECASE)
_EPOCH: Final = re.compile(r"\bepochs?\W{1,3}(\d+) ?(?:/|of) ?(\d+)", re.IGNORECASE)
_SAVES: Final = re.compile(r'File ".*", line \d+, in \w*(?:save|dump|write|checkpoint)', re.IGNORECASE)
_AT_EXIT: Final = re.compile(r"\b(?:_shutdown|_python_exit|_exit_function|_run_finalizers|_exitfunc)\b")
BACKGROUND, ENDED = "background", "ended"  # what remained after the grace of a clean end
LEAVE_SIGNALS: Final = frozenset({"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP"})  # a script may answer these by leaving
REMEDY: Final = "run it in the foreground: without &, nohup, setsid or tmux -d, and with exec in a shell script"


class Course(Record):
    """What is known about an attempt at its end. None: unknown."""

    steps: int | None = None
    target: int | None = None
    resumed_step: int | None = None
    short_ends: tuple[int, ...] = ()  # steps of earlier ends below the target, none beyond the first
    signal: str = ""  # that an operator sent just before the end
    ended: tuple[str, ...] = ()  # processes that had to be ended after its clean end ...
    grace_s: float = 0.0  # ... and this time
    decided: bool = False  # a client says that it leaves by itself before its target
    exception: str = ""  # the exception that its output ends with, or a shell's line of a killed command
    bar: Bar | None = None  # the progress bar that alone shows the target
    laps: int = 0  # how often its step fell to less than half: it counts the steps of an epoch
    apart: int = 0  # the least distance between its first three steps; 0: unknown
    untrained: str = ""  # without a step, the first attempt had begun with this checkpoint, which was there before
    saved: bool | None = None  # its newest checkpoint is of its last step; None: it has no checkpoints
    in_save: bool = False  # it died within a function that saves
    at_exit: bool = False  # while it hung, its main thread was in the interpreter's exit
    as_before: bool = False  # the attempt that wrote the newest checkpoint died in the same way, and this one made no step
    says_done: bool = False  # its last lines say that it has finished

    def _has(self, step: int | None, share: float) -> bool:
        return step is not None and self.target is not None and step >= share * self.target

    def _is_short(self, steps: int) -> bool:
        last = self.apart and not self.signal and self._has(steps + self.apart, 1.0)
        return not (self.decided or last or self._has(steps, 1.0 if self.bar and self.bar.is_part else _SHORT))

    def _had_no_work_left(self, cause: str) -> tuple[str, bool]:
        """(Why a death is no reason to train again, empty: it is one; whether somebody should look at it)."""
        if self._has(self.resumed_step, 1.0):
            return "where it had resumed", False
        if self.exception.startswith(_ASKED) and self._has(self.steps, 1.0):
            return "and asked for input", False
        crashed = cause == "crash" and self.saved is None and not self.in_save
        killed = cause == "killed" and self.bar is None  # a bar may be that of an epoch, and another start costs little
        if self._is_at_end() and (crashed or (self.saved and (killed or cause == "crash"))):
            return "and died at its exit", not self.saved or self.exception != ""
        as_before = cause == "crash" and self.as_before and self.says_done and self.target is None
        return "as before, without a step" if as_before else "", True

    def _is_at_end(self) -> bool:
        if self.steps is None or self.target is None or (self.bar is not None and self.bar.is_part):
            return False
        return self.steps + (self.apart if self.apart <= _LAST_GAP * self.target else 0) >= self.target

    def had_finished(self, *, by_contract: bool, sudden: bool) -> bool:
        """Whether a success code from before a reboot ends the program. `sudden`: no shutdown asked anything to leave."""
        sure = by_contract or sudden or self._has(self.steps, _SHORT)
        return sure and self.judge(Diagnosis("done", counted=False, why="finished")).cause == "done"

    def _over(self, verdict: Diagnosis, where: str) -> Diagnosis | None:
        """The verdict if it has finished although it hung or died; None: nothing shows that."""
        if verdict.cause == "stalled":
            part = self.bar is not None and self.bar.is_part
            at_end = self._has(self.steps, _AT) and not part
            if not at_end and (not self.at_exit or self.exception):
                return None
            why = f"finished{where}, but hung at its exit: {verdict.why}"
            return Diagnosis("done", counted=False, why=why, doubtful=self.bar is not None or not at_end)
        over, doubtful = self._had_no_work_left(verdict.cause)
        if not over or not verdict.counted or verdict.cause in {"diverged", "sick"}:
            return None
        return Diagnosis("done", counted=False, why=f"finished{where}, {over}: {verdict.why}", doubtful=doubtful)

    def judge(self, verdict: Diagnosis) -> Diagnosis:
        """The verdict on the end, given the one from its exit status (`diagnosis.py`)."""
        where = "" if self.steps is None or self.target is None else f" at step {self.steps:,} of {self.target:,}"
        if (over := self._over(verdict, where)) is not None:
            return over
        if verdict.cause != "done":
            return verdict
        how = verdict.why.removeprefix("finished, ")
        piped = f", but its output ends with an exception (behind a pipe, set -o pipefail): {self.exception[:200]}"
        if self.target is not None and self.exception and not (self.decided or self._has(self.steps, _SHORT)):
            cause = out_of_memory.of_last_lines((self.exception,)) or "crash"
            return Diagnosis(cause, counted=True, why=f"{how}{where}{piped}")
        if where and self.steps is not None and self._is_short(self.steps):
            if self.laps >= _MOST_LAPS and self.bar is None and not self.signal:
                why = f"{verdict.why}{where}, a step that begins anew in each epoch, so target_steps does not fit it"
                return replace(verdict, why=why, doubtful=True)
            if len(short_ends(self.short_ends, self.steps)) < _MOST_SHORT_ENDS:
                by = self.signal or "or an early stop"
                return Diagnosis("left", counted=True, why=f"asked to leave from outside ({by}): {how}{where}")
            verdict = replace(verdict, why=f"{verdict.why}{where}: it has ended there {_MOST_SHORT_ENDS} times by itself")
        elif self.signal and not where:
            return Diagnosis("left", counted=True, why=f"asked to leave from outside ({self.signal}): {how}")
        if self.ended:
            why = f"{how}{where}; ended after {span(self.grace_s)}: {', '.join(self.ended)}"
            unseen = self.steps is None  # nothing shows that the command has trained
            return replace(verdict, why=f"{why}; if that was the training, {REMEDY}" if unseen else why, doubtful=unseen)
        if self.untrained and self.target is None:
            why = f"{verdict.why}; nothing was trained: it began with {self.untrained}, from before its first start"
            return replace(verdict, why=f"{why} (is that of this training?)", doubtful=True)
        if self.steps is not None and (self.decided or self.target is None):
            more = ", by its own decision" if self.decided else "; its target is not known (target_steps)"
            verdict = replace(verdict, why=f"{verdict.why}{where or f' at step {self.steps:,}'}{more}")
        if self.exception and not self.decided and self.target is None:
            return replace(verdict, why=f"{verdict.why}{piped}", doubtful=True)
        return verdict


def says_done(last_lines: Iterable[str]) -> bool:
    """Whether the end of an output says that the work is finished. Example: `Training finished, model saved`."""
    return any(_SAYS_DONE.search(line) for line in last_lines)


def says_early_stop(last_lines: Iterable[str]) -> bool:
    """Whether the end of an output says that the script has stopped early. Example: `Epoch 00012: early stopping`."""
    return any(_EARLY.search(line) for line in last_lines)


def has_more_epochs(last_lines: Iterable[str]) -> bool:
    """Whether the newest epoch in the output is not the last one. Example: `Epoch 3/10: 100%|####| 500/500`."""
    found = [match for line in last_lines if (match := _EPOCH.search(line))]
    return found != [] and int(found[-1][1]) < int(found[-1][2])


def in_save(last_lines: Iterable[str]) -> bool:
    return any(_SAVES.search(line) for line in last_lines)


def is_at_exit(evidence: Mapping[str, str]) -> bool:
    """Whether a stack of its main thread begins in the interpreter's exit, and no longer in the script.

    Both faulthandler and py-spy write the thread of the newest call first. Only the main thread joins the others.
    """
    stacks = re.split(r"\n\s*\n|\n(?=Thread )", evidence.get("stacks", "") + "\n\n" + evidence.get("stacks_by_py_spy", ""))
    return any(_AT_EXIT.search(each) and "<module>" not in each for each in stacks)


def short_ends(earlier: tuple[int, ...], step: int) -> tuple[int, ...]:
    """The steps of ends below the target, with one more: an end beyond the earlier ones begins a new row."""
    return (*earlier, step) if earlier and step <= earlier[0] else (step,)


def is_background(*, lived_s: float, worked: bool, works: bool, detached: bool) -> bool:
    """Whether the processes that remain after a clean end are the program's work, and not the rest of it.

    `lived_s`: how long the command lived; `worked`: it had shown steps; `works`: new steps came after it had left.
    """
    if works or worked:
        return works
    return lived_s < (_LAUNCH_S if detached else _NO_WORK_S)
