"""`python -m workers --program Pong --algo dqn ...`: one training, alone or under the supervisor.

What is cheap comes first: mistakes in the settings are told, signals are answered and the first beat is out before
torch, which takes its seconds, is imported.
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

# glibc gives large blocks back to the kernel at once and asks for them again: at batch 2048 that is millions of page
# faults. Keeping them is worth 1.1-3.2x there (measured), less at small batches. Read only when a process starts.
_TUNABLES: Final = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456"
)
_THREADS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# For how many turns torch's threads spin for each other before they sleep, some sixty times an update (GNU's OpenMP has
# 300,000). On cores that others want too, who spins takes the time of the one that is waited for (docs/speed.md).
_SPINS: Final = ("GOMP_SPINCOUNT", "10000")


def main() -> int:
    try:
        args = parse(sys.argv[1:], os.environ)
    except BadArguments as mistakes:
        for mistake in mistakes.errors:
            print(f"workers: {mistake}", file=sys.stderr)
        return EXIT_CONFIG
    _set_allocator(args)
    try:
        return _trained(args)
    except RuntimeError as error:
        if not background.is_refused(error):
            raise
        print(f"workers: {background.NO_THREADS}", file=sys.stderr)
        return EXIT_FAILED


def _trained(args: Args) -> int:
    client = Client()
    asked = listen(client)
    prefetch.begin(client.run_dir)
    client.phase(WorkerPhase.IMPORTING, num_envs=args.num_envs, batch_size=args.batch_size)
    _set_threads(args, os.environ)
    gc.disable()  # torch's import makes half a million objects that stay: looking through them takes a sixth of its time
    from workers.run import run

    gc.freeze()
    gc.enable()
    return run(args, client, asked)


def _set_threads(args: Args, environ: MutableMapping[str, str]) -> None:
    """Before torch is imported: each library reads its own once. How long to spin may be set by whoever starts us."""
    environ.update(dict.fromkeys(_THREADS, str(args.threads)))
    environ.setdefault(*_SPINS)


def _set_allocator(args: Args) -> None:
    """Start again with the allocator's settings, once. The pid, and with it the supervisor's hold on us, stays."""
    on_cpu = args.device == "cpu" or (args.device == "auto" and not Path("/dev/nvidiactl").exists())
    if on_cpu and "GLIBC_TUNABLES" not in os.environ:
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "GLIBC_TUNABLES": _TUNABLES})  # noqa: S606  no shell wanted


if __name__ == "__main__":
    output.drop_unwritable()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything durable is on disk. Tearing down torch and envpool takes a second and has been seen to crash, which
    # would turn a finished training into a failed one.
    os._exit(code)
