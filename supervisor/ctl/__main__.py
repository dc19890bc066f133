"""supervisorctl: `python -m supervisor.ctl`, or the installed script."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from supervisor.ctl.outcome import Options

_VALUED = {
    "-c": "config_file", "--configuration": "config_file", "-s": "socket", "--serverurl": "socket",
    "--state-dir": "state_dir", "-r": "history_file", "--history-file": "history_file",
}  # fmt: skip


def main() -> int:
    """The installed script's entry point."""
    from supervisor.ctl.actions import run
    from supervisor.ctl.outcome import INTERRUPTED, READER_LEFT, Failed
    from supervisor.ctl.session import Session

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal of another encoding still shows the rest
    try:
        options, words = parse(sys.argv[1:])
        session = Session(options)
        if not words or options.interactive:
            from supervisor.ctl.shell import shell

            return shell(session, words)
        return run(session, words)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return failed.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`supervisorctl history | head`): nothing to complain about, nor at the final flush.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_LEFT


def parse(argv: list[str]) -> tuple[Options, list[str]]:
    """(options, the action and its arguments). argparse would take a third of the time that `status` takes."""
    from supervisor.ctl.outcome import USAGE, Failed, Options

    options, rest = Options(), list(argv)
    while rest and rest[0].startswith("-"):
        arg = rest.pop(0)
        name, given, value = arg.partition("=")
        if arg in {"-h", "--help"}:
            return options, ["help"]
        if arg in {"-v", "--version"}:
            return options, ["--version"]
        if arg in {"-i", "--interactive"}:
            options.interactive = True
        elif name in _VALUED:
            if not given and not rest:
                raise Failed(f"Error: {name} needs a value", USAGE)
            setattr(options, _VALUED[name], value if given else rest.pop(0))
        else:
            raise Failed(f"Error: unknown option {arg}; see supervisorctl --help", USAGE)
    if options.socket is not None:
        if not options.socket.startswith("unix://") or len(options.socket) == len("unix://"):
            raise Failed(f"Error: -s takes unix:///path/to/socket, not {options.socket!r}", USAGE)
        options.socket = options.socket.removeprefix("unix://")
    return options, rest


if __name__ == "__main__":
    sys.exit(main())
