"""A simulated Slurm under the real launcher and the real core: time is stepped, nodes are functions, files are real.

What is simulated: `sbatch`, `squeue`, `scancel` (as `client.Slurm`), and what a node does with a job. A node's
claim of an attempt and its looks at the fence are the real ones of `node.py`. Harm comes from a seed: answers that are late or
lost, a controller that is away, nodes that fail or are cut off, preemptions, deleted jobs, a daemon that is killed anywhere.
"""

import json
import random
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from core_kit import Core, commands, settings, spec
from fakes import ListInbox, OneClock

from supervisor.features.slurm.adapters import node
from supervisor.features.slurm.adapters.client import Done, Jobs, Submitted, Unknown
from supervisor.features.slurm.adapters.launcher import SlurmLauncher, remote_paths
from supervisor.features.slurm.rules.jobs import Job, Node
from supervisor.features.slurm.settings import JobResources, LauncherSettings, NextJob
from supervisor.model.inputs import Asked, Verb, Woke
from supervisor.model.settings import Level, Paths, Rung
from supervisor.policy.level.load import FIXED, LoadSettings
from workers import contract
from workers.exit_record import ExitRecord

WALL_S = 1_800_000_000.0
POLL_S = 10.0
SETTLE_S = 120.0
LIMIT_S = 600.0
TARGET_S = 1500.0  # of training, over all jobs of a program
MOST_DELAY_S = 60.0  # of a submission that nobody has answered: less than SETTLE_S


class DaemonKilled(BaseException):
    pass


@dataclass
class SimJob:
    row: Job
    order: str
    visible_s: float
    run: node.Run | None = None
    until_s: float = 0.0
    ended_s: float | None = None
    partition: str = ""  # that its script asks for
    alone: bool = True  # --dependency=singleton
    output: str = ""


class SimSlurm:
    """`Slurm`, and the nodes below it."""

    def __init__(self, clock, chance, progress):
        self.clock, self.chance, self.progress = clock, chance, progress  # seconds of training, by program
        self.jobs_, self.next_id, self.down_until_s = {}, 1, 0.0
        self.next_submit, self.zombies = "ok", []
        self.drained = {}  # node -> reason

    # --- the commands ---

    def _down(self):
        return Unknown("Unable to contact slurm controller", "unreachable") if self.clock.at_s < self.down_until_s else None

    def submit(self, script, options=(), *, cwd="/"):
        how, self.next_submit = self.next_submit, "ok"
        if self._down():
            return self._down()
        if how == "lost":
            return Unknown("sbatch has not answered within 30s", "timeout")
        asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, re.MULTILINE))
        delay_s = self.chance.uniform(1.0, MOST_DELAY_S) if how == "late" else 0.0
        row = Job(self.next_id, asked["job-name"], asked["comment"], state="PENDING", reason="Resources", restarts=0)
        self.jobs_[row.target] = SimJob(
            row, script.split()[-1], self.clock.at_s + delay_s, partition=asked.get("partition", "main"),
            alone=asked.get("dependency") == "singleton", output=asked["output"].strip('"').replace("%j", str(row.id)),
        )  # fmt: skip
        self.next_id += 1
        if how == "killed":
            raise DaemonKilled
        if how in {"late", "unanswered"}:
            return Unknown("sbatch has not answered within 30s", "timeout")
        return Submitted(row.id)

    def jobs(self, wanted=()):
        if self._down():
            return self._down()
        rows = [job.row for job in self.jobs_.values() if self._shown(job)]
        return Jobs(tuple(rows), frozenset(wanted) - {row.target for row in rows})

    def _shown(self, job):
        forgotten = job.ended_s is not None and self.clock.at_s - job.ended_s > 300.0
        return job.visible_s <= self.clock.at_s and not forgotten

    def cancel(self, targets):
        if self._down():
            return self._down()
        for target in targets:
            job = self.jobs_[target]
            if job.ended_s is None:
                self.end(job, "CANCELLED", code=75 if job.run else None)
        return Done()

    def nodes(self):
        if self._down():
            return self._down()
        return [Node(name, ("drained",), reason) for name, reason in self.drained.items()]

    def signal(self, target, name):
        job = self.jobs_[target]
        if not self._down() and job.run is not None:
            job.run.leave_reason = "signal"
            self.end(job, "COMPLETED", code=contract.EXIT_LEFT)
        return self._down() or Done()

    # --- the nodes ---

    def live(self):
        return [job for job in self.jobs_.values() if job.ended_s is None and job.visible_s <= self.clock.at_s]

    def step(self, seconds):
        for job in self.live():
            if job.run is None:
                self._begin(job)
            else:
                self._train(job, seconds)
        for run in list(self.zombies):  # a node that was cut off: it could commit as long as the fence names it
            if run.owner() != run.token:
                self.zombies.remove(run)

    def _begin(self, job):
        others = job.alone and [each for each in self.live() if each.row.name == job.row.name and each.row.id < job.row.id]
        if others or self.chance.random() < 0.7:
            return
        job.row = replace(
            job.row, state="RUNNING", reason="", nodes=(f"n{self.chance.randint(1, 9)}",), partition=job.partition
        )
        Path(job.output).touch()
        environ = {
            "SLURM_JOB_ID": str(job.row.id), "SLURM_RESTART_COUNT": str(job.row.restarts), "SLURMD_NODENAME": job.row.nodes[0],
        }  # fmt: skip
        run = node.Run(json.loads(Path(job.order).read_text()), environ)
        try:
            run.claim()
        except node.NotOurs:
            self.end(job, "COMPLETED")
            return
        job.run, job.until_s = run, self.clock.at_s + LIMIT_S
        self._report(job)

    def _report(self, job):
        run = job.run
        body = {
            "token": run.token, "job": run.job, "restart": run.restart, "node": run.node, "asked": run.leave_reason, "pid": 5,
            "start_ticks": 6, "shim_pid": 7, "shim_start_ticks": 8, "stdout_from": 0, "stderr_from": 0,
            "at_ns": int(self.clock.at_s * 1e9), "wall_s": self.clock.wall_s(), "state": "S", "cpu_s": None,
        }  # fmt: skip
        text = json.dumps(body).encode()
        node.write_in_place(run.beat, b"\0" * node.BEAT_BYTES + b"%08x " % node.zlib.crc32(text) + text + b"\n")

    def _train(self, job, seconds):
        program = job.run.order["program"]
        self.progress[program] = self.progress.get(program, 0.0) + seconds
        if self.progress[program] >= TARGET_S:
            self.end(job, "COMPLETED", code=0)
        elif self.clock.at_s >= job.until_s:
            job.run.leave_reason = "time limit"
            self.end(job, "COMPLETED", code=contract.EXIT_LEFT)

    def end(self, job, state, *, code=None):
        if job.run is not None and code is not None:
            self._report(job)
            record = ExitRecord(
                job.run.token, 5, code, None, core_dumped=False, ended_ns=int(self.clock.at_s * 1e9),
                ended_wall_s=self.clock.wall_s(), user_s=0.0, system_s=0.0, max_rss_bytes=1,
            )  # fmt: skip
            (job.run.attempt_dir / contract.EXIT_FILE).write_text(json.dumps(asdict(record)))
        job.row, job.ended_s, job.run = replace(job.row, state=state, reason=""), self.clock.at_s, None

    def vanish(self, job, *, requeue):
        """Its node is gone, or only cut off."""
        if self.chance.random() < 0.5:
            self.zombies.append(job.run)
        if not requeue:
            self.end(job, "NODE_FAIL")
            return
        job.row = replace(job.row, state="PENDING", reason="BeginTime", nodes=(), restarts=job.row.restarts + 1)
        job.run = None


def _levels(slots):
    return (
        Level("light", slots, 8, 64, launcher=JobResources(partition="main")),
        Level("heavy", slots, 16, 128, launcher=JobResources(partition="fast", cpus=16)),
    )


def _rung(level, names):
    place = level.launcher.partition
    return Rung(
        level,
        tuple(spec(name, digest=f"{name}-{place}", own_digest=f"{name}-own", job=NextJob(level.launcher)) for name in names),
    )


class SlurmWorld:
    def __init__(self, seed, tmp_path, programs=3, settle_s=SETTLE_S):
        self.chance, self.clock, self.progress = random.Random(seed), OneClock(at_wall_s=WALL_S), {}
        self.paths = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
        self.names = [f"P{number}" for number in range(programs)]
        launcher = LauncherSettings(kind="slurm", poll_s=POLL_S, settle_s=settle_s, time_limit_s=LIMIT_S)
        rungs = tuple(_rung(level, self.names) for level in _levels(programs))
        made = settings(*rungs[0].programs, slots=programs, launcher=launcher)
        self.core = Core(replace(made, paths=self.paths, level=rungs[0].level, ladder=rungs, load=LoadSettings(mode=FIXED)))
        self.slurm = SimSlurm(self.clock, self.chance, self.progress)
        self.faults, self.deleted = [], 0
        self.start()

    def start(self):
        """A daemon, with what the one before has left."""
        self.inbox = ListInbox()
        self.launcher = SlurmLauncher(
            remote_paths(self.paths), lambda: self.core.settings.launcher, self.slurm, self.inbox, self.clock
        )
        expected = {n: (p.attempt.number, p.attempt.token) for n, p in self.core.state.live.items()}
        self.core.now_s = self.clock.at_s
        found = self.launcher.survey(expected)
        self.perform(self.core.begin(*found.items(), salt=f"salt{self.clock.at_s}"))

    def perform(self, decision):
        for command in decision.commands:
            match command:
                case commands.Spawn(spec=spec, attempt=attempt, token=token):
                    self.launcher.spawn(spec, attempt, token)
                case commands.Adopt(spec=spec, attempt=attempt, survivor=survivor):
                    self.launcher.adopt(spec.name, attempt, survivor)
                case commands.AskToLeave(program=program, token=token):
                    self.launcher.ask_to_leave(program, token)
                case commands.KillTree(program=program, token=token):
                    self.launcher.kill_tree(program, token)

    def step(self, seconds=2.0):
        self.clock.at_s += seconds
        self.core.now_s = self.clock.at_s
        self.slurm.step(seconds)
        try:
            self.launcher.step()
        except DaemonKilled:
            self.start()
        while self.inbox.items:
            item = self.inbox.items.pop(0)
            self.perform(self.core.give(replace(item, now_s=self.core.now_s)))
        if self.core.wake_at_s is not None and self.core.wake_at_s <= self.core.now_s:
            self.perform(self.core.give(Woke(self.core.now_s)))
        self.check()

    def check(self):
        """No program has two jobs, and none trains twice."""
        for name in self.names:
            jobs = [job for job in self.slurm.live() if json.loads(Path(job.order).read_text())["program"] == name]
            assert len(jobs) <= 1, f"{name} has jobs {[job.row.target for job in jobs]} after {self.faults[-5:]}"
        newer = {run.run_dir: run.token for job in self.slurm.live() if (run := job.run) is not None}
        for zombie in self.slurm.zombies:
            assert newer.get(zombie.run_dir) is None or zombie.owner() != zombie.token
        self.check_resources()

    def check_resources(self):
        """An attempt trains with the resources of the level that it is on record with."""
        by_token = {job.run.token: job for job in self.slurm.live() if job.run is not None}
        for name, program in self.core.state.live.items():
            job = by_token.get(program.attempt.token)
            if job is not None:
                assert program.attempt.digest == f"{name}-{job.partition}", f"{job.row.target} of {name}, {self.faults[-5:]}"

    def harm(self):
        """One fault."""
        kind = self.chance.choice(HARM)
        self.faults.append((round(self.clock.at_s), kind))
        running = [job for job in self.slurm.live() if job.run is not None]
        waiting = [job for job in self.slurm.live() if job.run is None]
        match kind:
            case "late" | "unanswered" | "lost" | "killed":
                self.slurm.next_submit = kind
            case "kill the daemon":
                self.start()
            case "lose what was posted":  # killed between what Slurm said and its record
                self.launcher._safely(self.launcher.poll)
                self.start()
            case "controller away":
                self.slurm.down_until_s = self.clock.at_s + self.chance.uniform(5.0, 200.0)
            case "node fails" | "requeued" if running:
                self.slurm.vanish(self.chance.choice(running), requeue=kind == "requeued")
            case "preempted" if running:
                self.slurm.end(self.chance.choice(running), "PREEMPTED", code=contract.EXIT_LEFT)
            case "gpu breaks" if running:
                job = self.chance.choice(running)
                self.slurm.drained[job.row.nodes[0]] = "gpu ecc"
                self.slurm.end(job, "FAILED", code=1)
            case "level":
                self.ask(Verb.PIN, self.chance.choice(("light", "heavy")))
            case "deleted" if running or waiting:
                self.slurm.end(self.chance.choice(running or waiting), "CANCELLED")
                self.deleted += 1
            case "stop and start":
                name = self.chance.choice(self.names)
                self.ask(Verb.STOP, name)
                self.ask(Verb.START, name)

    def ask(self, verb, *names):
        self.core.request += 1
        self.perform(self.core.give(Asked(self.core.now_s, verb, self.core.request, names)))

    def told(self, kind):
        return self.core.told(kind)


HARM = (
    "late", "unanswered", "lost", "killed", "kill the daemon", "lose what was posted", "controller away", "node fails",
    "requeued", "preempted", "deleted", "stop and start", "gpu breaks", "level",
)  # fmt: skip
