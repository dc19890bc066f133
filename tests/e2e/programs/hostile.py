"""A worker that means harm, or is as broken as if it did: `hostile.py DEED`.

Deeds: flood (100 MB/s of bytes that are no text, without line ends), reports (a million report lines), words (escape
sequences in its status, its reports and its last lines), links (its logs, reports and checkpoints lead elsewhere),
files (a beat of a terabyte, FIFOs in place of its other files, a control record that is cut short), notify (datagrams as
fast as they go).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from workers.contract import Client, WorkerPhase

ATTACK = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e\x9b31m"


def flood(me: Client) -> None:
    piece = bytes(range(128, 256)) * 8192  # 1 MiB, no line end, no UTF-8
    began, written = time.monotonic(), 0
    while True:
        os.write(1, piece)
        written += len(piece)
        me.progress(env_steps=written >> 20)
        time.sleep(max(0.0, began + written / 100e6 - time.monotonic()))


def reports(me: Client) -> None:
    path = Path(os.environ["EXTRALIFE_STACKS"]).with_name("reports.jsonl")
    with path.open("a") as file:
        for number in range(1000):
            file.write("".join(f'{{"kind": "checkpoint_bad", "path": "{number}-{n}", "at_ns": {n}}}\n' for n in range(1000)))
            file.flush()
            me.edge("STATUS=more\n")


def words(me: Client) -> None:
    me.edge(f"STATUS=busy {ATTACK}\u2028READY=1\n")
    me.report("odd" + ATTACK, said=ATTACK)
    time.sleep(1)
    print(f"fatal: {ATTACK}\rnot hidden", file=sys.stderr, flush=True)
    raise RuntimeError(ATTACK)


def links(_me: Client) -> None:
    run_dir, precious = Path(os.environ["EXTRALIFE_RUN_DIR"]), os.environ["PRECIOUS"]
    for name in ("stdout.log", "stderr.log", "stdout.log.1", "stdout.log.tmp"):
        (run_dir / name).unlink(missing_ok=True)
        (run_dir / name).symlink_to(f"{precious}/file")
    (run_dir / "checkpoints").symlink_to(f"{precious}/directory")
    Path(os.environ["EXTRALIFE_STACKS"]).with_name("reports.jsonl").symlink_to(f"{precious}/file")


def files(_me: Client) -> None:
    beside = Path(os.environ["EXTRALIFE_STACKS"]).parent
    for name in ("reports.jsonl", "exit.json"):
        os.mkfifo(beside / name)
    os.truncate(os.environ["EXTRALIFE_CONTROL"], 0)
    with open(os.environ["EXTRALIFE_BEAT"], "r+b") as file:
        file.truncate(1 << 40)


def notify(me: Client) -> None:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        me.progress(env_steps=2)
        with contextlib.suppress(OSError):
            sock.sendto(b"STATUS=x\nWATCHDOG=1\n", os.environ["NOTIFY_SOCKET"])


def main() -> None:
    me = Client(live_period_s=0.2)
    me.phase(WorkerPhase.TRAINING, env_steps=1)
    deed = {"flood": flood, "reports": reports, "words": words, "links": links, "files": files, "notify": notify}[
        sys.argv[1]
    ]
    deed(me)
    step = 1
    while True:
        step += 1
        me.progress(env_steps=step)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
