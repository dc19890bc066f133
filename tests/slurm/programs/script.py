"""A script that knows nothing of extralife: it prints its steps, saves at the Ctrl-C of its stop signal, resumes where it is told.

script.py DIRECTORY [--resume=CHECKPOINT]
"""

import os
import signal
import sys
import time
import zipfile
from pathlib import Path


def main() -> None:
    directory, resume = Path(sys.argv[1]), sys.argv[2].partition("=")[2] if len(sys.argv) > 2 else ""
    directory.mkdir(exist_ok=True)
    step = int(Path(resume).stem.partition("-")[2]) if resume else 0
    with (directory / "begins").open("a") as file:
        file.write(f"{step} {os.environ['SLURM_JOB_ID']}\n")

    def save() -> None:
        aside = directory / f".{step}"
        with zipfile.ZipFile(aside, "w") as file:
            file.writestr("weights", str(step))
        aside.rename(directory / f"step-{step}.ckpt")

    def leave(*_: object) -> None:
        save()
        announced = Path(os.environ["EXTRALIFE_LEAVE_BY"])  # a preempted job is asked before anybody could announce it
        (directory / "announced").write_text(announced.read_text() if announced.exists() else "")
        with (directory / "leaves").open("a") as file:
            file.write(f"{step}\n")
        sys.exit(1)

    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)  # Slurm itself sends it to every process of a job that is preempted
    while True:
        time.sleep(0.1)
        step += 1
        print(f"step={step} loss=0.5", flush=True)
        if step % 50 == 0:
            save()


if __name__ == "__main__":
    main()
