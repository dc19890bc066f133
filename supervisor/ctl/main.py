"""From a command line of extralifectl to its exit code."""

from __future__ import annotations

import errno
import os
import sys

from supervisor.ctl.actions import run
from supervisor.ctl.completion import complete
from supervisor.ctl.outcome import GENERIC, READER_LEFT, Failed
from supervisor.ctl.session import Session, parse
from supervisor.ctl.shell import shell
from supervisor.ctl.text import reader_left


def main(argv: list[str]) -> int:
    if argv[:1] == ["__complete"]:
        return complete(argv[1:])
    try:
        options, words = parse(argv)
        session = Session(options)
        code = run(session, words) if words and not options.interactive else shell(session, words)
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
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    if full:
        print(f"Error: standard output cannot be written: {error.strerror}", file=sys.stderr)
    elif not isinstance(error, BrokenPipeError) and not reader_left():  # a closed terminal gives EIO
        raise error
    # The reader has closed the pipe (`extralifectl history | head`): that is no error. The final flush must not fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return GENERIC if full else READER_LEFT
