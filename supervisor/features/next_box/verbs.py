"""`next-box`: the next box takes over by itself, and a machine that is always on rents it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shlex
import socket
import sys
import time
import tomllib
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from supervisor import files
from supervisor.adapters import durable, hooks
from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.host.clock import boot_s
from supervisor.config import moved
from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_int, parse_options
from supervisor.features.alerts.adapters.delivery import deliver_to_all
from supervisor.features.alerts.config import alone
from supervisor.features.alerts.settings import AlertSettings
from supervisor.features.next_box import rent
from supervisor.features.next_box.adapters import repository
from supervisor.features.next_box.rules import Judgement, Sight, Verdict, Watch, judge, watched
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters import restoring
from supervisor.features.offsite.adapters.restic import Restic, ResticError
from supervisor.features.offsite.messages import Claim, Lease
from supervisor.features.offsite.verbs import OPTIONS, confirm_takeover, opened, restored_lines
from supervisor.policy.upkeep.alarm import CRITICAL, INFO, WARNING, Notice
from supervisor.records import replace

_VALUED: Final = (*OPTIONS, *(f"--{each}" for each in "ask after every arrives a-day usd-per-hour log if-alive".split()))
_TEMPLATE: Final = ("repository", "password-file", "env-file", "sftp-command")
_BUSY: Final = 75  # exit status of `start --if-alive end`: another box trains
_SETTLES_S: Final = 3.0
_LOOK_S, _RESTORE_S, _COMMAND_S, _ASK_S = 300.0, 6 * 3600.0, 900.0, 60.0
_MOST_BYTES: Final = 16 << 20
_NEVER: Final = re.compile(r"wrong password|no key found")
_PRICE: Final = re.compile(r"^usd_per_hour=(\d{1,6}(?:\.\d{1,6})?)$", re.MULTILINE)


def next_box(session: Session, args: list[str]) -> int:
    """`next-box start|keep|pause|resume|overlay [--repository REPO --password-file FILE] [--after S] [--every S]`.

    `keep [--a-day N] [--usd-per-hour X] [--arrives S] [--ask COMMAND] [--log FILE] [--once] -- COMMAND` runs on a machine
    that is always on. It runs COMMAND, which rents a box, whenever the box that holds the copies is presumed dead. `--ask`
    is a command whose exit status is 0 if the box $EXTRALIFE_BOX is there, 1 if it is gone. `pause` and `resume`: nothing
    is rented, no box takes over.
    `start --to DIR [--config-to FILE] [--if-alive wait|end|take-over]` runs on the new box, before its daemon. It restores
    the newest copy and takes over once the other box is presumed dead. `overlay -- FILE` writes the repository into a
    configuration that names none. Without these options, EXTRALIFE_OFFSITE_REPOSITORY, _PASSWORD_FILE, _ENV_FILE and
    _SFTP_COMMAND, or the configuration, name it.
    """
    at = args.index("--") if "--" in args else len(args)
    words, options = parse_options(args[:at], "--once", "--yes", valued=_VALUED)
    if len(words) != 1 or words[0] not in _DO:
        raise Failed(f"Error: next-box needs one of {', '.join(_DO)}", USAGE)
    if session.options.config_file is None:
        names = {each: f"EXTRALIFE_OFFSITE_{each.upper().replace('-', '_')}" for each in _TEMPLATE}
        options = {f"--{each}": value for each, name in names.items() if (value := os.environ.get(name))} | options
    try:
        return _DO[words[0]](session, options, args[at + 1 :])
    except ResticError as error:
        raise Failed(text.printable(str(error))) from error
    except OSError as error:
        raise Failed(f"{error.filename or 'a file'}: {error.strerror or error}") from error


def _say(session: Session, line: str) -> None:
    """At once: a container's log shows it while this box waits."""
    session.say(text.printable(line))
    sys.stdout.flush()


def _mark(session: Session, options: dict[str, str], word: str) -> int:
    restic, _ = opened(session, options, owner=None)
    repository.mark(restic, word)
    paused = "no box is rented, and none takes over, until `extralifectl next-box resume`"
    session.say(paused if word == repository.PAUSE else "the next box is rented once it is needed")
    return OK


def _overlay(session: Session, options: dict[str, str], words: list[str]) -> int:
    """Write the repository into a configuration that names none, so that one template is enough."""
    _, rules = opened(session, options, owner=None)
    path = Path(" ".join(words))
    written = path.read_text("utf-8")
    wanted = {("offsite", each.replace("-", "_")): str(getattr(rules, each.replace("-", "_"))) for each in _TEMPLATE}
    try:
        if not tomllib.loads(written).get("offsite", {}).get("repository"):
            made = moved.moved(written, {key: value for key, value in wanted.items() if value})
            durable.replace(path, made.encode(), aside=path.with_name(f"{path.name}.new"))
    except (moved.NotMoved, tomllib.TOMLDecodeError) as error:
        raise Failed(f"{path}: {text.printable(str(error))}") from error
    return OK


# --- on the new box -----------------------------------------------------------------------------------------------------


def _start(session: Session, options: dict[str, str], _: list[str]) -> int:
    """Continue the trainings in the repository, begin them if it is empty, or wait while their box lives.

    Exit status 0: the daemon may start. 75: another box trains, and `--if-alive end` was given. 1: nothing is to train.
    """
    if "--to" not in options:
        raise Failed("Error: start needs --to DIR, the state directory to make", USAGE)
    target = Path(options["--to"]).absolute()
    if (target / "journal.sqlite").exists():
        _say(session, f"{target} has trainings of its own: the repository is not read")
        return OK
    restic, rules = opened(session, options, owner=None)
    ready = partial(confirm_takeover, session, rules=rules, options={**options, "--yes": ""})
    alive, every_s, after_s = options.get("--if-alive", "wait"), _number(options, "every", 20), _after_s(options)
    if alive not in {"wait", "end", "take-over"}:
        raise Failed(f"Error: --if-alive is wait, end or take-over, not {alive!r:.40}", USAGE)
    watch, said, mine = Watch(), "", leases.read(target / "offsite")
    while True:
        sight, error = _looked(restic, mine)
        watch = watched(watch, sight, boot_s())
        found = _found(watch, sight, error, after_s, follows=alive == "take-over")
        if sight is not None and found.verdict in {Verdict.NOTHING, Verdict.DEAD}:
            if (done := _taken(session, restic, target, sight, found, ready)) is not None:
                return done
            text.pause(every_s)
            continue  # another box was faster, or the repository is away: the next look says which
        ends = found.verdict is Verdict.ENDED or (alive == "end" and sight is not None)
        if (word := error or found.verdict.value) != said:
            _say(session, f"{found.why}{'' if ends else '. This box waits as the next one'}")
            said = word
        if ends:
            return _BUSY if found.verdict is Verdict.LIVES else GENERIC
        text.pause(every_s)


def _found(watch: Watch, sight: Sight | None, error: str, after_s: float | None, *, follows: bool) -> Judgement:
    """The verdict as this box takes it. `follows`: its template says that it takes over from a live box too."""
    if sight is None:
        return Judgement(Verdict.UNKNOWN, f"the repository does not answer: {error}")
    found = judge(watch, sight, after_s)
    if follows and found.verdict in {Verdict.LIVES, Verdict.UNKNOWN, Verdict.RESTS}:
        return Judgement(Verdict.DEAD, f"box {sight.box} is followed by this box, as its template says")
    more = "; --if-alive take-over (EXTRALIFE_NEXT_BOX) continues them all the same" * (found.verdict is Verdict.RESTS)
    return replace(found, why=f"{found.why}{more}")


def _taken(
    session: Session, restic: Restic, target: Path, sight: Sight, found: Judgement, ready: Callable[..., object]
) -> int | None:  # fmt: skip
    """The exit status if this box has the trainings now; None: another box does, or the repository is away."""
    here = (socket.gethostname(), text.wall_s())
    restic.deadline_s = boot_s() + _RESTORE_S
    try:
        snapshots = restic.snapshots()
        _say(session, found.why)
        if all(each.lease is not None for each in snapshots):  # no copy: a box that died before its first one, or none
            if not snapshots and (others := restic.others()):
                raise Failed(f"the repository has {others} snapshots that extralife did not make: name an empty one")
            claim, lease = leases.take_over(restic, target / "offsite", *here)
            text.pause(_SETTLES_S)  # another box that began at the same moment has written its lease by then
            if claim is not Claim.HELD or leases.in_repository(restic) != lease:
                raise restoring.Overtaken(f"box {lease.box} was faster")
            _say(session, "no copy is there yet: the trainings begin here, and the copies with them")
            return OK

        def still(config: Path | None, about: dict[str, Any]) -> None:
            ready(config, about)
            if repository.look(restic).named != sight.named:
                raise restoring.Overtaken("the repository has changed meanwhile")

        made = restoring.restore(
            restic, restoring.choose(snapshots), target, take_over=True, box=here[0], wall_s=here[1],
            say=partial(_say, session), ready=still, known=snapshots,
        )  # fmt: skip
    except restoring.Overtaken as lost:
        _say(session, str(lost))
        return None
    except restoring.NotRestored as error:
        raise Failed(f"next-box start: ERROR ({text.printable(str(error))})") from error
    except ResticError as error:
        _say(session, f"the take-over failed, and is tried again: {error}")
        return None
    for line in restored_lines(made, taken=True):
        _say(session, line)
    return OK


def _looked(restic: Restic, mine: Lease | None = None) -> tuple[Sight | None, str]:
    """What the repository says; None and the reason if it does not answer. Raises Failed if it never will.

    `mine`: the lease that an earlier start, which was interrupted, has left here.
    """
    restic.deadline_s = boot_s() + _LOOK_S
    try:
        sight = repository.look(restic)
        if mine is not None and (holder := leases.in_repository(restic)) is not None:
            sight = replace(sight, same=sight.same or holder.token == mine.token)
    except ResticError as error:
        if _NEVER.search(str(error)):
            raise Failed(text.printable(str(error))) from error
        return None, str(error)
    return sight, ""


def _number(options: dict[str, str], name: str, default: int) -> int:
    return parse_int(options.get(f"--{name}", str(default)), f"--{name}", least=1)


def _after_s(options: dict[str, str]) -> float | None:
    return float(parse_int(options["--after"], "--after", least=1)) if "--after" in options else None


# --- on a machine that is always on ------------------------------------------------------------------------------------


class Keeper:
    """Looks, decides, rents, and writes all of it to its log, which is also its memory."""

    def __init__(self, session: Session, restic: Restic, log: Path, rules: rent.RentRules, command: list[str]) -> None:
        self._session, self._restic, self._log, self._rules, self._command = session, restic, log, rules, command
        config = session.options.config_file
        self._alerts = AlertSettings() if config is None else alone(config, os.environ)
        self._watch_file = log.with_suffix(".watch")
        self._boot = BootFiles.of(os.environ).boot_id.read_text("ascii").strip()

    def turn(self, ask: list[str], after_s: float | None) -> rent.Step:
        """One look, and what follows from it."""
        watch = read_watch(self._watch_file, self._boot)
        sight, error = _looked(self._restic)
        if sight is not None and ask and sight.named:
            code, _ = self._run(ask, _ASK_S, {"EXTRALIFE_BOX": sight.box})
            sight = replace(sight, there={0: True, 1: False}.get(-1 if code is None else code))
        watch = watched(watch, sight, boot_s())
        kept = json.dumps([self._boot, dataclasses.asdict(watch)]).encode()
        durable.replace(self._watch_file, kept, aside=self._watch_file.with_suffix(".new"))
        if sight is None:
            step = rent.away(error)
        else:
            found = judge(watch, sight, after_s)
            step = rent.next_step(self._rules, tries(self._log), found, sight.named, text.wall_s())
        self._note(step)
        if sight is not None and step.do == "rent":
            self._rent(sight, step.why)
        return step

    def _rent(self, sight: Sight, why: str) -> None:
        """Presume the box dead before all, look once more, and rent."""
        try:
            repository.mark(self._restic, repository.PRESUMED)
            again = repository.look(self._restic)
        except ResticError as error:
            return self._note(rent.away(str(error)))
        if again.sign != sight.sign or again.paused:
            return None
        if again.presumed != socket.gethostname():
            return self._record(rent.LEFT_TO, f"{why}; {again.presumed} rents the next box", sight, INFO)
        self._record(rent.ORDERED, f"{why}; runs the command that rents the next box", sight)
        most = self._rules.usd_per_hour
        limit = {} if most is None else {"EXTRALIFE_USD_PER_HOUR": f"{most:g}"}
        code, output = self._run(self._command, _COMMAND_S, {"EXTRALIFE_LOST_BOX": sight.box, **limit})
        if code != 0:  # what it printed may have secrets, so only its status is recorded
            how = "did not end in time" if code is None else f"ended with status {code}"
            return self._record(rent.FAILED, f"{why}; the command that rents the next box {how}", sight, CRITICAL)
        usd = float(price[1]) if (price := _PRICE.search(output)) else None
        costs = "" if usd is None else f" for {usd:g} USD an hour"
        return self._record(rent.RENTED, f"{why}; the next box was rented{costs}", sight, WARNING, usd)

    def _run(self, command: list[str], limit_s: float, more: dict[str, str]) -> tuple[int | None, str]:
        try:
            return hooks.run(command, limit_s, env=hooks.environ() | more, cwd=os.getcwd(), errors=False)  # noqa: PTH109
        except OSError as error:
            self._say(f"{command[0]} cannot be run: {error.strerror or error}")
            return 127, ""

    def _note(self, step: rent.Step) -> None:
        """Write what it sees to the log, if it has changed."""
        if next((each["key"] for each in reversed(_entries(self._log)) if "key" in each), "") != step.key:
            self._write({"what": "sees", "key": step.key, "why": step.why}, step.severity)

    def _record(self, what: str, why: str, sight: Sight, severity: str = "", usd: float | None = None) -> None:
        self._write({"what": what, "why": why, "of": sight.named, "box": sight.box, "usd_per_hour": usd}, severity)

    def _write(self, entry: dict[str, Any], severity: str) -> None:
        now_s, why = text.wall_s(), text.printable(str(entry["why"]))
        with self._log.open("a", encoding="utf-8") as out:
            out.write(f"{json.dumps({'wall_s': round(now_s, 1), **entry})}\n")
            out.flush()
            os.fsync(out.fileno())
        self._say(why)
        notice = Notice(uuid.uuid4().hex[:16], "next_box", severity, why, now_s)
        for each in deliver_to_all(self._alerts, notice) if severity else ():
            if each.error:
                self._say(f"{each.target} did not get the alert: {each.error}")

    def _say(self, line: str) -> None:
        _say(self._session, f"{time.strftime('%F %T')} {line}")


def read_watch(path: Path, boot: str) -> Watch:
    try:
        of, fields = durable.read_json(path)
        return Watch(**fields) if of == boot else Watch()  # its clock began anew
    except (OSError, ValueError, TypeError):
        return Watch()


def tries(log: Path) -> list[rent.Try]:
    rows = [each for each in _entries(log) if "of" in each]
    return [rent.Try(each["what"], each["of"], each["wall_s"], each["usd_per_hour"]) for each in rows]


def _entries(log: Path) -> list[dict[str, Any]]:
    """Raises OSError if the log is there and cannot be read: its limits would not hold."""
    try:
        lines = files.read(log, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):  # torn by a power cut
            found.append(durable.json_of(line))
    return [each for each in found if isinstance(each, dict)]


def _keep(session: Session, options: dict[str, str], command: list[str]) -> int:
    """Rent the next box whenever the present one is presumed dead, until the work is over."""
    if not command:
        raise Failed("Error: keep needs the command that rents a box: next-box keep [OPTIONS] -- COMMAND", USAGE)
    restic, _ = opened(session, options, owner=None)
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    log = Path(options.get("--log", f"{home}/extralife/next-box-{restic.place}.jsonl"))
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    dollars = options.get("--usd-per-hour")
    if dollars is not None and not re.fullmatch(r"\d+(\.\d+)?", dollars):
        raise Failed(f"Error: --usd-per-hour must be a number of dollars, not {dollars!r:.40}", USAGE)
    rules = rent.RentRules(
        _number(options, "a-day", 4), None if dollars is None else float(dollars), _number(options, "arrives", 1200)
    )  # fmt: skip
    try:
        ask = shlex.split(options.get("--ask", ""))
    except ValueError as error:
        raise Failed(f"Error: --ask: {error}", USAGE) from None
    every_s, after_s, keeper = _number(options, "every", 60), _after_s(options), Keeper(session, restic, log, rules, command)
    with log.with_suffix(".lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed(f"another `next-box keep` uses {log}: name another --log, or end that one") from None
        while (step := keeper.turn(ask, after_s)).do != "end" and "--once" not in options:
            text.pause(every_s)
    return GENERIC if step.key == rent.AWAY else OK


_DO: Final[dict[str, Callable[[Session, dict[str, str], list[str]], int]]] = {
    "start": _start, "keep": _keep, "overlay": _overlay,
    "pause": lambda session, options, _: _mark(session, options, repository.PAUSE),
    "resume": lambda session, options, _: _mark(session, options, repository.RESUME),
}  # fmt: skip
