"""`preload.c`, compiled: what makes a process see another wall clock, or a kernel that gives no descriptor or begins no process.

env |= preload.environment(directory)       # for the process under test
preload.set_clock(directory, -3600)         # while it runs
"""

from pathlib import Path

from tools import compiled

SOURCE = Path(__file__).with_suffix(".c")


def environment(directory):
    library, _ = compiled(SOURCE, "preload.so", "-ldl")
    return {"LD_PRELOAD": str(library), "FAULTS_DIR": str(directory)}


def set_clock(directory, seconds):
    """The wall clock is off by so much from now on; old or new for every reader."""
    aside = directory / "clock.tmp"
    aside.write_text(str(int(seconds)))
    aside.rename(directory / "clock")


def no_forks(directory, *, refused):
    if refused:
        (directory / "fork").touch()
    else:
        (directory / "fork").unlink()


def no_thread(directory, number):
    """The thread of this number cannot be begun; in the process's next image it is the one after it."""
    (directory / "thread").write_text(str(number))


def no_opens(directory, number):
    """No descriptor is given from now on, with this error; None: as before."""
    path = directory / "open"
    if number is None:
        path.unlink(missing_ok=True)
    else:
        aside = directory / "open.tmp"
        aside.write_text(str(number))
        aside.rename(path)
