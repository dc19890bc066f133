"""A launcher of a Slurm cluster over commands that answer as they are told to, for tests of what it does with the answers."""

import json
import zlib
from dataclasses import asdict, replace
from pathlib import Path

from fakes import ListInbox, OneClock

from supervisor.features.slurm.adapters import node
from supervisor.features.slurm.adapters.client import Done, Jobs, Submitted
from supervisor.features.slurm.adapters.launcher import SlurmLauncher, remote_paths
from supervisor.features.slurm.adapters.script import Tag
from supervisor.features.slurm.rules.jobs import Job
from supervisor.features.slurm.settings import LauncherSettings, NextJob
from supervisor.model.settings import Paths, ProgramSpec, Progress
from workers import contract
from workers.exit_record import ExitRecord

TOKEN = "ab" * 16
NEXT = contract.next_token(TOKEN)
SETTINGS = LauncherSettings(
    kind="slurm", partition="a100", account="lab", qos="night", gpus=2, memory_mb=1000, time_limit_s=7201.0,
    setup="module load conda\nconda activate rl", options="--nice=5\n\n--reservation=x",
)  # fmt: skip
SPEC = ProgramSpec("Pong", ("sleep", "1"), "d", progress=Progress.BEAT)


class Cluster:
    """Notes every call, and answers as it is told to."""

    def __init__(self):
        self.answer, self.rows, self.absent, self.cancelled, self.scripts = Submitted(17), [], frozenset(), [], []
        self.unread, self.calls, self.signalled, self.deleted, self.all_nodes = "", [], Done(), Done(), []

    def submit(self, script, options=(), *, cwd="/"):
        self.calls.append(("submit", options, cwd))
        self.scripts.append(script)
        return self.answer

    def jobs(self, wanted=()):
        self.calls.append(("jobs", wanted))
        return Jobs(tuple(self.rows), self.absent, self.unread) if isinstance(self.rows, list) else self.rows

    def cancel(self, targets):
        self.calls.append(("cancel", targets))
        self.cancelled += targets
        return self.deleted

    def signal(self, target, name):
        self.calls.append(("signal", target, name))
        self.cancelled.append((target, name))
        return self.signalled

    def nodes(self):
        self.calls.append(("nodes",))
        return self.all_nodes

    def said(self, *but):
        """The calls since the last look."""
        found, self.calls = [each for each in self.calls if each[0] not in but], []
        return found

    def gone(self):
        """The jobs that were deleted since the last look, however often."""
        return sorted({target for call in self.said() if call[0] == "cancel" for target in call[1]})


class World:
    def __init__(self, tmp_path):
        self.paths = remote_paths(Paths(str(tmp_path / "a state"), str(tmp_path / "run")))
        self.clock, self.inbox, self.cluster = OneClock(at_wall_s=5000.0), ListInbox(), Cluster()
        self.settings = SETTINGS
        self.restart()
        Path(self.paths.run_dir("Pong")).mkdir(parents=True)

    def restart(self):
        """Another daemon, which remembers nothing."""
        self.launcher = SlurmLauncher(self.paths, lambda: self.settings, self.cluster, self.inbox, self.clock)

    def spawn(self, spec=SPEC):
        self.launcher.spawn(spec.having(replace(spec.of(NextJob), avoid=("n1", "n2"))), 3, TOKEN)
        self.launcher.step()

    def look(self, *rows, later_s=100.0):
        self.cluster.rows = list(rows)
        self.clock.at_s += later_s
        self.inbox.items.clear()
        self.launcher.step()
        return self.inbox.items

    def row(self, id_=17, **more):
        return Job(
            id_, **{"comment": str(Tag(self.launcher.mark, "Pong", 3, TOKEN)), "state": "PENDING", "restarts": 0, **more}
        )

    def directory(self):
        return Path(self.paths.attempt_dir("Pong", 3, TOKEN))

    def left(self, code=0, **more):
        """The exit record of the attempt."""
        self.directory().mkdir(parents=True, exist_ok=True)
        record = ExitRecord(TOKEN, 5, code, None, False, 91_000_000_000, 1.0, 0.0, 0.0, 4096, **more)
        (self.directory() / contract.EXIT_FILE).write_text(json.dumps(asdict(record)))

    def report(self, **more):
        body = {
            "token": TOKEN, "job": "17", "restart": 0, "node": "n7", "asked": "", "pid": 5, "start_ticks": 6, "shim_pid": 7,
            "shim_start_ticks": 8, "stdout_from": 0, "stderr_from": 0, "at_ns": 90_000_000_000, "wall_s": 6000.0,
            "state": "S", "cpu_s": None, **more,
        }  # fmt: skip
        text = json.dumps(body).encode()
        path = Path(self.paths.beat("Pong", 3))
        path.parent.mkdir(parents=True, exist_ok=True)
        node.write_in_place(path, b"\0" * node.BEAT_BYTES + b"%08x " % zlib.crc32(text) + text + b"\n")
        return path
