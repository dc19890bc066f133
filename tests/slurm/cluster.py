"""A real Slurm on this one machine: Debian's slurmctld and some slurmd on loopback, without systemd, munge or cgroups.

    python tests/slurm/cluster.py DIRECTORY     # brings one up, prints what to export, and ends it at Ctrl-C

It differs from a cluster in what one machine lacks: all nodes share one kernel, one clock and one file system, nobody
proves who they are (auth/none), and memory is limited by slurmd's own looks once a second instead of by a cgroup.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo", "scancel", "sacct")
PATIENCE = float(os.environ.get("EXTRALIFE_TEST_PATIENCE", "2"))


def unfit() -> str:
    """Why no Slurm can run here; empty: one can."""
    missing = [each for each in COMMANDS if shutil.which(each) is None and not Path("/usr/sbin", each).exists()]
    if missing:
        return f"{', '.join(missing)} not installed (apt-get install slurmctld slurmd slurm-client)"
    return "" if os.geteuid() == 0 else "slurmd starts jobs as root alone"


class Cluster:
    """`main` may be preempted by `urgent`, which has the same nodes; `short` allows one hour."""

    def __init__(self, where: Path, *, nodes: int = 2, cpus: int = 2) -> None:
        self.where, self.names = where, [f"n{number}" for number in range(1, nodes + 1)]
        self.environ = {**os.environ, "SLURM_CONF": str(where / "slurm.conf"), "LC_ALL": "C"}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for each in ("state", "log", "run"):
            (where / each).mkdir(parents=True, exist_ok=True)
        self._configure(cpus)

    def up(self) -> None:
        self.start_controller(fresh=True)
        for name in self.names:
            self.start_node(name)
        self.until(lambda: self.states() == dict.fromkeys(self.names, "idle"), 30, "the nodes are idle")

    def down(self) -> None:
        for name in self.names:
            self.kill_node(name)
        self._end("slurmctld", signal.SIGKILL)

    def start_controller(self, *, fresh: bool = False) -> None:
        self._start("slurmctld", "slurmctld", "-D", *(["-c"] if fresh else []))

    def kill_controller(self) -> None:
        self._end("slurmctld", signal.SIGKILL)

    def pause_controller(self) -> None:
        """It is there and does not answer."""
        self._running["slurmctld"].send_signal(signal.SIGSTOP)

    def resume_controller(self) -> None:
        self._running["slurmctld"].send_signal(signal.SIGCONT)

    def save(self) -> None:
        """The controller saves its state now and then (every 5 s); a kill before that forgets new jobs."""
        time.sleep(6)

    def start_node(self, name: str) -> None:
        self._start(name, "slurmd", "-N", name, "-D")

    def kill_slurmd(self, name: str) -> None:
        """The node's daemon alone: its jobs go on, and nobody hears of them."""
        self._end(name, signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """A power loss: the daemon, its helpers and all processes of its jobs are gone at once."""
        self._end(name, signal.SIGKILL)
        steps = [pid for pid, comm in processes().items() if comm == "slurmstepd" and self._is_of(pid, name)]
        for pid in [*steps, *(child for step in steps for child in descendants(step))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def run(self, *argv: str, given: str = "") -> str:
        done = subprocess.run(
            argv, check=False, input=given, env=self.environ, capture_output=True, text=True, timeout=60 * PATIENCE,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{argv[0]}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        with contextlib.suppress(AssertionError):
            return dict(line.split() for line in self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines())
        return {}

    def job(self, number: int) -> dict[str, str]:
        """`scontrol show job`, for people and for assertions that do not trust the client."""
        words = self.run("scontrol", "show", "job", str(number)).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def until_state(self, number: int, *states: str, within_s: float = 60) -> dict[str, str]:
        self.until(lambda: self.job(number)["JobState"] in states, within_s, f"job {number} is {' or '.join(states)}")
        return self.job(number)

    def until(self, seen, within_s: float, what: str) -> None:
        ends = time.monotonic() + within_s * PATIENCE
        while not seen():
            if time.monotonic() > ends:
                raise AssertionError(f"not within {within_s * PATIENCE:g} s: {what}\n{self.told()}")
            time.sleep(0.1)

    def told(self) -> str:
        """What a person would look at."""
        found = []
        for argv in (["squeue", "--states=all"], ["sinfo", "-N", "-l"]):
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                found.append(self.run(*argv))
        found += [
            f"{log.name}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            for log in sorted((self.where / "log").glob("*.log"))
        ]
        return "\n".join(found)

    def _start(self, name: str, *argv: str) -> None:
        found = shutil.which(argv[0]) or f"/usr/sbin/{argv[0]}"
        if name in self.names:
            (self.where / f"spool.{name}").mkdir(exist_ok=True)
        with (self.where / "log" / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                [found, *argv[1:]], env=self.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def _end(self, name: str, number: int) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            helpers = descendants(process.pid) if name == "slurmctld" else []  # its slurmscriptd
            process.send_signal(number)
            process.wait()
            for pid in helpers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def _is_of(self, pid: int, name: str) -> bool:
        ours = (str(self.where / f"spool.{name}"), str(self.where / "log" / f"slurmd.{name}.log"))
        with contextlib.suppress(OSError):
            return any(os.readlink(each).startswith(ours) for each in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def _configure(self, cpus: int) -> None:
        # A port that is free now for the controller; each node's is taken the same way.
        ports = free_ports(len(self.names) + 1)
        host, where = socket.gethostname().split(".")[0], self.where
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory=6000 "
            "Gres=gpu:1 State=UNKNOWN"
            for name, port in zip(self.names, ports[1:], strict=True)
        )
        everywhere = f"Nodes={','.join(self.names)} OverSubscribe=NO"
        (where / "gres.conf").write_text("".join(f"NodeName={name} Name=gpu File=/dev/null\n" for name in self.names[:1]) +
                                         "".join(f"NodeName={name} Name=gpu File=/dev/zero\n" for name in self.names[1:]))  # fmt: skip
        (where / "slurm.conf").write_text(f"""\
ClusterName=onebox
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
# A requeued job waits this long before it may start again; 120 by default.
AuthInfo=cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={where}/state
SlurmdSpoolDir={where}/spool.%n
SlurmctldPidFile={where}/run/slurmctld.pid
SlurmdPidFile={where}/run/slurmd.%n.pid
SlurmctldLogFile={where}/log/slurmctld.log
SlurmdLogFile={where}/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=200
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,sched_interval=2,bf_interval=2,batch_sched_delay=0,requeue_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=5
InactiveLimit=0
MinJobAge=3600
MaxJobCount=20000
MessageTimeout=10
TCPTimeout=2
JobRequeue=1
UnkillableStepTimeout=50
{nodes}
PartitionName=main {everywhere} Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=urgent {everywhere} MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=short {everywhere} MaxTime=60 State=UP PriorityTier=1 PreemptMode=OFF
""")


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def processes() -> dict[int, str]:
    found = {}
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(each.name)] = (each / "comm").read_text().strip()
    return found


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def main() -> None:
    made = Cluster(Path(sys.argv[1]).resolve())
    try:
        made.up()
        print(f"export SLURM_CONF={made.where}/slurm.conf", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        made.down()


if __name__ == "__main__":
    main()
