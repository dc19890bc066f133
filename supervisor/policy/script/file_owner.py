"""Which program a file of figures belongs to, where several programs may write it: their directories overlap.

The rule. Each look shows which programs have the file open for writing. It may also show *growths*: the file grew, and
these programs wrote at least as many bytes meanwhile. First match wins:

1. one program has it open: it is that program's;
2. several have it open: it is nobody's, because its rows cannot be told apart;
3. nobody has it open: it stays whose it was;
4. a program that wrote too little in two growths is excluded. One that wrote enough in each of two more after all
   others were excluded: it is that program's. If a growth contradicts those before, or nobody wrote enough for it, an
   unknown process may write the file: it is judged anew, and four times as many growths are needed;
5. else it is unknown, and nobody's rows are read from it.

Worked example: a.csv and b.csv are opened, written and closed for each row. a.csv grows by 40 bytes. In those 10 ms A wrote
120 bytes (a line of its log, too), and B none. The same again: B is excluded, and after the next row, too, a.csv is A's.

Why not by name: `runs/1732695000/metrics.csv` names nobody. Unknown is not "mine": a neighbour's NaN would roll back a
healthy training.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from supervisor.records import Record, replace

_SURE: Final = 2
_MOST_DOUBTS: Final = 5


class Claim(Record):
    """What is known of one file. None: no growth says more.

    `suspects`: the programs that are not excluded. `spared`: those of them that wrote enough in each growth.
    """

    owner: str | None = None
    is_shared: bool = False
    suspects: frozenset[str] | None = None
    agreed: int = 0  # growths since only one suspect is left
    doubts: int = 0  # growths that contradicted
    spared: frozenset[str] | None = None

    @property
    def is_open_question(self) -> bool:
        return self.owner is None and not self.is_shared


def decide(before: Claim, open_by: AbstractSet[str], growths: Iterable[frozenset[str]] = ()) -> Claim:
    if open_by:
        return Claim(next(iter(open_by))) if len(open_by) == 1 else Claim(is_shared=True)
    claim = before
    for could in growths:
        if claim.is_open_question:
            claim = _after_growth(claim, could)
    return claim


def _after_growth(claim: Claim, could: frozenset[str]) -> Claim:
    if could and claim.spared is None:
        return replace(claim, spared=could)
    spared = claim.spared or frozenset()
    left = could and spared | (could if claim.suspects is None else claim.suspects & could)
    if not left:
        return Claim(doubts=min(claim.doubts + 1, _MOST_DOUBTS))
    agreed = claim.agreed + (len(left) == 1 and left <= could)
    is_sure = agreed >= _SURE * 4**claim.doubts
    owner = next(iter(left)) if is_sure else None
    return replace(claim, suspects=left, agreed=agreed, owner=owner, spared=spared & could)
