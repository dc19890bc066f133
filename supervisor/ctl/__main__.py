"""supervisorctl: `python -m supervisor.ctl`, or the installed script."""

from __future__ import annotations

import sys


def main() -> int:
    """The installed script's entry point."""
    try:
        return _main()
    except KeyboardInterrupt:  # Ctrl-C may come during the imports, too
        from supervisor.ctl.outcome import INTERRUPTED

        return INTERRUPTED


def _main() -> int:
    from supervisor.ctl.actions import run
    from supervisor.ctl.command_line import parse
    from supervisor.ctl.outcome import Failed
    from supervisor.ctl.session import Session

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal cannot encode is escaped
    if sys.argv[1:2] == ["__complete"]:
        from supervisor.ctl.completion import complete

        return complete(sys.argv[2:])
    try:
        options, words = parse(sys.argv[1:])
        session = Session(options)
        if not words or options.interactive:
            from supervisor.ctl.shell import shell

            code = shell(session, words)
        else:
            code = run(session, words)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, and not at the exit of the interpreter, where an error would become exit code 120
    except Failed as failed:
        print(failed, file=sys.stderr)
        return failed.code
    except OSError as error:
        return _output_lost(error)
    return code


def _output_lost(error: OSError) -> int:
    """The exit code if standard output cannot be written. Raises any other error again."""
    import errno
    import os

    from supervisor.ctl.outcome import GENERIC, READER_LEFT
    from supervisor.ctl.text import reader_left

    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    if full:
        print(f"Error: standard output cannot be written: {error.strerror}", file=sys.stderr)
    elif not isinstance(error, BrokenPipeError) and not reader_left():  # a closed terminal gives EIO
        raise error
    # The reader has closed the pipe (`supervisorctl history | head`): that is no error. The final flush must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return GENERIC if full else READER_LEFT


if __name__ == "__main__":
    sys.exit(main())
