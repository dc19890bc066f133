"""Record what a real Slurm on this machine says of jobs in every state that it can be brought into here.

    python tests/slurm/record_states.py [--extracted DIRECTORY]

It writes `recorded_states/VERSION/`: `squeue -O`, both forms of `sinfo`, and `sacct`, as `features/slurm/adapters/client.py` asks
them. As root, with Debian's slurmctld and slurmd. `sacct` needs an accounting: slurmdbd, its MySQL plugin and mariadbd,
installed or (so that none of them becomes a service here) extracted from their packages:

    apt-get download slurmdbd slurm-wlm-mysql-plugin libmariadb3 mariadb-server-core
    for each in *.deb; do dpkg -x $each DIRECTORY; done

It takes about four minutes: Slurm's shortest time limit is one. Each job's comment is `run=NAME`, and
`test_slurm_states.py` says what is expected of each name.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from cluster import Cluster, free_ports, unfit  # noqa: E402

from supervisor.features.slurm.adapters import reading  # noqa: E402
from supervisor.features.slurm.adapters.client import environment  # noqa: E402

OUT = Path(__file__).parent / "recorded_states"
PLUGINS = "usr/lib/x86_64-linux-gnu/slurm-wlm"
EATS = "import time; x = bytearray(700 << 20); x[::4096] = b'1' * len(x[::4096]); time.sleep(60)"


class Accounting:
    """A database and slurmdbd, on loopback and in a directory of their own."""

    def __init__(self, where: Path, extracted: Path) -> None:
        self.where, self.extracted = where, extracted
        self.socket, (self.port, self.database_port) = where / "db.sock", free_ports(2)
        self.environ = {**os.environ, "LD_LIBRARY_PATH": str(extracted / "usr/lib/x86_64-linux-gnu")}
        self._running: list[subprocess.Popen[bytes]] = []

    def up(self) -> None:
        share, data = self.extracted / "usr/share/mysql", self.where / "db"
        data.mkdir(parents=True)
        common = [
            str(self.extracted / "usr/sbin/mariadbd"), "--no-defaults", f"--datadir={data}", "--user=root", f"--lc-messages-dir={share}",
            f"--character-sets-dir={share}/charsets", f"--socket={self.socket}", "--innodb-lock-wait-timeout=900",
        ]  # fmt: skip
        system = "".join((share / each).read_text() for each in ("mysql_system_tables.sql", "mysql_performance_tables.sql"))
        given = f"create database mysql;\nuse mysql;\n{system}\ncreate database slurm_acct_db;\n"
        subprocess.run([*common, "--bootstrap"], input=given.encode(), env=self.environ, check=True, capture_output=True)
        options = ["--skip-grant-tables", "--bind-address=127.0.0.1", f"--port={self.database_port}"]
        self._start([*common, *options], "mariadbd")
        self._until(self.database_port)
        conf = self.where / "slurmdbd.conf"
        conf.write_text(f"""\
AuthType=auth/none
DbdHost={socket.gethostname().split(".")[0]}
DbdAddr=127.0.0.1
DbdPort={self.port}
SlurmUser=root
LogFile={self.where}/slurmdbd.log
PidFile={self.where}/slurmdbd.pid
PluginDir={"/" + PLUGINS}:{self.extracted / PLUGINS}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={self.database_port}
StorageUser=root
StorageLoc=slurm_acct_db
""")
        conf.chmod(0o600)
        self.environ["SLURM_CONF"] = str(self.where / "slurm.conf")
        self._start([shutil.which("slurmdbd") or str(self.extracted / "usr/sbin/slurmdbd"), "-D"], "slurmdbd")
        self._until(self.port)

    def down(self) -> None:
        for process in reversed(self._running):
            process.kill()
            process.wait()

    def lines(self) -> str:
        """Of slurm.conf."""
        return (
            f"AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
            f"AccountingStoragePort={self.port}\nAccountingStoreFlags=job_comment\nAccountingStorageTRES=gres/gpu\n"
        )

    def _start(self, argv: list[str], name: str) -> None:
        with (self.where / f"{name}.out").open("ab") as out:
            self._running.append(subprocess.Popen(argv, env=self.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def _until(self, port: int) -> None:
        ends_s = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if time.monotonic() > ends_s or self._running[-1].poll() is not None:
                said = [each.read_text(errors="replace")[-2000:] for each in self.where.glob("*.out")]
                raise SystemExit("\n".join(["record_states.py: the accounting did not come up", *said]))
            time.sleep(0.2)


def submit(made: Cluster, run: str, line: str, *options: str) -> int:
    if not any(each.startswith("--mem") for each in options):
        options = (*options, "--mem=50")
    fixed = ["--parsable", "--output=/dev/null", f"--job-name=extralife-{run}", f"--comment=run={run}"]
    return int(made.run("sbatch", *fixed, *options, given=f"#!/bin/sh\n{line}\n"))


def scenario(made: Cluster) -> None:
    """Six nodes of two cores. Each state is waited for, so the recording has it."""
    ends = {
        "completed": submit(made, "completed", "exit 0"), "failed": submit(made, "failed", "exit 3"),
        "signalled": submit(made, "signalled", "kill -SEGV $$"),
        "ate": submit(made, "ate", f'exec "{sys.executable}" -c "{EATS}"', "--mem=100"),
        "range": submit(made, "range", "sleep 2", "--nodes=3", "--nodelist=n[2-4]"),
    }  # fmt: skip
    late = submit(made, "timeout", "trap '' TERM; sleep 300 & wait; sleep 300", "--time=1")
    for each in ends.values():
        made.until_state(each, "COMPLETED", "FAILED", "OUT_OF_MEMORY", within_s=120)
    lost = submit(made, "node_fail", "sleep 300", "--no-requeue", "--nodelist=n6")
    requeued = submit(made, "requeued", "sleep 300", "--requeue", "--nodelist=n6")
    for each in (lost, requeued, late):
        made.until_state(each, "RUNNING")
    made.kill_node("n6")
    made.until_state(lost, "NODE_FAIL", within_s=120)
    made.until(lambda: made.job(requeued).get("Restarts") == "1", 120, "it is requeued")
    urgent = ["-purgent", "--exclusive", "--nodelist=n5"]
    again = submit(made, "preempted_requeued", "sleep 300", "--requeue", "--nodelist=n5")
    gone = submit(made, "preempted", "sleep 300", "--no-requeue", "--nodelist=n5")
    for each in (again, gone):
        made.until_state(each, "RUNNING")
    submit(made, "urgent", "sleep 300", *urgent)
    made.until_state(gone, "PREEMPTED")
    made.until(lambda: made.job(again).get("Restarts") == "1", 60, "it is preempted")
    holds = {name: submit(made, name, "sleep 300", "--nodelist=n4") for name in ("requeue_hold", "special_exit")}
    for each in holds.values():
        made.until_state(each, "RUNNING")
    made.run("scontrol", "requeuehold", str(holds["requeue_hold"]))
    made.run("scontrol", "requeuehold", "State=SpecialExit", str(holds["special_exit"]))
    made.until_state(holds["requeue_hold"], "REQUEUE_HOLD", "PENDING")
    stopped = submit(made, "suspended", "sleep 300", "--nodelist=n3")
    made.until_state(stopped, "RUNNING")
    made.run("scontrol", "suspend", str(stopped))
    cancelled = submit(made, "cancelled", "sleep 300", "--nodelist=n3")
    made.until_state(cancelled, "RUNNING")
    made.run("scancel", str(cancelled))
    submit(made, "cancelled_waiting", "true", "--hold")
    made.run("scancel", str(int(made.run("squeue", "-h", "--name=extralife-cancelled_waiting", "-o", "%A"))))
    submit(made, "held", "true", "--hold")
    submit(made, "begin", "true", "--begin=now+1hour")
    waits = submit(made, "running", "sleep 300", "--nodes=2", "--nodelist=n[1-2]", "--gres=gpu:1", "--time=1-01:02:03")
    made.until_state(waits, "RUNNING")
    seeds(made)
    submit(made, "dependency", "true", f"--dependency=afterok:{waits}")
    submit(made, "never", "true", f"--dependency=afterok:{ends['failed']}")
    wide = submit(made, "resources", "true", "--nodes=4", "--exclusive", "--time=10")
    made.until(lambda: made.job(wide)["Reason"] not in {"None", "Priority"}, 60, "why it waits")
    submit(made, "draining", "sleep 300", "--nodelist=n4")
    made.until(lambda: "n4" in made.run("squeue", "-h", "--name=extralife-draining", "-o", "%N"), 60, "it runs")
    made.run("scontrol", "update", "NodeName=n4", "State=DRAIN", "Reason=a fan, loud")
    made.until_state(late, "TIMEOUT", within_s=180)


def seeds(made: Cluster) -> None:
    """A user's own array, whose tasks end, fail, run and wait, on the one free core of n1."""
    line = "case $SLURM_ARRAY_TASK_ID in 1) exit 0;; 2) exit 3;; esac; sleep 300"
    array = submit(made, "seeds", line, "--array=1-7", "--nodelist=n1")
    made.until(lambda: made.run("squeue", "-h", f"--job={array}_3", "-o", "%T") == "RUNNING", 90, "task 3 runs")


def record(made: Cluster, accounting: Accounting | None) -> Path:
    version = ".".join(made.run("sinfo", "--version").split()[1].split(".")[:2])
    out = OUT / version
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    made.environ = {**environment(), "SLURM_CONF": made.environ["SLURM_CONF"], "PATH": os.environ["PATH"]}
    ends = [reading.FIELD] * (len(reading.SQUEUE_FIELDS) - 1) + [reading.RECORD]
    form = ",".join(f"{name}:{end}" for name, end in zip(reading.SQUEUE_FIELDS, ends, strict=True))
    calls = {
        "version.txt": ["sinfo", "--version"],
        "squeue.txt": ["squeue", "--all", "--states=all", "--noheader", "-O", form],
        "nodes.txt": ["sinfo", "--all", "-N", "-h", "-o", reading.FIELD.join(reading.SINFO_NODE)],
        "partitions.txt": ["sinfo", "--all", "-h", "-o", reading.FIELD.join(reading.SINFO_PARTITION)],
    }
    if accounting is not None:
        fields = [f"--delimiter={reading.FIELD}", f"--format={','.join(reading.SACCT_FIELDS)}"]
        calls["sacct.txt"] = ["sacct", "--allusers", "--duplicates", "-n", "-P", "-X", "-S", "now-1hour", *fields]
    host = socket.gethostname().split(".")[0]
    for name, argv in calls.items():
        said = subprocess.run(argv, env=made.environ, check=True, capture_output=True, text=True).stdout
        said = said.replace(str(made.where), "/slurm").replace(host, "host").replace(str(ROOT), "/root")
        (out / name).write_text(said)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--extracted", type=Path)
    args = parser.parse_args()
    if why := unfit():
        raise SystemExit(f"record_states.py: {why}")
    with tempfile.TemporaryDirectory(prefix="s") as where:
        made = Cluster(Path(where), nodes=6)
        accounting = None if args.extracted is None else Accounting(Path(where) / "dbd", args.extracted.resolve())
        try:
            if accounting is not None:
                accounting.where.mkdir()
                accounting.up()
                conf = made.where / "slurm.conf"
                none = "AccountingStorageType=accounting_storage/none\n"
                conf.write_text(conf.read_text().replace(none, accounting.lines()))
            made.up()
            scenario(made)
            print(f"written: {record(made, accounting)}")
        finally:
            made.down()
            if accounting is not None:
                accounting.down()


if __name__ == "__main__":
    main()
