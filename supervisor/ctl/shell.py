"""The interactive shell: the same actions at a prompt, `status` first, always exit code 0 (as Supervisor's)."""

from __future__ import annotations

import cmd
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from supervisor.ctl.actions import run
from supervisor.ctl.completion import candidates
from supervisor.ctl.outcome import OK
from supervisor.ctl.session import Session

_HISTORY_LINES = 1000


def shell(session: Session, words: list[str]) -> int:
    """Run the shell. `words` is the action from the command line (with -i): it runs first, in place of `status`."""
    session.options.interactive = True
    run(session, words or ["status"])
    loop = _Shell(session)
    with _history(session.options.history_file):
        while True:
            try:
                loop.cmdloop()
            except KeyboardInterrupt:
                session.say("")  # Ctrl-C drops the line that is being typed
            else:
                return OK


class _Shell(cmd.Cmd):
    prompt = "extralife> "

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def onecmd(self, line: str) -> bool:
        words = line.split()
        if not words:
            return False
        if words[0] in {"exit", "quit", "EOF"}:
            if words[0] == "EOF":
                self._session.say("")
            return True
        try:
            run(self._session, words)
        except KeyboardInterrupt:
            self._session.say("")
        sys.stdout.flush()
        return False

    def completenames(self, text: str, *_: object) -> list[str]:
        return [name for name, _ in candidates(self._session, [], text) if name.startswith(text)]

    def completedefault(self, text: str, line: str, begins: int, _: int) -> list[str]:
        return [name for name, _ in candidates(self._session, line[:begins].split(), text) if name.startswith(text)]


@contextlib.contextmanager
def _history(path: str | None) -> Iterator[None]:
    """Keep readline's history over sessions. The shell also works if the history cannot be read or saved."""
    try:
        import readline
    except ImportError:
        yield
        return
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    file = Path(path) if path else Path(base) / "extralife" / "history"
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_HISTORY_LINES)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            readline.write_history_file(file)
