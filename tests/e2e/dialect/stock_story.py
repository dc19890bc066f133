"""The stock `supervisorctl` 4.3.0 against extralife and against a real supervisord, command by command.

    python tests/e2e/dialect/stock_story.py         # writes docs/supervisor-compatibility.md

Both daemons supervise the same programs and are told the same. Each difference in an exit code or in what is printed has
its reason here; one without a reason, and a reason without a difference, is an error.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `tools` is, without pytest

from stock_sides import ROOT, Ours, Side, Theirs, edited, programs

DOCUMENT = ROOT / "docs" / "supervisor-compatibility.md"

# Reasons, where more than one command shares one.
GOES_ON = (
    "After `pid N, uptime H:MM:SS`, ours adds step, rate, return and checkpoint of the training, and the newest reason."
)
REAL_WORD = "After the time (or `Not started`), ours adds its own name of the phase, and the reason."
CARRIES = "Our message has file, line, key and remedy."


@dataclass(frozen=True)
class Step:
    """One command. `awaited`: it follows a log until that pattern has come, and `stdin` is typed meanwhile. `why`: the two sides differ, and why."""

    line: str
    why: str = ""
    stdin: str = ""
    awaited: str = ""
    unordered: bool = False  # Supervisor's order is not the same from run to run
    hidden: bool = False  # each daemon's own log: that there is something is all that can be compared

    @property
    def title(self) -> str:
        typed = self.stdin.replace("\n", "; ").removesuffix("; ")
        return f"{self.line}` < `{typed}" if self.line and typed else self.line or f"(the shell) {typed}"

    def run(self, side: Side) -> tuple[int, str]:
        args = tuple(self.line.split())
        code, out = side.follow(args, self.awaited, self.stdin) if self.awaited else side.ctl(args, self.stdin)
        if self.hidden:
            return code, "(the end of the daemon's log)" if out.strip() else ""
        told = side.plain(out)
        return code, "\n".join(sorted(told.splitlines())) if self.unordered else told


Act = Callable[[Side], None]


def until_state(program: str, state: str) -> Act:
    return lambda side: side.wait_state(program, state)


def edit(side: Side) -> None:
    side.configure(edited(programs(side.directory)))


def break_config(side: Side) -> None:
    side.configure(edited(programs(side.directory)), broken=True)


def wait_gone(side: Side) -> None:
    daemon = side.box.daemon if isinstance(side, Ours) else side.daemon if isinstance(side, Theirs) else None
    assert daemon is not None
    assert daemon.wait(60) == 0


STORY: list[Step | Act] = [
    until_state("talker", "RUNNING"),
    until_state("echoer", "RUNNING"),
    until_state("finisher", "EXITED"),
    Step("version", "4.3.0 for programs that compare versions (PEP 440, semver); the part behind the + names extralife."),
    Step("status", f"{GOES_ON} {REAL_WORD}"),
    Step("status talker", GOES_ON),
    Step("status talker:*", GOES_ON),
    Step("status idler finisher", REAL_WORD),
    Step("status nobody"),
    Step("status nobody:*"),
    Step("status talker nobody", GOES_ON),
    Step("pid"),
    Step("pid talker"),
    Step("pid idler"),
    Step("pid nobody"),
    Step("pid all"),
    Step("avail"),
    # start
    Step("start"),
    Step("start nobody"),
    Step("start nobody:*"),
    Step("start talker"),
    Step("start talker:*"),
    Step("start idler"),
    until_state("idler", "RUNNING"),
    Step("start quick"),
    Step("stop quick"),
    Step("start missing"),
    Step("start forbidden"),
    Step("status missing forbidden", REAL_WORD),
    # signal
    Step("signal CONT"),
    Step("signal CONT talker"),
    Step("signal 18 talker idler"),
    Step("signal NOSUCH talker"),
    Step("signal CONT nobody"),
    Step("signal CONT nobody:*"),
    Step("signal CONT quick"),
    Step("signal CONT talker:*"),
    Step("signal CONT all"),
    # logs
    Step("tail"),
    Step("tail talker"),
    Step("tail -5 talker"),
    Step("tail talker stderr"),
    Step("tail talker nochannel"),
    Step("tail nobody"),
    Step("tail missing", "Ours was tried, which makes its logs; they are empty."),
    Step("tail -f talker", awaited="talker says hello\n"),
    Step("tail -f talker stderr", awaited="talker complains\n"),
    Step("tail -f nobody"),
    Step("maintail", hidden=True),
    Step("maintail -100", hidden=True),
    Step("maintail -f", awaited="INFO|event", hidden=True),
    Step("clear"),
    Step("clear talker"),
    Step("tail talker"),
    Step("clear nobody"),
    # fg
    Step("fg"),
    Step("fg nobody"),
    Step("fg quick"),
    Step("fg echoer", stdin="is anybody there?\n", awaited="is anybody there"),
    # stop, restart
    Step("stop"),
    Step("stop idler"),
    Step("stop idler"),
    Step("stop idler:*"),
    Step("stop nobody"),
    Step("stop nobody:*"),
    Step("stop finisher"),
    Step("restart"),
    Step("restart idler"),
    until_state("idler", "RUNNING"),
    Step("restart nobody"),
    # groups
    Step("add talker"),
    Step("add nobody"),
    Step("remove talker"),
    Step("remove nobody"),
    Step("remove missing"),
    Step("remove forbidden"),
    Step("remove quick"),
    Step("add quick"),
    Step("status quick", REAL_WORD),
    Step("remove quick finisher"),
    Step("clear all", unordered=True),
    # all
    Step("stop all", unordered=True),
    Step("status", REAL_WORD),
    Step("start all", unordered=True),
    until_state("talker", "RUNNING"),
    until_state("idler", "RUNNING"),
    # the configuration
    Step("reread"),
    edit,
    Step("reread"),
    Step("update nobody"),
    Step("update fresh"),
    until_state("fresh", "RUNNING"),
    Step("update"),
    Step("reread"),
    Step("update"),
    until_state("idler", "STOPPED"),
    Step("status", f"{GOES_ON} {REAL_WORD}"),
    break_config,
    Step("reread", CARRIES),
    Step("update", CARRIES),
    edit,
    # the shell
    Step("", GOES_ON, stdin="status talker\npid idler\nversion now\nexit\n"),
    Step("frobnicate"),
    # the end
    Step("reload"),
    until_state("talker", "RUNNING"),
    until_state("fresh", "RUNNING"),
    Step("status talker", GOES_ON),
    Step("shutdown"),
    wait_gone,
    Step("status"),
    Step("start talker"),
    Step("shutdown"),
]


@dataclass(frozen=True)
class CommandOutcome:
    """What one command gave on both sides."""

    step: Step
    theirs: tuple[int, str]
    ours: tuple[int, str]

    @property
    def same(self) -> bool:
        return self.theirs == self.ours

    @property
    def same_but_for_free_text(self) -> bool:
        """Without what a daemon may say as it likes: the description of `status`, the error of a file, the version."""
        return _without_free_text(self.theirs[1]) == _without_free_text(self.ours[1])


def _without_free_text(told: str) -> str:
    for pattern, kept in (
        (r"(?m)^((?:supervisor> )?\S+ +[A-Z]+) +(?:(pid N, uptime H:MM:SS).*|.*)$", r"\1 \2"),
        (r"CANT_REREAD: .*", "CANT_REREAD"),
        (r"(?m)^(\d+\.\d+\.\d+)\+.*$", r"\1"),
    ):
        told = re.sub(pattern, kept, told)
    return told


def tell(side: Side) -> list[tuple[int, str]]:
    """The whole story on one side."""
    side.configure(programs(side.directory))
    side.start()
    told = []
    for item in STORY:
        if isinstance(item, Step):
            told.append(item.run(side))
        else:
            item(side)
    return told


def record(directory: Path) -> list[CommandOutcome]:
    """The whole story on both sides at once."""
    sides: list[Side] = [Theirs(directory / "theirs"), Ours(directory / "ours")]
    try:
        with ThreadPoolExecutor(2) as pool:
            theirs, ours = pool.map(tell, sides)
    finally:
        for side in sides:
            side.close()
    steps = [item for item in STORY if isinstance(item, Step)]
    return [CommandOutcome(*row) for row in zip(steps, theirs, ours, strict=True)]


def complaints(story: list[CommandOutcome]) -> list[str]:
    """Differences without a reason, and reasons without a difference."""
    return [
        f"{told.step.title}: supervisord {told.theirs}, extralife {told.ours}"
        for told in story
        if told.same == bool(told.step.why)
    ]


HEAD = """# Supervisor's own client

Read this when you want to use Supervisor's own client, or tools written for Supervisor, with extralife.

The `supervisorctl` of PyPI's supervisor 4.3.0, unchanged, works with extralife as it does with its own daemon: over XML-RPC on
the control socket.

```
supervisorctl -s unix:///run/extralife/supervisor.sock status
```

`python tests/e2e/dialect/stock_story.py` runs every command of the tables below against a real supervisord 4.3.0 and against extralife, with
the same programs, and writes this page. A test compares the results with it.

## Moving over

```
extralifectl import /etc/supervisor/supervisord.conf --out extralife.toml
supervisord -c extralife.toml --check
```

`import` reads programs, groups, includes, `%(...)s`, environments and event listeners. It prints each setting without a counterpart,
with the reason, on standard error and as comments at the top of the file. Its result always passes `supervisord --check`.

| supervisord.conf | extralife.toml |
|---|---|
| `numprocs`, `process_name`, `[group:x]` | a section for each process, `group = "x"` |
| `environment`, `directory`, `umask` of `[supervisord]` too | `env`, `directory`, `umask`; without `directory`, the one of the supervisord that runs, `/` for a file below `/etc`, else the present one |
| `%(ENV_NAME)s` | its present value; the file is then for its owner only (0600) |
| `SUPERVISOR_ENABLED`, `SUPERVISOR_SERVER_URL`, `SUPERVISOR_PROCESS_NAME`, `SUPERVISOR_GROUP_NAME` | every program with a `command` has them |
| `stdout_events_enabled`, `stderr_events_enabled` | the listeners' `--stdout-of`, `--stderr-of` |
| every program | `kind = "service"`: it takes no training slot, and is not judged by progress |
| `startsecs`, `startretries` | `start_s`, `start_retries`: retries after 1, 2, 3 ... s, then FATAL, and `status` ends with 3 |
| `autorestart = true`, `false`; `unexpected` + `exitcodes` | `restart = "always"`, `"never"`; `done_codes = [0, 2]`. After a successful start, the [growing delays](../supervisor/policy/worker/restart.py) of `[restart]` apply |
| `stopsignal`, `stopwaitsecs`, `stopasgroup` | `stop_signal`, `stop_grace_s`, `stop_signal_to` |
| `priority`, `autostart`, `user` | `priority` (of starts), `autostart`, `user` (also HOME, USER, LOGNAME and SHELL, unless `env` has them) |
| `redirect_stderr`, `stdout_logfile`, `stderr_logfile` | `redirect_stderr`, `stdout_log`, `stderr_log`: `AUTO`, `NONE` (also for `/dev/null`) or a path |
| `stdout_logfile_maxbytes`, `_backups` | `log_max_bytes` (0: never rotated), `log_backups`, for both channels |
| standard input, which every program has | `stdin = true`, for `fg` and `sendProcessStdin` |
| `[eventlistener:x]` | a program with `extralifectl listen EVENTS -- COMMAND` |

extralife restarts a service as Supervisor does, and adds nothing else. Without the line `kind = "service"` the same section is a
training. `extralifectl update` then gives it a slot. With a few more lines it gets steps, checkpoints, accounts and rollback:

```toml
[level]
slots = 4                      # as many as are to train side by side; the others wait, QUEUED
[program.pong]                 # as import wrote it, without kind = "service"; {resume} if the script takes a checkpoint
command = ["python", "train.py", "--game", "Pong", ["--resume", "{resume}"]]
directory = "/home/me/atari"
restart = "always"
checkpoint_glob = "runs/Pong/*.pt"
checkpoint_step = 'step=(\\d+)'
log_regex = 'step=(?P<step>\\d+) return=(?P<return>\\S+)'
```

[Any script](any-script.md) explains these lines, [four games](client.md#scripts-that-stay-as-they-are) is a complete file.

## Event listeners

A listener is a separate program whose command begins with `extralifectl listen`:

```toml
[program.crashmail]
command = ["extralifectl", "listen", "PROCESS_STATE_EXITED", "--", "/opt/superlance/bin/crashmail", "-a", "-m", "ops@example.org"]
progress = "none"
```

Install superlance and its `supervisor` in a separate environment: in extralife's environment, their package would hide
extralife's. The journal is the queue, so no event is dropped: a listener that was away continues after the last event that it
answered. Of ticks it gets only the newest. A listener that answers FAIL gets the event again. If a listener breaks the protocol,
ends, or does not answer for ten minutes (`--timeout S`), extralife ends it with one sentence in its log, and starts it again with
growing delays. superlance's memmon, httpok, crashmail, crashmailbatch and fatalmailbatch and supervisor-checks'
`supervisor_tcp_check` run unchanged; `multivisor-rpc`, a plug-in inside a supervisord process, does not. The events are
`PROCESS_STATE_*`, `PROCESS_LOG_*`, `PROCESS_GROUP_*`, `SUPERVISOR_STATE_CHANGE_*` and `TICK_*`. Programs and clients send no
events, so `PROCESS_COMMUNICATION` and `REMOTE_COMMUNICATION` never occur.

## Differences and mappings

- **Names.** As in [extralifectl](extralifectl.md#names); where Supervisor requires `group:name`, the name alone works too. `reread`
  and `update` name programs, not groups, so that a new seed does not restart the others.
- **States.** QUEUED, GATED and STOPPED appear as STOPPED, DONE as EXITED, the others unchanged; the description has extralife's
  own state. A program with `restart = "never"` that failed is EXITED, with its exit status. FATAL is for programs that were given up. So
  Supervisor's `status` ends with 3 while a program waits for a slot; extralife's own `status` ends with 0. A
  program in slow retry (its breaker is open after many deaths) appears as FATAL, so that monitoring sees it; the description
  begins with BACKOFF and has the time of the next start. extralife's own `status` shows BACKOFF and ends with 3.
- **start** answers once the process has lived for half a second or trains; Supervisor waits for `startsecs`. For a program without a
  slot the answer is `started`: it starts by itself. A program in BACKOFF starts at once; Supervisor calls it already started.
- **stop** stays in effect through restarts of daemon and host, also for a program that is FATAL or failed. `stop all` also stops
  programs that wait for a slot.
- **update** handles extralife's configuration like Supervisor's: removed programs stop, changed programs save, leave and start
  with their new settings, new programs are added. A change without a restart is listed as a group to be added, by its section:
  `[level]`, `[stall]`, or `[program.Pong]` for a program's limits. So a stock `update` applies the whole file. Unlike extralife's
  own `update` it starts a stopped program that has changed, if its `autostart` is true, and resets its count of restarts.
- **reload** lets the daemon replace itself; the workers are not touched (Supervisor stops and starts all of them). A configuration with
  mistakes is refused with CANT_REREAD and a list of all mistakes, and the daemon keeps its configuration.
- **While the daemon ends** it still answers read requests, so that `status` shows the programs that still save; Supervisor
  refuses all requests.
- **tail** replaces bytes that are not UTF-8 and shows control characters as ␛ or ␀. Supervisor's server fails at such bytes, its
  client at control characters. `tail` reads at most one MiB at a time.
- **Standard input** (`fg`, `sendProcessStdin`): only a program with `stdin = true` has it; `import` writes this setting. Other
  programs read an empty standard input, so a program that asks a question fails at once. The pipe outlives the daemon. Input that
  a program does not read within 2s is refused.
- **Refused**: `sendRemoteCommEvent` (no client sends events), `clearLog` (the daemon rotates its own log).
- **version** is `4.3.0+extralife.` and extralife's version.
"""


def document(story: list[CommandOutcome]) -> str:
    """The page."""
    differ = [told for told in story if not told.same]
    codes = sum(told.theirs[0] != told.ours[0] for told in story)
    free = sum(told.same_but_for_free_text for told in story)
    count = (
        f"{len(story)} commands; {len(differ)} of them differ in what they print, {codes} in their exit code. Without free text\n"
        f"(the description of `status`, the errors of a file, the version) {free} of {len(story)} print the same."
    )
    reasons: dict[str, list[str]] = {}
    for told in differ:
        reasons.setdefault(told.step.why, []).append(f"`{told.step.title}`")
    lines = [HEAD, "## The differences", "", count, "", "| command | difference |", "|---|---|"]
    lines += [f"| {', '.join(dict.fromkeys(titles))} | {why} |" for why, titles in reasons.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        story = record(Path(directory))
    wrong = complaints(story)
    print("\n".join(wrong) or f"{len(story)} commands, {sum(told.same for told in story)} the same on both sides")
    if wrong:
        sys.exit(1)
    DOCUMENT.write_text(document(story))


if __name__ == "__main__":
    main()
