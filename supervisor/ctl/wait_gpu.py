"""`wait-gpu`: start any command of the shell once a GPU has enough free memory. Needs no daemon.

It uses the daemon's rule (`policy/box/gate.py`) and the same readings: five samples per second, of which the least of the
last seconds counts. At the end the command replaces this process, so exit code, signals and output are the command's own.
"""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace

from supervisor.adapters.host.clock import boot_s
from supervisor.adapters.host.gpu_nvml import NvmlGpu
from supervisor.ctl.locate import settings
from supervisor.ctl.outcome import NOT_EXECUTABLE, NOT_FOUND, TIMED_OUT, UNKNOWN_GPU, USAGE, Failed
from supervisor.ctl.session import Session, parse_int, parse_options, split_command
from supervisor.formats import span
from supervisor.model.settings import Settings
from supervisor.policy.box.gate import Answer, GateSettings, Wish, check
from supervisor.policy.box.readings import Gpus
from supervisor.policy.box.visible import gpu_seen

_LOOK_S = 0.5
_WARN_EVERY_S = 30.0
_VALUED = ("--min-free-mb", "--gpu", "--timeout", "--poll", "--fallback-batch", "--if-no-gpu")
_MB = 2**20


def wait_gpu(session: Session, args: list[str]) -> int:
    """`wait-gpu --min-free-mb N [--gpu I] [--timeout S] [--poll S] [--fallback-batch B] [--if-no-gpu run] -- CMD`.

    Start a command once a GPU has the memory for it; needs no daemon. Exit code 75: timeout, 69: no GPU is known.
    """
    # This process becomes the command: the function never returns, it can only raise Failed.
    given, command = split_command(args)
    plain, options = parse_options(given, valued=_VALUED)
    if plain or not command:
        raise Failed("Error: wait-gpu needs a command after --: wait-gpu --min-free-mb 12000 -- python train.py", USAGE)
    if shutil.which(command[0]) is None:  # report this now, not after an hour of waiting
        raise Failed(f"wait-gpu: {command[0]} is not found, or not executable", NOT_FOUND)
    wish, run_without = _asked(options, session)
    env = dict(os.environ)
    if wish.pinned:  # GPUs count in the order of the bus, as in NVML and nvidia-smi; CUDA orders by speed
        env |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(wish.gpu)}
    batch_size = _wait(session, wish, run_without=run_without)
    if batch_size is not None:
        env["EXTRALIFE_BATCH_SIZE"] = str(batch_size)
    try:
        os.execvpe(command[0], command, env)  # noqa: S606  no shell, on purpose
    except OSError as error:
        raise Failed(f"wait-gpu: {command[0]} cannot be run: {error.strerror}", NOT_EXECUTABLE) from error


def _asked(options: dict[str, str], session: Session) -> tuple[Wish, bool]:
    """(the wish from the options, whether to run without a GPU). The configuration's [gate] has the defaults, if any."""
    found: Settings | None = settings(session.options)
    gate = GateSettings() if found is None else found.gate
    least_mb = parse_int(options.get("--min-free-mb", str(gate.min_free_mb)), "--min-free-mb")
    if not least_mb:
        raise Failed("Error: how much memory? Use --min-free-mb N, or set min_free_mb in [gate] of the configuration", USAGE)
    without = options.get("--if-no-gpu", "fail")
    if without not in {"fail", "run"}:
        raise Failed(f"Error: --if-no-gpu is fail or run, not {without!r}", USAGE)
    fallback = parse_int(options["--fallback-batch"], "--fallback-batch", least=1) if "--fallback-batch" in options else None
    wish = Wish(
        gpu=parse_int(options.get("--gpu", "0"), "--gpu"), pinned="--gpu" in options, claimed=True,
        configured_bytes=least_mb * _MB, learned_bytes=None, poll_s=_seconds(options, "--poll", gate.poll_s),
        timeout_s=_seconds(options, "--timeout", gate.timeout_s), on_timeout="give_up", fallback_batch=fallback,
        waited_s=0.0,
    )  # fmt: skip
    return wish, without == "run"


def _seconds(options: dict[str, str], name: str, otherwise: float) -> float:
    try:
        value = float(options.get(name, otherwise))
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise Failed(f"Error: {name} must be a number of seconds, not {options[name]!r}", USAGE)
    return value


def _wait(session: Session, wish: Wish, *, run_without: bool) -> int | None:
    """Wait until the command may start. Return the batch to start with; None means its own. Raises Failed."""
    readings = NvmlGpu()
    readings.start()
    began_s, warned_s, never = boot_s(), float("-inf"), threading.Event()
    try:
        while True:
            waited_s = boot_s() - began_s
            gpus = readings.newest()
            if gpus is not None and not gpus.gpus:
                _without(session, gpus, run_without=run_without)
                return None
            seen = wish.gpu if wish.pinned else gpu_seen(os.environ.get("CUDA_VISIBLE_DEVICES"), 0, gpus)
            if seen is None:
                _without(session, Gpus((), "CUDA_VISIBLE_DEVICES names no GPU that NVML shows"), run_without=run_without)
                return None
            verdict = check(replace(wish, gpu=seen, waited_s=waited_s), gpus, reserved_bytes=0)
            if verdict.answer is Answer.START:
                return verdict.batch_size
            if verdict.answer is Answer.GIVE_UP:
                raise Failed(f"wait-gpu: {verdict.why}", TIMED_OUT if waited_s >= wish.timeout_s else USAGE)
            if verdict.answer is Answer.WAIT and waited_s - warned_s >= _WARN_EVERY_S:
                session.warn(f"wait-gpu: {verdict.why} ({span(waited_s)} of {span(wish.timeout_s)})")
                warned_s = waited_s
            never.wait(_LOOK_S)
    finally:
        readings.stop()


def _without(session: Session, gpus: Gpus, *, run_without: bool) -> None:
    why = f"wait-gpu: the GPUs cannot be read: {gpus.error or 'this box has none'}"
    if not run_without:
        raise Failed(f"{why}; --if-no-gpu run starts the command anyway", UNKNOWN_GPU)
    session.warn(f"{why}; the command starts anyway")
