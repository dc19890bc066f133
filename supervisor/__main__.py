"""supervisord: reads the command line, checks the configuration, becomes the daemon."""

from __future__ import annotations

import argparse
import errno
import functools
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TextIO, cast

from supervisor import files, image, lack, utf8
from supervisor.adapters.host import sd_journal
from supervisor.shell import exit_codes

if TYPE_CHECKING:
    from types import ModuleType

    from supervisor import config
    from supervisor.adapters.last_config import Instead

_DETACH_S: Final = 60.0

# structlog imports rich if it is installed, a sixth of a start's computing time. The daemon's tracebacks are plain text.
sys.modules.setdefault("rich", cast("ModuleType", None))


def version() -> str:
    """The version of the installed distribution, or a text that says that this checkout is not installed."""
    try:
        return metadata.version("extralife")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"


def parser() -> argparse.ArgumentParser:
    """The command line; all other settings are in the configuration."""
    made = argparse.ArgumentParser(
        prog="supervisord", description="extralife keeps training runs alive through crashes, stalls and reboots."
    )
    made.add_argument(
        "-c", "--config", metavar="FILE", help="configuration file; default: $EXTRALIFE_CONFIG, ./extralife.toml, ..."
    )
    made.add_argument("--state-dir", metavar="DIR", help="durable state: journal, checkpoints, logs")
    made.add_argument("--runtime-dir", metavar="DIR", help="socket and beats; should be on tmpfs")
    made.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning, error")
    made.add_argument("--slots", metavar="N", help="programs at once")
    made.add_argument("--check", action="store_true", help="check the configuration, print its mistakes, and exit")
    made.add_argument("--print-default", action="store_true", help="print the embedded default configuration, and exit")
    made.add_argument(
        "--detach", action="store_true", help="start in the background; return once the daemon answers requests"
    )
    made.add_argument("-n", "--nodaemon", action="store_true", help="stay in the foreground (the default)")
    made.add_argument("-v", "--version", action="version", version=version())
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status, one of `shell/exit_codes.py`."""
    utf8.settle()
    for number in range(3):  # a closed one would become the next file that is opened, such as the journal
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sd_journal.is_stream(2, os.environ):
        sys.stderr = cast("TextIO", sd_journal.SeverityPrefixer(sys.stderr))
    args = list(sys.argv[1:] if argv is None else argv)
    options = parser().parse_args(args)
    if not (options.check or options.detach or options.print_default):
        image.keep_signals(of_daemon=image.ENV_LISTEN_FD in os.environ)
    started_as = image.pin_release()
    try:
        return _main(args, options, started_as)
    except Exception as error:
        if not lack.is_lack(error):
            raise
        status = _refused(error)
    if options.check or options.detach:
        return status
    print("supervisord: starts once the machine has descriptors, memory and threads again", file=sys.stderr)
    # A start that failed halfway has locks, sockets and threads: only another image begins without them.
    image.begin_again(image.again(started_as, tuple(args)))
    return status


def _main(args: list[str], options: argparse.Namespace, started_as: str) -> int:
    """The same; raises the error if the machine lacks descriptors, memory or threads."""
    from supervisor import collision, config

    if options.print_default:
        print(config.DEFAULT_TOML, end="")
        return 0
    flags = {key: getattr(options, key) for key in ("state_dir", "runtime_dir", "log_level", "slots")}
    environ = dict(os.environ)
    if not (options.check or options.detach):
        gc.disable()  # until all imports are done: the objects that they create stay alive
        if not _wait_for_turn(environ, options.config):
            return 0

    def load(*, starting: bool = False) -> config.Loaded:
        from supervisor.adapters.next_image import wait_until_written

        if not options.check and (sentence := wait_until_written(options.config, environ)) is not None:
            raise config.ConfigError([sentence])
        image.early.discard(signal.SIGHUP)  # this reading sees what it was sent for
        return config.load(options.config, environ, flags, starting=starting, as_owner=options.check)

    instead: Instead | None = None
    try:
        if options.check:
            import supervisor.shell.daemon  # noqa: F401  a reload runs this check on the image that it would start

            loaded = load()
        else:
            loaded, instead = _load_or_last_good(
                functools.partial(load, starting=not options.detach), options.config, environ, flags
            )
    except config.ConfigError as error:
        _print_messages(error.errors)
        return exit_codes.BAD_CONFIG
    _print_messages([f"warning: {sentence}" for sentence in (*loaded.warnings, collision.sentence()) if sentence])
    if options.check:
        return _checked(loaded)
    if options.detach:
        return detach([arg for arg in args if arg != "--detach"], loaded)
    return serve(loaded, load, args, started_as, instead)


def _print_messages(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"supervisord: {sentence}", file=sys.stderr)


def _checked(loaded: config.Loaded) -> int:
    from supervisor import config

    print(config.summary(loaded.settings))
    return 0


def _load_or_last_good(
    load: Callable[[], config.Loaded], config_file: str | None, environ: dict[str, str], flags: dict[str, object]
) -> tuple[config.Loaded, Instead | None]:
    """The settings, or the last daemon's settings if the configuration cannot be used. Raises ConfigError."""
    from supervisor import config
    from supervisor.adapters import last_config

    loaded: config.Loaded | None = None
    try:
        loaded = load()
        lost = last_config.lost_file(config_file, environ, flags)
        if not lost:
            return loaded, None
        errors = [lost]
    except config.ConfigError as error:
        errors = error.errors
    found = last_config.in_place(errors, config_file, environ, flags)
    if found is not None:
        _print_messages([*errors, f"STARTS WITH THE LAST GOOD CONFIGURATION, {found[1].where}"])
        return found
    if loaded is None:
        raise config.ConfigError(errors)
    return loaded, None


def _wait_for_turn(environ: dict[str, str], config_file: str | None) -> bool:
    """Under a service manager, a start too soon after others waits. A new image of this process does not wait."""
    from supervisor.adapters.host import starts

    return image.ENV_LISTEN_FD in environ or starts.wait_for_turn(environ, config_file)


def serve(
    loaded: config.Loaded, load: Callable[[], config.Loaded], args: Sequence[str], started_as: str, instead: Instead | None
) -> int:
    """Become the daemon. An obstacle to the start is reported as one sentence on standard error."""
    from supervisor.adapters.singleton import Taken
    from supervisor.api.listener import SocketTaken
    from supervisor.shell.daemon import Daemon, Start

    gc.freeze()  # code objects live as long as the daemon: garbage collection skips them
    gc.enable()
    try:
        return Daemon(loaded, load, Start(tuple(args), version(), started_as, instead=instead)).run()
    except (Taken, SocketTaken, OSError) as error:
        if lack.is_lack(error):
            raise
        return _refused(error)


def _refused(error: Exception) -> int:
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
    print(f"supervisord: {where}{getattr(error, 'strerror', None) or str(error) or type(error).__name__}", file=sys.stderr)
    return exit_codes.REFUSED


def detach(args: list[str], loaded: config.Loaded) -> int:
    """Start the daemon in a new session and wait until it serves requests. Otherwise print the reason."""
    from supervisor.adapters import singleton

    paths = loaded.settings.paths
    try:
        _may_make(paths.state_dir)
        Path(paths.state_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    except (singleton.Taken, OSError) as error:
        return _refused(error)
    output = Path(paths.state_dir) / "supervisord.out"
    with _output(output) as out:
        process = subprocess.Popen(
            image.again(sys.executable, tuple(args)),
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    deadline_s = time.monotonic() + _DETACH_S  # noqa: TID251  a short wait inside one boot
    while process.poll() is None and time.monotonic() < deadline_s:  # noqa: TID251
        if _serves(paths.socket):
            print(f"extralife runs as pid {process.pid}; its log is {paths.main_log}")
            process.returncode = 0  # stops Popen from waiting for it
            return 0
        time.sleep(0.05)  # noqa: TID251  nothing to wait on: the socket does not exist yet
    sys.stderr.write(files.text(output) + "\n")
    if process.poll() is None:
        print(f"supervisord: pid {process.pid} does not serve {paths.socket} yet; see {paths.main_log}", file=sys.stderr)
        process.returncode = 0
        return exit_codes.REFUSED
    return process.returncode or exit_codes.REFUSED


def _output(path: Path) -> IO[bytes]:
    """The file that gets what a detached daemon prints; without room for it, /dev/null: the main log has its decisions."""
    try:
        return os.fdopen(files.open_own(path, os.O_WRONLY | os.O_TRUNC, 0o666), "wb")
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        return Path(os.devnull).open("wb")


def _may_make(state_dir: str) -> None:
    """Raises the error that would keep the daemon from starting there. The daemon itself checks again.

    Without this check, the output file alone would create a directory on the wrong disk, or truncate the file of a running
    daemon.
    """
    from supervisor.adapters import singleton
    from supervisor.adapters.host import known_mount

    known_mount.refuse_if_missing(state_dir, known_mount.cache_dir(os.environ))
    claimed = singleton.claim(state_dir)
    if claimed is not None:
        claimed.close()


def _serves(path: str) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
            probe.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return probe.recv(64).startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 503 "))  # 503: it serves, but reports trouble
        except OSError:
            return False


if __name__ == "__main__":
    sys.exit(main())
