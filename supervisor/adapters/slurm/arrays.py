"""Maps each task of a job array to its attempt, with one table per array on the shared file system.

All tasks of an array have the same comment, so the comment cannot hold a task's token. It names the table, and the table
names the attempt of each task. The table is written before `sbatch` is called. So a daemon that was killed between these two
steps finds its tasks again.

    STATE/slurm/arrays/89ab...4567/tasks.json      {"1": ["Pong-s4", 3, "0123...cdef"], "2": ["Pong-s6", 1, "4567...89ab"]}
                                   job.sh          the script that was submitted to Slurm
                                   job-17_1.out    output of slurmd and of the `setup` lines for task 1

A table is kept while at least one of its attempts is live or still has a directory.

Why no throttle (`--array=1-9%4`): it counts only the tasks of one array. Ten games are ten arrays, and the next jobs of
their seeds are other jobs again. The level's slots limit all of them, with priorities and rotation.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from supervisor import files
from supervisor.adapters import durable
from supervisor.adapters.slurm.script import ArrayTag, Tag, array_of, tag_of
from supervisor.model.settings import Paths
from supervisor.policy.cluster.jobs import Job

MOST_TASKS: Final = 1000
"""The most tasks in one array. Slurm's own default, MaxArraySize = 1001, allows task numbers up to 1000."""
SCRIPT_FILE: Final = "job.sh"
OUTPUT_FILE: Final = "job-{}.out"  # filled with sbatch's pattern for the job id, or with the id itself
_TABLE_FILE: Final = "tasks.json"
_LARGEST_BYTES: Final = 64 << 20

Table = dict[int, Tag]


class TableMissing(ValueError):
    """The table does not exist, or its file holds no valid table."""


class Arrays:
    """The array tables of one state directory. Only the thread that talks to Slurm writes them."""

    def __init__(self, paths: Paths, mark: str) -> None:
        """`paths` is the result of `remote_paths`."""
        self._paths, self._mark = paths, mark
        self._known: dict[str, Table] = {}

    def directory(self, token: str) -> Path:
        return Path(self._paths.runtime_dir, "arrays", token)

    def write(self, group: str, tags: Sequence[Tag]) -> tuple[ArrayTag, Table]:
        """Write the table of a new array of these attempts. The array's token is a hash of their tokens. Raises OSError."""
        token = blake2b("".join(tag.token for tag in tags).encode(), digest_size=16).hexdigest()
        table = dict(enumerate(tags, start=1))
        body = {str(task): [tag.program, tag.attempt, tag.token] for task, tag in table.items()}
        directory = self.directory(token)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.replace(directory / _TABLE_FILE, json.dumps(body).encode(), aside=directory / f"{_TABLE_FILE}.new")
        durable.sync_directory(directory.parent)
        self._known[token] = table
        return ArrayTag(self._mark, group, token), table

    def task_of(self, token: str) -> tuple[str, int] | None:
        """The array's token and the task number of an attempt. Searches only tables that were already written or read."""
        for array, table in self._known.items():
            for task, tag in table.items():
                if tag.token == token:
                    return array, task
        return None

    def output(self, array: str, target: str) -> Path:
        """Path of the file with the output of slurmd and of the `setup` lines for one task."""
        return self.directory(array) / OUTPUT_FILE.format(target)

    def tags(self, rows: Iterable[Job]) -> tuple[list[tuple[Job, Tag]], list[tuple[Job, bool]]]:
        """Our jobs with their attempts, and our array tasks whose attempt was not found.

        Each such task has a flag. True: its table or its entry is certainly missing. False: the table cannot be read at the
        moment. The task may then belong to any attempt, so the caller must not draw conclusions from it.
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
            except TableMissing:
                failed[token] = True
            except OSError:
                failed[token] = False
        return self._known.get(token, {})

    def _read(self, token: str) -> Table:
        """Raises TableMissing, or OSError if the table may exist but cannot be read."""
        try:
            body: Any = json.loads(files.read(self.directory(token) / _TABLE_FILE, _LARGEST_BYTES))
        except (FileNotFoundError, ValueError) as error:
            raise TableMissing(token) from error
        rows = body.items() if isinstance(body, dict) else ()
        try:
            return {int(task): Tag(self._mark, str(name), int(attempt), str(own)) for task, (name, attempt, own) in rows}
        except (TypeError, ValueError) as error:
            raise TableMissing(token) from error

    def prune(self, in_use: Collection[str]) -> None:
        """Remove the tables whose attempts are all gone. `in_use`: tokens of live attempts. Raises OSError."""
        parent = Path(self._paths.runtime_dir, "arrays")
        for directory in list(parent.iterdir()) if parent.is_dir() else []:
            try:
                table = self._known.get(directory.name) or self._read(directory.name)
            except TableMissing:
                table = {}
            if not any(tag.token in in_use or self._has_directory(tag) for tag in table.values()):
                self.remove(directory.name)

    def remove(self, token: str) -> None:
        """Delete the table and the script of an array, for example after Slurm has refused it."""
        self._known.pop(token, None)
        shutil.rmtree(self.directory(token), ignore_errors=True)

    def _has_directory(self, tag: Tag) -> bool:
        return Path(self._paths.attempt_dir(tag.program, tag.attempt, tag.token)).is_dir()
