"""What a script's own output says about its training: the numbers in its log, JSON lines, tables and event files.

The rule. A source gives rows, oldest first: numbers by name. A row changes the known figures like this:

| name | meaning |
|---|---|
| `step` | the newest step. A smaller one counts too: the run was rewound. In event files the furthest step counts |
| `return`, `reward` | the mean return, as the script reports it |
| `episode_return` | the return of one finished episode: the mean of the newest 100 is shown, and episodes are counted |
| `loss` | not finite: a bad update (`divergence.py`). Another text, such as `-`, is no loss |
| `target` | the step at which the program is done |
| `steps_per_s` | steps a second. Where no source reports it, the pace of the newest minute, from the third step on |
| `resumed_step` | the step of the checkpoint that the attempt resumed from: as good as a report |
| any other | a figure of that name; at most 32 of them |

`OTHER_NAMES` lists the names that CleanRL, Stable-Baselines3, Lightning and Hugging Face use for these figures. Steps come
from one source: the log if it gives any, else the JSON lines, else the CSV files, else the event files.

A row is a *sign of progress* if it has another step than the row before, or if no source gives steps at all. Example:
`step=500` is one, `step=500` again is none, `step=480` is one (the run was rewound), `loss=0.3` is one in a log without
steps.

A row of the log with a step and a target is a *progress bar*, known by its target. Scripts draw several. The steps of one
bar count, at first those of the first one. Another takes its place

* after it has reached its target, once the other has been drawn for longer than it;
* before that, if it has not been drawn for half an hour.

Example: `Map` runs to 25,000/25,000 in 4 s, then the training to 500/500 in an hour: its steps count from its fifth second
on.

`first_steps` are the first three different steps of this attempt (`resume_step.py` judges them). They are known only if the
output was read from its beginning and the source reports steps; those of a bar once it has been drawn for ten seconds.
Unknown is never zero: a figure that no row reports is None. Impossible values (a negative step, a step beyond 2**63) are
ignored.

Why not the mean of all episodes: a return of an hour ago does not describe the present policy.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from supervisor.keys import script_key
from supervisor.policy.script.resume_step import FIRSTS, beginning
from supervisor.policy.worker.divergence import Losses
from supervisor.records import Record

STEP: Final = "step"
EPISODE_RETURN: Final = "episode_return"
LOSS: Final = "loss"
TARGET: Final = "target"
RATE: Final = "steps_per_s"
RESUMED: Final = "resumed_step"
EPISODES: Final = "episodes"
_MEAN, _BEST, _FIRST = "mean_return", "best_return", "first_return"

# Ranks of the sources: the steps of the source with the lowest rank count.
LOG, JSON_LINES, CSV, EVENTS = range(4)

OTHER_NAMES: Final = {
    **dict.fromkeys(("steps", "global_step", "env_steps", "timesteps", "total_timesteps", "num_timesteps"), STEP),
    **dict.fromkeys(("return", "reward", "mean_reward", "ep_rew_mean", "eval_reward"), _MEAN),
    **dict.fromkeys(("episodic_return", "episode_reward", "ep_return"), EPISODE_RETURN),
    **dict.fromkeys(("total", "max_steps", "total_steps"), TARGET),
    **dict.fromkeys(("fps", "sps", "SPS", "steps_per_sec"), RATE),
    "train_loss": LOSS,
}
# Figures that the daemon measures itself, or that only a checkpoint can prove: a log cannot set them.
OWN: Final = frozenset({
    "nan_count", "ckpt_step", "ckpt_ns", "ckpt_stall_us", "ckpt_write_ms", "ckpt_count", "ckpt_bad_count", "batch_size",
    "num_envs", "rss_bytes", "cuda_bytes",
})  # fmt: skip
COUNTS: Final = frozenset({"frames", "updates", EPISODES, RESUMED, TARGET})
SEED: Final = "{seed}"  # in a pattern; the other placeholders have the same value at each start
LONGEST_NAME: Final = 64
MOST_OTHERS: Final = 32
_AROUND: Final = " \t[](){},;%'\""
_THOUSANDS: Final = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_PLAIN: Final = re.compile(r"[+-]?\d[\d_]*(\.\d*)?")
_REST: Final = re.compile(r"(,\d{3})*(?!,?\d)[\d_]*(\.\d+)?([eE][+-]?\d+)?[kKMGBT]?(?![\w.])")
_UNIT: Final = re.compile(r"[kKMGBT](?![\w.])")
_UNITS: Final = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_GAMES: Final = 100
_PACE_S: Final = 60.0
_END: Final = 0.99  # share of a target that is its end: a script may show its last step before it
_ABANDONED_S: Final = 1800.0
_DRAWN_S: Final = 10.0
_BARS: Final = 4
_MOST: Final = 2.0**63
_TRIALS: Final = frozenset({"eval", "test", "val", "valid", "validation"})
A_PATTERN: Final = 'a pattern inside the directory, such as "runs/**/*.jsonl"'


class Sources(Record):
    """The sources of a program's figures, from the configuration; empty: none."""

    log_regex: tuple[str, ...] = script_key(
        (), "named groups of it are [figures](any-script.md#figures-from-what-it-already-writes) in its log",
        unset="none", form=r"a regular expression or a list of them, such as 'step=(?P<step>\d+)'",
    )  # fmt: skip
    json_lines: str = script_key(
        "", 'files of JSON lines with its figures, such as `"runs/*/metrics.jsonl"`', unset="none", form=A_PATTERN
    )
    csv_glob: str = script_key(
        "", 'CSV files with its figures: a line of names, then lines of numbers: `"logs/progress.csv"`',
        unset="none", form=A_PATTERN,
    )  # fmt: skip
    events_glob: str = script_key(
        "", 'TensorBoard event files with its figures, such as `"runs/**/events.out.tfevents.*"`',
        unset="none", form=A_PATTERN,
    )  # fmt: skip
    names: tuple[tuple[str, str], ...] = script_key(  # (figure, key of a JSON line, column, or tag of an event file)
        (), 'what keys and tags mean, where their names do not say it: `{ return = "eval/score" }`',
        unset="by their names", form='a table, such as { return = "eval/score" }', name="figures",
    )  # fmt: skip
    target_steps: int | None = script_key(
        None,
        "the step at which it ends itself, for STEPS, ETA, cost and [whether it is done](faults.md#when-is-a-script-done)",
        unset="not known",
    )  # fmt: skip
    begin_anew: bool | None = script_key(
        None, "whether it counts its steps from 0 again after it has loaded a checkpoint",
        unset="learned", name="steps_begin_anew",
    )  # fmt: skip

    @property
    def globs(self) -> dict[str, str]:
        given = {"json": self.json_lines, "csv": self.csv_glob, "events": self.events_glob}
        return {kind: pattern for kind, pattern in given.items() if pattern}

    def at_seed(self, seed: str) -> Sources:
        at = {key: getattr(self, key).replace(SEED, seed) for key in ("json_lines", "csv_glob", "events_glob")}
        return replace(self, **at)

    @property
    def read(self) -> bool:
        return bool(self.log_regex or self.globs)


class FigureRow(Record):
    """Numbers that the source gave together, by figure.

    `rank` is the source. `at_s`: when, in journal time. `whole`: the source's output of this attempt was read completely up
    to here.
    """

    rank: int
    at_s: float
    values: Mapping[str, float]
    whole: bool = True


class Bar(Record):
    """A progress bar. `drawn_s`: the time between rows of this bar without a row of another bar between them."""

    target: int
    first_steps: tuple[int, ...]
    step: int
    at_s: float
    drawn_s: float = 0.0
    is_part: bool = False  # it began again after it was full: it shows an epoch, not the training

    @property
    def is_full(self) -> bool:
        return self.step >= self.target


class Fall(Record):
    """The steps fell back from `furthest`; `firsts` are the first different ones since then, at most three."""

    furthest: int
    firsts: tuple[int, ...]


class Figures(Record):
    """The figures from an attempt's own output so far. None is "not known"."""

    steps: int | None = None
    first_steps: tuple[int, ...] = ()
    target: int | None = None
    episodes: int | None = None
    nan_count: int | None = None
    moved_at_s: float | None = None  # time of the newest sign of progress
    moves: int = 0  # number of signs of progress
    values: Mapping[str, float] = field(default_factory=dict)
    losses: Losses = field(default_factory=Losses)
    rank: int | None = None  # of the source of its steps
    laps: int = 0  # how often they fell to less than half: they begin anew in each epoch
    fall: Fall | None = None  # the newest one
    given_rate: float | None = None  # steps a second, as the script reports
    returns: tuple[float, ...] = ()  # of the newest episodes
    marks: tuple[tuple[float, int], ...] = ()  # (time, step) of the newest minute
    bar: Bar | None = None  # the one whose steps count
    other_bars: tuple[Bar, ...] = ()  # the newest others that are not full: evaluations come between training rows
    drawn: int | None = None  # target of the bar that was drawn last

    def is_at(self, target: int | None) -> bool:
        """Whether the steps have come to the target, or to the one that the output itself shows."""
        target = target or (self.target if self.bar is None else self.bar.target)
        return self.steps is not None and target is not None and self.steps >= _END * target

    @property
    def newest_firsts(self) -> tuple[int, ...]:
        """The first different steps, at most three, since the steps began or fell; empty: not known."""
        if self.fall is not None:
            return self.fall.firsts
        return self.first_steps if self.bar is None or self.rank != LOG else self.bar.first_steps

    @property
    def rate(self) -> float | None:
        """Steps a second: as the script reports, else the pace of the newest minute."""
        if self.given_rate is not None:
            return self.given_rate
        if len(self.marks) < 2 or 0 < len(self.newest_firsts) < FIRSTS:
            return None
        (from_s, low), (until_s, high) = self.marks[0], self.marks[-1]
        return (high - low) / (until_s - from_s)


def figure_of(key: str) -> str | None:
    """The figure that a key of a file means; None: the key cannot be a figure.

    Example: `rollout/ep_rew_mean` is the mean return, `losses/value_loss` a figure of that name. `eval/loss` is not the
    loss of the training.
    """
    if not key or len(key) > LONGEST_NAME or not key.isprintable() or key in OWN or key.startswith("share_"):
        return None
    first, _, last = key.rpartition("/")
    plain = first.partition("/")[0].lower() in _TRIALS
    known = key if plain else last
    if known in OTHER_NAMES:
        return OTHER_NAMES[known]
    return known if known in {LOSS, STEP, EPISODE_RETURN, _MEAN} else key


def number(text: str) -> float | None:
    """A number as scripts print it; None: no number. Example: `1,024` is 1024, `1.5k` 1500, `[21.]` 21, `nan` NaN."""
    plain = text.strip(_AROUND)
    unit = _UNITS.get(plain[-1:], 1.0)
    if unit != 1.0:
        plain = plain[:-1]
    if _THOUSANDS.fullmatch(plain):
        plain = plain.replace(",", "")
    try:
        return float(plain) * unit
    except ValueError:
        return None


def matched(match: re.Match[str], name: str) -> str | None:
    r"""The text of a group, with the rest of its number where the expression ends within it; None: the group is not in it.

    Example: `step=(?P<step>\d+)` finds `1` in `step=1,500` and in `step=1.5k`, and the number is 1,500. A count also has a
    unit that the expression names behind it: in `14.9k/15.0k`, `(?P<step>[\d.]+)k?/` finds 14,900.
    """
    text, ends, figure = match[name], match.end(name) == match.end(), OTHER_NAMES.get(name, name)
    if text is None or not (ends or figure == STEP or figure in COUNTS) or not _PLAIN.fullmatch(text):
        return text
    rest = (_REST if ends else _UNIT).match(match.string, match.end(name))
    return text + rest[0] if rest and number(text + rest[0]) is not None else text


def after(before: Figures, rows: Iterable[FigureRow]) -> Figures:
    made = _Making(before)
    for row in rows:
        made.take(row)
    return made.done()


def _with_first(first_steps: tuple[int, ...], step: int) -> tuple[int, ...]:
    """The first different steps, with one more if it belongs to them. Without the first one, none is known."""
    return (*first_steps, step) if 0 < len(first_steps) < FIRSTS and step != first_steps[-1] else first_steps


def _fallen(now: Figures, step: int) -> Fall | None:
    """The newest fall of the steps once they have come to `step`. One while another is young is part of that."""
    fall, steps = now.fall, now.steps or 0
    if step < steps:
        young = fall is not None and len(fall.firsts) < FIRSTS
        return Fall(max(steps, fall.furthest) if fall is not None and young else steps, (step,))
    return fall if fall is None else replace(fall, firsts=_with_first(fall.firsts, step))


class _Making:
    """The mutable state of `after`: one look may bring two thousand rows."""

    def __init__(self, before: Figures) -> None:
        self._before = before
        self._values = dict(before.values)
        self._others = sum(name not in _FRAMED for name in self._values)
        self._returns = deque(before.returns, _GAMES)
        self._marks = deque(before.marks)
        self._now = before
        self._moves = 0
        self._moved_at_s = before.moved_at_s

    def take(self, row: FigureRow) -> None:
        moved = bool(row.values) and self._now.rank is None
        values = row.values
        is_bar = row.rank == LOG and all(_fits(name, values.get(name, -1.0)) for name in (STEP, TARGET))
        if is_bar and not self._draw(row):
            values, moved = {name: value for name, value in values.items() if name not in (STEP, TARGET)}, True
        for name, value in values.items():
            if name == STEP:
                moved = _fits(STEP, value) and self._step(row, int(value))
            else:
                self._figure(name, value, row.at_s)
        if self._now.bar is not None and self._now.rank == LOG:
            known = self._now.bar.first_steps if self._now.bar.drawn_s >= _DRAWN_S else ()
            self._now = replace(self._now, first_steps=known)
        if moved:
            self._moves += 1
            self._moved_at_s = row.at_s

    def _draw(self, row: FigureRow) -> bool:
        """Take a row of a progress bar; returns whether its steps count."""
        step, target = int(row.values[STEP]), int(row.values[TARGET])
        bar, others, new = self._now.bar, self._now.other_bars, Bar(target, (step,) if row.whole else (), step, row.at_s)
        known = next((each for each in (bar, *others) if each is not None and each.target == target), new)
        added_s = max(0.0, row.at_s - known.at_s) if self._now.drawn == target else 0.0
        firsts = _with_first(known.first_steps, step)
        seen = replace(
            known, first_steps=firsts, step=step, at_s=row.at_s, drawn_s=known.drawn_s + added_s,
            is_part=known.is_part or known.step - step > target / 2,
        )  # fmt: skip
        if bar is None or target == bar.target:
            self._now = replace(self._now, bar=seen, drawn=target)
            return True
        takes_over = seen.drawn_s > bar.drawn_s if bar.is_full else row.at_s - bar.at_s > _ABANDONED_S
        if not takes_over:
            kept = [each for each in (*others, seen) if each.target != target or (each is seen and not seen.is_full)]
            self._now = replace(self._now, other_bars=tuple(kept[-_BARS:]), drawn=target)
            return False
        self._marks.clear()
        self._now = replace(self._now, bar=seen, other_bars=(), drawn=target)
        return True

    def _step(self, row: FigureRow, step: int) -> bool:
        """Take a step; returns whether it is a sign of progress."""
        rank = self._now.rank
        if rank is None or row.rank < rank:
            self._now = replace(self._now, steps=step, rank=row.rank, first_steps=(step,) if row.whole else ())
            self._marks.clear()
        elif row.rank > rank or step == self._now.steps:
            return False
        elif row.rank != EVENTS or step > (self._now.steps or 0):
            laps = self._now.laps + (step < (self._now.steps or 0) / 2)
            fall, firsts = _fallen(self._now, step), _with_first(self._now.first_steps, step)
            self._now = replace(self._now, steps=step, first_steps=firsts, laps=laps, fall=fall)
        else:  # a curve over another axis: it does not move the step
            return True
        at_s = row.at_s
        if self._marks and (step < self._marks[-1][1] or at_s < self._marks[-1][0]):
            self._marks.clear()
        if self._marks and at_s == self._marks[-1][0]:
            self._marks.pop()
        self._marks.append((at_s, step))
        while len(self._marks) > 2 and self._marks[1][0] <= at_s - _PACE_S:
            self._marks.popleft()
        firsts = self._now.newest_firsts
        if len(firsts) == FIRSTS and firsts[-1] == step:  # a bar shows 0, then the step of its checkpoint: that is no pace
            begin, _ = beginning(firsts)
            self._marks = deque(mark for mark in self._marks if mark[1] >= (begin or 0))
        return True

    def _figure(self, name: str, value: float, at_s: float) -> None:
        if name == LOSS:
            bad = not math.isfinite(value)
            step = None if self._now.laps else self._now.steps  # one of an epoch says nothing about a checkpoint
            losses = self._now.losses.after(finite=not bad, bad=bad, at_s=at_s, step=step)
            self._now = replace(self._now, losses=losses, nan_count=(self._now.nan_count or 0) + bad)
            if bad:
                self._values.pop(LOSS, None)
            else:
                self._values[LOSS] = value
        elif name == EPISODE_RETURN:
            self._episode(value)
        elif not _fits(name, value):
            # A figure that is NaN or infinite is not known any more. An impossible finite value is ignored.
            if not math.isfinite(value) and self._values.pop(name, None) is not None:
                self._others -= name not in _FRAMED
        elif name == RATE:
            self._now = replace(self._now, given_rate=value)
        elif name == TARGET:
            self._now = replace(self._now, target=int(value))
        elif name == EPISODES:
            self._now = replace(self._now, episodes=int(value))
        elif name in self._values or name in _FRAMED:
            self._values[name] = int(value) if name in COUNTS else value
        elif self._others < MOST_OTHERS:
            self._others += 1
            self._values[name] = value

    def _episode(self, value: float) -> None:
        if not math.isfinite(value):
            return
        self._returns.append(value)
        self._now = replace(self._now, episodes=(self._now.episodes or 0) + 1)
        games = len(self._returns)
        mean = self._values[_MEAN] = math.fsum(each / games for each in self._returns)  # their sum may be no float
        if games == _GAMES:
            self._values.setdefault(_FIRST, mean)
            self._values[_BEST] = max(mean, self._values.get(_BEST, mean))

    def done(self) -> Figures:
        return replace(
            self._now, moved_at_s=self._moved_at_s, moves=self._before.moves + self._moves,
            values=self._values, returns=tuple(self._returns), marks=tuple(self._marks),
        )  # fmt: skip


# Figures with a field or column of their own; they do not count towards `MOST_OTHERS`.
_FRAMED: Final = frozenset({_MEAN, _BEST, _FIRST, LOSS, "frames", "updates", RESUMED})


def _fits(name: str, value: float) -> bool:
    if not math.isfinite(value):
        return False
    if name in COUNTS or name == STEP:
        return 0 <= value < _MOST
    return name != RATE or value >= 0
