"""When a checkpoint that a script wrote itself is set aside because starts from it die, and when it is put back.

Many scripts load the newest file without checking it. If that file is torn, or lacks a shard, each start dies of it. But
most deaths have another cause (a missing mount, a failed upload), and to set a checkpoint aside for these costs what it had
saved. The rule:

1. The suspect is the newest checkpoint when the attempt began, torn or not. Once the attempt has written a checkpoint there
   is no suspect.
2. A crash or a stall counts against the suspect if the attempt made no step (`BLAMED`). Nobody's SIGKILL, no lack of memory
   and no reboot counts.
3. After `poison_deaths` of them the suspect is set aside (renamed) if something shows that it is the cause: it is torn, the
   last exception names it or a function that loads, and no other file, or an end may have cut it (`newest_whole.py`) and
   there is no exception, or one about data that end too soon. If the exception names one that is torn or may be cut, one
   death suffices. Without a sign it stays; without an exception it is tried in slow retry, if an older one is whole.
4. One that is not torn is never set aside if the attempt that wrote it died in the same way: that one had not loaded it.
5. One that may be whole is set aside on trial. If the program dies without it too, it is put back. After two trials
   without effect (`intervention.py`) no other one is tried, and a person gets an alert.
6. The trial is over once the program writes a checkpoint or is healthy: what was set aside stays so.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from typing import Final

from supervisor.policy.worker import reason_line
from supervisor.policy.worker.intervention import Intervention, may_repeat
from supervisor.records import Record, replace

BLAMED: Final = frozenset({"crash", "stalled"})  # causes of an end (`diagnosis.py`) that may lie in a checkpoint
ASIDE: Final = "aside"  # the kind of intervention
_BEGINS: Final = re.compile(r"Traceback \(most recent call last\)|Fatal Python error")
_FRAME: Final = re.compile(r'File "(?!<frozen)(.*)", line \d+,? in (\w+)')
_ELSEWHERE: Final = re.compile(r"/(?:json|yaml|tomllib|ctypes|pandas)/")  # they load settings, libraries and tables
_FILE: Final = re.compile(r"""/|\.so\b|^(?!(?:Key|Attribute)Error).*(['"])[^'"]*\.\w+\1""")  # 'fc.weight' is a key
_ENDS_EARLY: Final = re.compile(
    "(?i)EOFError: Ran|UnpicklingError|BadZip|zlib.error|struct.error|truncated|unexpected end|corrupt"
)
_LOADS: Final = frozenset("load loads restore resume deserialize unpickle pretrained read".split())
_LOADS_ELSE: Final = frozenset("data dataset datasets config env module library".split())
_NUMBERS: Final = re.compile(r"(?<!\d)(?<!exit code )\d+")


class Suspicion(Record):
    """The checkpoint that may be the cause of deaths. `path` is empty once the attempt has written a newer one."""

    path: str = ""
    step: int | None = None  # of a worker's checkpoint from which it has resumed: that has no path here, and its digests fit
    torn: bool = False
    cut: bool = False  # an end may have cut it, and its format does not show that
    spare: bool = False  # an older one is whole
    deaths: int = 0  # in a row, without a step
    born: str = ""  # how the attempt that wrote it died
    innocent: bool = False  # an attempt with it has died in the same way
    condemned: tuple[str, ...] = ()  # to set aside before the next start
    tried: tuple[str, ...] = ()  # those that are set aside on trial
    put_back: tuple[str, ...] = ()  # to put back before the next start

    def begins(self, path: str, *, torn: bool, cut: bool, spare: bool, left: tuple[str, ...]) -> Suspicion:
        """An attempt begins, and this is the newest checkpoint; `left` could not be set aside."""
        same = path == self.path
        return replace(
            self, path=path, step=None, torn=torn, cut=cut, spare=spare, deaths=self.deaths if same else 0,
            innocent=same and self.innocent, condemned=left, put_back=(),
        )  # fmt: skip

    def resumes(self, step: int | None) -> Suspicion:
        """A worker resumes from its checkpoint of this step; None: it begins from nothing, or from one to be set aside."""
        return self if step == self.step else replace(self, step=step, deaths=0)

    def wrote(self) -> Suspicion:
        """The attempt has written a checkpoint: nothing is suspected, and a trial is over."""
        return Suspicion(condemned=self.condemned, put_back=self.put_back)

    def dies(self, how: str, *, trained: bool) -> Suspicion:
        """The attempt dies of a crash or a stall. `how` is the sentence about its end."""
        if not self.path and self.step is None and not self.tried:
            return replace(self, born=_kind(how))
        return replace(self, deaths=self.deaths + (not trained), innocent=self.innocent or self.is_as_before(how))

    def is_as_before(self, how: str) -> bool:
        """Whether the attempt that wrote the checkpoint died in this way too, so that the checkpoint is not the cause."""
        return self.path != "" and self.born == _kind(how)

    def condemn(self, path: str, *, on_trial: bool) -> Suspicion:
        own = (path,) if path else ()
        tried = (*self.tried, *own) if on_trial else self.tried
        return replace(self, condemned=(*self.condemned, *own), tried=tried, deaths=0)

    def with_tried_back(self) -> Suspicion:
        """With the checkpoints that are set aside on trial to be put back before the next start."""
        condemned = tuple(path for path in self.condemned if path not in self.tried)
        return replace(self, condemned=condemned, put_back=(*self.put_back, *self.tried), tried=(), deaths=0)


def _kind(how: str) -> str:
    """The sentence about an end without what differs from one end to the next: numbers, and what was left behind."""
    return " ".join(_NUMBERS.sub("0", how.partition("; ")[0]).split())  # a shell pads the process id


class Verdict(enum.Enum):
    """What to do with a suspect before the next start."""

    KEEP = 0
    SET_ASIDE = 1
    PUT_BACK = 2  # those that were tried before it, if any; an alert is sent


def judge(
    most_deaths: int, suspicion: Suspicion, done: tuple[Intervention, ...], *, named: bool | None, slow: bool
) -> Verdict:
    """The verdict after a death. `named`: as `names` returns it; `slow`: the program is in slow retry."""
    may, spare = may_repeat(done, ASIDE), suspicion.spare
    innocent = suspicion.innocent and not suspicion.torn  # a launcher may have loaded it within the attempt that wrote it
    idle = not suspicion.tried and (innocent or not suspicion.path or not may)
    needed = 1 if named and (suspicion.torn or suspicion.cut) else most_deaths
    if suspicion.step is not None:
        return Verdict.SET_ASIDE if suspicion.deaths >= most_deaths else Verdict.KEEP
    if idle or suspicion.deaths < needed:
        return Verdict.KEEP
    sign = suspicion.torn or named or (suspicion.cut and named is None)
    loses_nothing = spare or suspicion.torn or suspicion.cut  # to begin from nothing may be worse than to wait for a person
    proven = suspicion.path != "" and not innocent and sign and loses_nothing
    if suspicion.tried:
        return Verdict.SET_ASIDE if proven and may else Verdict.PUT_BACK
    if proven or (slow and spare and named is None):
        return Verdict.SET_ASIDE
    return Verdict.KEEP if spare else Verdict.PUT_BACK


def names(path: str, last_lines: Iterable[str], *, cut: bool = False) -> bool | None:
    """Whether the exception at the end of an output names a checkpoint, or a function that loads one, such as `load_model`.

    Of one that may be `cut`, also an exception about data that end too soon. None: there is no exception.
    Example: `resumed from ck/m_40.pt` before the traceback says nothing about m_40.pt.
    """
    name, lines = path.rpartition("/")[2], tuple(last_lines)
    is_of_exception = (_BEGINS.search(line) or _FRAME.search(line) or reason_line.exceptions((line,)) for line in lines)
    at = next((at for at, is_one in enumerate(is_of_exception) if is_one), None)
    if at is None:
        return None
    said = next((each for _, each in reversed(reason_line.exceptions(lines))), "")
    if _FILE.search(said) and name not in said:  # another file
        return False
    frames = [frame for line in lines[at:] if (frame := _FRAME.search(line))]
    words = [set(frame[2].lower().split("_")) for frame in frames if not _ELSEWHERE.search(frame[1])]
    loads = any(not each.isdisjoint(_LOADS) and each.isdisjoint(_LOADS_ELSE) for each in words)
    ends_early = cut and bool(_ENDS_EARLY.search(said)) and all(each.isdisjoint(_LOADS_ELSE) for each in words)
    return loads or ends_early or any(name and name in line for line in lines[at:])
