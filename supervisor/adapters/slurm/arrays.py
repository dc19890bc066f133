"""Which attempt each task of an array is: a table for each array, on the shared file system.

All tasks of an array have one comment, so a task's token cannot be in it. The comment names the table, and the table names
the attempt of each task. It is written before `sbatch` is called: a daemon that was killed in between finds its tasks again.

    STATE/slurm/arrays/89ab...4567/tasks.json      {"1": ["Pong-s4", 3, "0123...cdef"], "2": ["Pong-s6", 1, "4567...89ab"]}
                                   job.sh          the script that Slurm has
                                   job-17_1.out    what slurmd and the lines of `setup` said of task 1

A table is kept as long as the directory of one of its attempts is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from supervisor.adapters import durable
from supervisor.adapters.slurm.script import ArrayTag, Tag, array_of, tag_of
from supervisor.model.settings import Paths
from supervisor.policy.cluster.jobs import Job

MOST_TASKS: Final = 1000
"""Of one array. Slurm's own default, MaxArraySize = 1001, allows tasks up to 1000."""
SCRIPT_FILE: Final = "job.sh"
OUTPUT_FILE: Final = "job-{}.out"  # with sbatch's word for the job, or with its number
_TABLE_FILE: Final = "tasks.json"

Table = dict[int, Tag]


class Missing(ValueError):
    """There is no such table, or what is there is none."""


class Arrays:
    """The tables of one state directory. Only the thread that talks to Slurm writes them."""

    def __init__(self, paths: Paths, mark: str) -> None:
        """`paths` are those of `remote_paths`."""
        self._paths, self._mark = paths, mark
        self._known: dict[str, Table] = {}

    def directory(self, token: str) -> Path:
        return Path(self._paths.runtime_dir, "arrays", token)

    def write(self, group: str, tags: Sequence[Tag]) -> tuple[ArrayTag, Table]:
        """A new array of these attempts. Its token follows from theirs. Raises OSError."""
        token = blake2b("".join(tag.token for tag in tags).encode(), digest_size=16).hexdigest()
        table = dict(enumerate(tags, start=1))
        body = {str(task): [tag.program, tag.attempt, tag.token] for task, tag in table.items()}
        directory = self.directory(token)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(directory / _TABLE_FILE, json.dumps(body).encode(), aside=directory / f"{_TABLE_FILE}.new")
        durable.sync_directory(directory.parent)
        self._known[token] = table
        return ArrayTag(self._mark, group, token), table

    def place(self, token: str) -> tuple[str, int] | None:
        """The array and the task of an attempt, among the tables that were read."""
        for array, table in self._known.items():
            for task, tag in table.items():
                if tag.token == token:
                    return array, task
        return None

    def output(self, array: str, target: str) -> Path:
        """What slurmd and the lines of `setup` said of a task."""
        return self.directory(array) / OUTPUT_FILE.format(target)

    def tags(self, rows: Iterable[Job]) -> tuple[list[tuple[Job, Tag]], list[tuple[Job, bool]]]:
        """Our jobs with their attempts; and our tasks that have none here, each with whether its table is surely missing.

        A table that cannot be read just now is unknown: its tasks may be anybody's, and nothing may follow from that.
        """
        known: list[tuple[Job, Tag]] = []
        unknown: list[tuple[Job, bool]] = []
        failed: dict[str, bool] = {}
        for row in rows:
            tag, array = tag_of(row.comment), array_of(row.comment)
            if array is not None and array.mark == self._mark:
                table = self._table(array.token, failed)
                tag = None if row.array_task is None else table.get(row.array_task)
                if tag is None:
                    unknown.append((row, failed.get(array.token, True)))
            if tag is not None:
                known.append((row, tag))
        return known, unknown

    def _table(self, token: str, failed: dict[str, bool]) -> Mapping[int, Tag]:
        if token in failed:
            return {}
        if token not in self._known:
            try:
                self._known[token] = self._read(token)
            except Missing:
                failed[token] = True
            except OSError:
                failed[token] = False
        return self._known.get(token, {})

    def _read(self, token: str) -> Table:
        """Raises Missing, or OSError where nobody knows."""
        try:
            body: Any = json.loads((self.directory(token) / _TABLE_FILE).read_bytes())
        except (FileNotFoundError, ValueError) as error:
            raise Missing(token) from error
        rows = body.items() if isinstance(body, dict) else ()
        try:
            return {int(task): Tag(self._mark, str(name), int(attempt), str(own)) for task, (name, attempt, own) in rows}
        except (TypeError, ValueError) as error:
            raise Missing(token) from error

    def prune(self, in_use: Collection[str]) -> None:
        """Remove tables whose attempts are gone. `in_use`: tokens of attempts that live. Raises OSError."""
        parent = Path(self._paths.runtime_dir, "arrays")
        for place in list(parent.iterdir()) if parent.is_dir() else []:
            try:
                table = self._known.get(place.name) or self._read(place.name)
            except Missing:
                table = {}
            if not any(tag.token in in_use or self._has_directory(tag) for tag in table.values()):
                self.remove(place.name)

    def remove(self, token: str) -> None:
        """An array that Slurm has refused."""
        self._known.pop(token, None)
        shutil.rmtree(self.directory(token), ignore_errors=True)

    def _has_directory(self, tag: Tag) -> bool:
        return Path(self._paths.attempt_dir(tag.program, tag.attempt, tag.token)).is_dir()
