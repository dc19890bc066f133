"""A training script as people write it: one checkpoint file, overwritten in place; SIGTERM saves and exits with 0.

    script.py DIRECTORY INTERVAL [CHECKPOINT]

Its own account for the checker is in small files of DIRECTORY: `steps`, `saved` (the step of its newest whole
checkpoint), `resumed` and `pid`. `slow-save` there makes the next save last for seconds, so that a kill can cut it.
"""

import os
import signal
import sys
import time
import zipfile
from pathlib import Path

HERE, INTERVAL = Path(sys.argv[1]), int(sys.argv[2])
CHECKPOINT = HERE / "last.pt"
asked: list[int] = []


def write(name: str, value: int) -> None:
    aside = HERE / f".{name}"
    aside.write_text(str(value))
    aside.replace(HERE / name)


def save(step: int) -> None:
    slow = HERE / "slow-save"
    pause_s = 0.2 if slow.exists() else 0.0
    with zipfile.ZipFile(CHECKPOINT, "w") as file:
        file.writestr("step", str(step))
        for number in range(20):
            file.writestr(f"weights{number}", os.urandom(20_000))
            if number == 2 and pause_s:
                slow.unlink()  # the order is carried out: it is in the middle of a save
            time.sleep(pause_s)
    write("saved", step)


def main() -> None:
    step = 0
    if len(sys.argv) > 3 and sys.argv[3]:
        with zipfile.ZipFile(sys.argv[3]) as file:
            step = int(file.read("step"))
            for name in file.namelist():
                file.read(name)
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    write("resumed", step)
    write("pid", os.getpid())
    while not asked:
        step += 1
        write("steps", step)
        print(f"step={step} loss={1 / step:.4f}", flush=True)
        if step % INTERVAL == 0:
            save(step)
        time.sleep(0.05)
    save(step)


if __name__ == "__main__":
    main()
