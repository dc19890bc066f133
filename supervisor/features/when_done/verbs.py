"""`when-done`: the command that stops this box once its work is over."""

from __future__ import annotations

from supervisor.ctl import text
from supervisor.ctl.level import span_s
from supervisor.ctl.outcome import OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_options
from supervisor.model.codes import SUCCESS

_WITHOUT = "no command stops this box: set [when_done] command (docs/accounts.md)"


def when_done(session: Session, args: list[str]) -> int:
    """`when-done [status|cancel|delay 2h|now] [--json]`.

    The command that stops this box once its work is over. cancel: it waits for new work; delay: it does not run before;
    now: it runs without further waiting, after a failed copy also without a copy.
    """
    words, options = parse_options(args, "--json")
    do, *rest = words or ["status"]
    if do not in {"status", "cancel", "delay", "now"} or len(rest) != (do == "delay"):
        raise Failed("Error: when-done takes status, cancel, delay with a span such as 2h, or now", USAGE)
    if do == "status":
        session.warn_if_dead(to_stdout="--json" not in options)
        found = session.page("status")["daemon"]["when_done"]
        session.show(found or {"line": _WITHOUT}, lambda page: [text.printable(page["line"])], options)
        return OK
    told = session.client.post("/api/v1/when-done", {"do": do} | ({"for_s": span_s(rest[0], do)} if rest else {}))
    if told["code"] != SUCCESS:
        raise Failed(f"when-done {do}: ERROR ({text.printable(told['text'])})")
    session.show(told, lambda page: [f"when-done {do}: {text.printable(page['text'])}"], options)
    return OK
