"""From the start of a service, or of bare workers, to the first new update of each program: seconds as JSON; in a box.

    first_update.py service                 starts extralife.service and reads the beats of its workers
    first_update.py bare < [{"name", "argv", "environ", "cwd"}]     starts these commands as the service's user

Both are looked at every 5 ms through their beats, which is a read of shared memory.
"""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workers import contract, daemon_side

BEATS = Path("/run/extralife/beats")
EVERY_S = 0.005
LONGEST_S = 900.0
TOKEN = "1" * 32


class Watch:
    """The first update that is not one of an earlier attempt."""

    def __init__(self) -> None:
        self.earlier: int | None = None
        self.at_s: dict[str, float] = {}
        self.cpu_s = 0.0  # of the worker, until then

    def look(self, path: Path) -> bool:
        beat = daemon_side.read_beat(path) if path.exists() else None
        if beat is None:
            return False
        now_s = time.monotonic()
        self.at_s.setdefault("first beat", now_s)
        if beat.phase is contract.WorkerPhase.TRAINING:
            self.at_s.setdefault("trains", now_s)
            self.earlier = beat.updates if self.earlier is None else self.earlier
            if beat.updates > self.earlier:
                self.at_s.setdefault("updates", now_s)
                self.cpu_s = cpu_s(str(beat.pid))
                return True
        return False


def wait(paths, watches: dict[str, Watch]) -> None:
    left, until_s = set(watches), time.monotonic() + LONGEST_S
    while left:
        for name in list(left):
            if watches[name].look(paths(name)):
                left.discard(name)
        if time.monotonic() > until_s:
            raise SystemExit(f"no update of {', '.join(left)} within {LONGEST_S:.0f} s")
        time.sleep(EVERY_S)


def shown(name: str) -> str:
    command = ["systemctl", "show", "--property", name, "--value", "extralife.service"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def at_s(name: str) -> float:
    return int(shown(name)) / 1e6


def cpu_s(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(told: dict[str, float | str]) -> None:
    """Returns at READY: what the daemon has used by then, and what it says."""
    subprocess.run(["systemctl", "start", "extralife.service"], check=True)
    told["ready_cpu_s"] = cpu_s(shown("MainPID"))
    told["status"] = shown("StatusText")


def service(names: list[str]) -> tuple[float, dict[str, Watch], dict[str, float | str]]:
    watches, told = {name: Watch() for name in names}, {}
    starting = threading.Thread(target=start, args=(told,))
    starting.start()

    def newest(name: str) -> Path:
        return max(BEATS.glob(f"{name}.*.beat"), default=BEATS / "none", key=lambda path: int(path.name.split(".")[-2]))

    wait(newest, watches)
    told["cpu_s"] = cpu_s(shown("MainPID"))
    starting.join()
    began_s = at_s("ExecMainStartTimestampMonotonic")
    return began_s, watches, told | {"ready_s": at_s("ActiveEnterTimestampMonotonic") - began_s}


def bare(programs: list[dict]) -> tuple[float, dict[str, Watch], dict[str, float | str]]:
    user = pwd.getpwnam("extralife")
    BEATS.mkdir(parents=True, exist_ok=True)
    os.chown(BEATS, user.pw_uid, user.pw_gid)
    for each in programs:
        fence = Path(each["environ"][contract.ENV_RUN_DIR]) / contract.FENCE_FILE
        fence.write_text(TOKEN)
        os.chown(fence, user.pw_uid, user.pw_gid)
        each["environ"] |= {
            contract.ENV_TOKEN: TOKEN,
            contract.ENV_ATTEMPT: "999",
            contract.ENV_BEAT: f"{BEATS}/{each['name']}.999.beat",
        }
        for name in (contract.ENV_CONTROL, contract.ENV_NOTIFY, contract.ENV_STACKS, "GLIBC_TUNABLES", contract.ENV_BOOT_ID):
            each["environ"].pop(name, None)
    began_s = time.monotonic()
    workers = [
        subprocess.Popen(
            each["argv"], env=each["environ"], cwd=each["cwd"], user=user.pw_uid, group=user.pw_gid, extra_groups=[],
            start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for each in programs
    ]  # fmt: skip
    watches = {each["name"]: Watch() for each in programs}
    try:
        wait(lambda name: BEATS / f"{name}.999.beat", watches)
    finally:
        for worker in workers:
            worker.kill()
    return began_s, watches, {}


given = json.loads(sys.stdin.read()) if sys.argv[1] == "bare" else sys.argv[2:]
began_s, watches, told = bare(given) if sys.argv[1] == "bare" else service(given)
times = {name: {what: when_s - began_s for what, when_s in watch.at_s.items()} for name, watch in watches.items()}
all_cpu_s = told.get("cpu_s", 0.0) + sum(watch.cpu_s for watch in watches.values())
all_s = max(each["updates"] for each in times.values())
print(json.dumps(told | {"programs": times, "all_s": all_s, "all_cpu_s": all_cpu_s}))
