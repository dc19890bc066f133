"""A Slurm of one host and no daemon: jobs are real processes, the queue is a directory. For tests without the packages.

    install(where)      # puts sbatch, squeue, scancel and sacct into `where`

It knows what the launcher relies on: `--dependency=singleton`, `--signal=B:USR1@N`, `--open-mode=append`,
requeueing, TERM and then KILL for a deleted job. `tests/slurm/test_launchers.py` runs the same tests on it and on a real Slurm.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

KILL_WAIT_S = 2.0
LOOK_S = 0.05
LIVE = {"PENDING", "RUNNING"}
SENT = {"CONT": signal.SIGCONT, "USR1": signal.SIGUSR1, "TERM": signal.SIGTERM}


def install(where: Path) -> Path:
    """The commands, in a directory that also holds the queue."""
    where.mkdir(parents=True)
    (where / "jobs").mkdir()
    for name in ("sbatch", "squeue", "scancel", "sacct"):
        command = where / name
        words = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).resolve()), str(where), name])
        command.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        command.chmod(0o755)
    return where


# --- the queue ---


def read(job: Path) -> dict[str, str]:
    return json.loads((job / "row").read_text())


def write(job: Path, **changes: object) -> None:
    row = {**(read(job) if (job / "row").exists() else {}), **{name: str(value) for name, value in changes.items()}}
    aside = job / f"row.{os.getpid()}"
    aside.write_text(json.dumps(row))
    aside.rename(job / "row")


def jobs(where: Path) -> list[Path]:
    return sorted((each for each in (where / "jobs").iterdir() if (each / "row").exists()), key=lambda each: int(each.name))


def new(where: Path) -> int:
    """The number of a new job."""
    for number in range(1, 100_000):
        with contextlib.suppress(FileExistsError):
            (where / "jobs" / str(number)).mkdir()
            return number
    raise AssertionError("the queue is full")


# --- the commands ---


def sbatch(where: Path, _args: list[str]) -> None:
    script = sys.stdin.read()
    options = dict(
        line.removeprefix("#SBATCH --").partition("=")[::2] for line in script.splitlines() if line.startswith("#SBATCH --")
    )
    options = {name: value.strip('"') for name, value in options.items()}
    with (where / "calls").open("a") as calls:
        calls.write(f"{options['job-name']}\n")
    number = new(where)
    job = where / "jobs" / str(number)
    (job / "script").write_text(script)
    write(
        job, JobID=number, Name=options["job-name"], Comment=options["comment"], State="PENDING", Reason="Priority",
        NodeList="", Partition=options.get("partition", "main"), SubmitTime=int(time.time()), StartTime="N/A",
        EndTime="N/A", exit_code="0", RestartCnt=0, TimeLimit=f"{options['time']}:00", output=options["output"],
        signal=options["signal"], requeue="requeue" in options, alone=options.get("dependency") == "singleton",
    )  # fmt: skip
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(where), "run", str(number)], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(number)


def squeue(where: Path, args: list[str]) -> None:
    fields = [each.partition(":") for each in args[args.index("-O") + 1].split(",")]
    for job in jobs(where):
        row = read(job)
        sys.stdout.write("".join(row.get(name, "") + end for name, _, end in fields) + "\n")


def scancel(where: Path, args: list[str]) -> None:
    name = next((each.partition("=")[2] for each in args if each.startswith("--signal=")), "")
    for job in (job for job in jobs(where) if job.name in args):
        if read(job)["State"] not in LIVE:
            continue
        if not name:
            (job / "cancelled").touch()
        elif (pid := pid_of(job)) is not None:
            send([pid], SENT[name])


def sacct(_where: Path, _args: list[str]) -> None:
    sys.exit("Slurm accounting storage is disabled")


# --- a job ---


def run(where: Path, args: list[str]) -> None:
    """What slurmd and the controller do with one job."""
    job = where / "jobs" / args[0]
    while True:
        if not awaited(where, job):
            write(job, State="CANCELLED", EndTime=int(time.time()))
            return
        ended = attend(job)
        if (job / "requeued").exists():
            (job / "requeued").unlink()
            write(job, State="PENDING", NodeList="", RestartCnt=int(read(job)["RestartCnt"]) + 1, Reason="BeginTime")
            continue
        state = "CANCELLED" if (job / "cancelled").exists() else "FAILED" if ended else "COMPLETED"
        write(job, State=state, EndTime=int(time.time()), exit_code=ended)
        return


def awaited(where: Path, job: Path) -> bool:
    """Whether its turn came: no earlier job of its name is left (singleton), and nobody holds the queue."""
    while True:
        if (job / "cancelled").exists():
            return False
        name, alone = read(job)["Name"], read(job)["alone"] == "True"
        earlier = [each for each in jobs(where) if alone and int(each.name) < int(job.name) and read(each)["Name"] == name]
        if not (where / "HOLD").exists() and not any(read(each)["State"] in LIVE for each in earlier):
            return True
        time.sleep(LOOK_S)


def attend(job: Path) -> int:
    """Its script, from its start to its wait status."""
    row = read(job)
    environ = {**os.environ, "SLURM_JOB_ID": job.name, "SLURM_RESTART_COUNT": row["RestartCnt"], "SLURMD_NODENAME": "n1"}
    output = re.sub("%[%j]", lambda found: {"%%": "%", "%j": job.name}[found[0]], row["output"])
    with Path(output).open("ab") as out:
        script = subprocess.Popen(
            ["/bin/bash", str(job / "script")], env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    (job / "pid").write_text(str(script.pid))
    write(job, State="RUNNING", Reason="None", NodeList="n1", StartTime=int(time.time()))
    ends_s = time.monotonic() + 60.0 * float(row["TimeLimit"].partition(":")[0])
    warned_s = ends_s - float(row["signal"].partition("@")[2])
    killed_s = None
    while script.poll() is None:
        now_s = time.monotonic()
        if now_s >= warned_s:
            warned_s = float("inf")
            send([script.pid], signal.SIGUSR1)
        if killed_s is None and ((job / "cancelled").exists() or (job / "requeued").exists() or now_s >= ends_s):
            killed_s = now_s + KILL_WAIT_S
            send([script.pid, *below(script.pid)], signal.SIGTERM)
        if killed_s is not None and now_s >= killed_s:
            send([script.pid, *below(script.pid)], signal.SIGKILL)
        time.sleep(LOOK_S)
    (job / "pid").unlink()
    return script.returncode << 8 if script.returncode >= 0 else -script.returncode


def pid_of(job: Path) -> int | None:
    try:
        return int((job / "pid").read_text())
    except (OSError, ValueError):
        return None


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def below(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [int(child), *below(int(child))]
    return found


if __name__ == "__main__":
    globals()[sys.argv[2]](Path(sys.argv[1]), sys.argv[3:])
