"""`python -m workers --program Pong --algo dqn ...`: one training, alone or under the supervisor.

Cheap steps come first: mistakes in the settings are printed, signal handlers are installed and the first beat is written
before the import of torch, which takes seconds.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workers import background, output, prefetch
from workers.args import BadArguments, parse
from workers.contract import EXIT_CONFIG, EXIT_FAILED, Client, WorkerPhase
from workers.listen import listen

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from workers.args import Args

# glibc returns large blocks to the kernel at once and allocates them again: at batch 2048 that is millions of page
# faults. Keeping the blocks is 1.1-3.2x as fast there (measured), less at small batches. glibc reads this variable only
# when a process starts.
_TUNABLES: Final = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"
)
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Number of turns that torch's threads spin while they wait for each other, before they sleep; they wait about sixty times
# an update (GNU's OpenMP has 300,000 turns). On shared cores a spinning thread takes CPU time from the thread that it waits
# for: with 3,000 turns (0.15 ms) instead of 10,000 a busy machine of two cores needs 18 to 22 % less CPU time a step
# (`GOMP_SPINCOUNT=10000 python bench/throughput.py ppo pqn`, docs/speed.md). Waking many threads takes longer than waking
# one, and was not measured: more than two threads keep 10,000.
_SPINS: Final = "GOMP_SPINCOUNT"
_FEW_THREADS: Final = 2


def main() -> int:
    try:
        args = parse(sys.argv[1:], os.environ)
    except BadArguments as mistakes:
        for mistake in mistakes.errors:
            print(f"workers: {mistake}", file=sys.stderr)
        return EXIT_CONFIG
    _set_allocator(args)
    try:
        return _import_and_run(args)
    except RuntimeError as error:
        if not background.is_refused(error):
            raise
        print(f"workers: {background.NO_THREADS}", file=sys.stderr)
        return EXIT_FAILED


def _import_and_run(args: Args) -> int:
    client = Client()
    pending = listen(client)
    prefetch.begin(client.run_dir)
    client.phase(WorkerPhase.IMPORTING, num_envs=args.num_envs, batch_size=args.batch_size)
    _set_threads(args, os.environ)
    gc.disable()  # torch's import creates half a million permanent objects: collecting takes a sixth of its time
    from workers.run import run

    gc.freeze()
    gc.enable()
    return run(args, client, pending)


def _set_threads(args: Args, environ: MutableMapping[str, str]) -> None:
    """Call it before torch is imported: each library reads its variable once. The user may set the spin count."""
    environ.update(dict.fromkeys(_THREADS, str(args.threads)))
    environ.setdefault(_SPINS, "3000" if args.threads <= _FEW_THREADS else "10000")


def _set_allocator(args: Args) -> None:
    """Re-execute this program once, with the allocator's settings. The pid stays the same, so supervision continues."""
    on_cpu = args.device == "cpu" or (args.device == "auto" and not Path("/dev/nvidiactl").exists())
    if on_cpu and "GLIBC_TUNABLES" not in os.environ:
        argv = [sys.executable, "-Xutf8=1", *sys.orig_argv[1:]]  # file names are UTF-8, whatever the locale
        os.execve(sys.executable, argv, {**os.environ, "GLIBC_TUNABLES": _TUNABLES})  # noqa: S606  no shell wanted


if __name__ == "__main__":
    output.drop_unwritable()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All durable data is on disk. Tearing down torch and envpool takes a second and sometimes crashes, which would turn
    # a finished training into a failed one.
    os._exit(code)
