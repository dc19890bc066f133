"""`offsite start`, `keep`, `pause` and `resume`: the next box takes over by itself, and a machine that is always on rents it."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import shlex
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from supervisor import files
from supervisor.adapters import durable, hooks
from supervisor.adapters.alerts.delivery import deliver_to_all
from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.host.clock import boot_s
from supervisor.adapters.offsite import lease as leases
from supervisor.adapters.offsite import next_box, restoring
from supervisor.adapters.offsite.restic import Restic, ResticError
from supervisor.ctl import text
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed
from supervisor.ctl.session import Session, parse_int
from supervisor.policy.upkeep import rent
from supervisor.policy.upkeep.alarm import CRITICAL, INFO, WARNING, Notice
from supervisor.policy.upkeep.alerting import AlertSettings
from supervisor.policy.upkeep.next_box import Judgement, Sight, Verdict, Watch, judge, watched
from supervisor.policy.upkeep.offsite import Claim
from supervisor.records import replace

VALUED: Final = ("ask", "after", "every", "a-day", "usd-per-hour", "log", "if-alive")
AWAY: Final = "away"  # the repository does not answer
_BUSY: Final = 75  # exit status of `start --if-alive end`: another box trains
_START_S, _KEEP_S = 20, 60
_LOOK_S: Final = 300.0
_RESTORE_S: Final = 6 * 3600.0
_COMMAND_S: Final = 900.0
_ASK_S: Final = 60.0
_MOST_BYTES: Final = 16 << 20
_NEVER: Final = re.compile(r"wrong password|no key found")
_NONE_YET: Final = re.compile(r"Is there a repository at|unable to open config file")
_PRICE: Final = re.compile(r"^usd_per_hour=(\d{1,6}(?:\.\d{1,6})?)$", re.MULTILINE)

Say = Callable[[str], object]


def pause(session: Session, restic: Restic, word: str) -> int:
    """`offsite pause`: no machine rents the next box, and no box takes over by itself, until `offsite resume`."""
    next_box.mark(restic, word)
    session.say("the next box is paused: `supervisorctl offsite resume` ends that" if word == next_box.PAUSE else
                "the next box is rented again once it is needed")  # fmt: skip
    return OK


# --- on the new box -----------------------------------------------------------------------------------------------------


def start(session: Session, restic: Restic, options: dict[str, str], ready: Callable[..., object]) -> int:
    """Continue the trainings in the repository, begin them if it is empty, or wait while their box lives.

    `ready` is called before the take-over (`restoring.restore`). Exit status 0: the daemon may start. 75: another box trains,
    and `--if-alive end` was given. 1: nothing is to train, or it cannot be read, with the reason.
    """
    target = Path(options["--to"]).absolute()
    if (target / "journal.sqlite").exists():
        session.say(f"{target} has trainings of its own: the repository is not read")
        return OK
    alive, every_s, after_s = _choice(options), _seconds(options, "every", _START_S), _after(options)
    watch, said = Watch(), ""
    while True:
        sight, error = _looked(restic, create=True)
        watch = watched(watch, sight, boot_s())
        if sight is None:
            found = Judgement(Verdict.UNKNOWN, f"the repository does not answer: {error}")
        else:
            found = judge(watch, sight, 0.0 if alive == "take-over" else after_s)
            if (done := _taken(session, restic, target, sight, found, ready)) is not None:
                return done
        ends = found.verdict is Verdict.ENDED or (alive == "end" and sight is not None)
        if found.why != said:
            session.say(text.printable(f"{found.why}{'' if ends else '. This box waits as the next one'}"))
            said = found.why
        if ends:
            return _BUSY if found.verdict is Verdict.LIVES else GENERIC
        text.pause(every_s)


def _taken(
    session: Session, restic: Restic, target: Path, sight: Sight, found: Judgement, ready: Callable[..., object]
) -> int | None:  # fmt: skip
    """The exit status if this box has the trainings now; None: another box does."""
    if found.verdict not in {Verdict.NOTHING, Verdict.DEAD}:
        return None
    here = leases.ThisBox(socket.gethostname(), text.wall_s())
    restic.deadline_s = time.monotonic() + _RESTORE_S
    snapshots = restic.snapshots()
    session.say(text.printable(found.why))
    try:
        if all(each.lease is not None for each in snapshots):  # no copy: a box that died before its first one, or none
            if found.verdict is Verdict.NOTHING:
                if others := restic.others():
                    raise Failed(f"the repository has {others} snapshots that extralife did not make: name an empty one")
                claim, lease = leases.claim(restic, target / "offsite", None, here)
            else:
                claim, lease = leases.take_over(restic, target / "offsite", here)
            if claim not in {Claim.HELD, Claim.WRITE}:
                session.say(text.printable(f"box {lease.box} was faster"))
                return None
            session.say("no copy is there yet: the trainings begin here, and the copies with them")
            return OK

        def still(config: Path | None, about: dict[str, Any]) -> None:
            ready(config, about)
            if next_box.look(restic).named != sight.named:
                raise restoring.Overtaken("the repository has changed meanwhile")

        made = restoring.restore(
            restic, restoring.choose(snapshots), target, take_over=True, box=here.box, wall_s=here.wall_s,
            say=lambda said: session.say(text.printable(said)), ready=still, known=snapshots,
        )  # fmt: skip
    except restoring.Overtaken as lost:
        session.say(text.printable(str(lost)))
        return None
    except restoring.NotRestored as error:
        raise Failed(f"offsite start: ERROR ({text.printable(str(error))})") from error
    except ResticError as error:
        session.say(text.printable(f"the take-over failed, and is tried again: {error}"))
        return None
    for line in restoring_lines(made):
        session.say(line)
    return OK


def restoring_lines(made: restoring.Restored) -> list[str]:
    from supervisor.ctl.offsite import restored_lines

    return restored_lines(made, taken=True)


def _looked(restic: Restic, *, create: bool = False, there: bool | None = None) -> tuple[Sight | None, str]:
    """What the repository says; None and the reason if it does not answer. Raises Failed if it never will."""
    restic.deadline_s = time.monotonic() + _LOOK_S
    try:
        return next_box.look(restic, there), ""
    except ResticError as error:
        if _NEVER.search(str(error)):
            raise Failed(text.printable(str(error))) from error
        if create and _NONE_YET.search(str(error)):
            with contextlib.suppress(ResticError):  # another box makes it, or it cannot be reached
                restic.init()
                return next_box.look(restic), ""
        return None, str(error)


def _choice(options: dict[str, str]) -> str:
    given = options.get("--if-alive", "wait")
    if given not in {"wait", "end", "take-over"}:
        raise Failed(f"Error: --if-alive is wait, end or take-over, not {given!r:.40}", USAGE)
    return given


def _seconds(options: dict[str, str], name: str, default: int) -> int:
    return parse_int(options.get(f"--{name}", str(default)), f"--{name}", least=1)


def _after(options: dict[str, str]) -> float | None:
    return float(parse_int(options["--after"], "--after", least=1)) if "--after" in options else None


# --- on a machine that is always on ------------------------------------------------------------------------------------


class Keeper:
    """Looks, decides, rents, and writes all of it to its log, which is also its memory."""

    def __init__(
        self, restic: Restic, log: Path, rules: rent.RentRules, command: list[str], say: Say, alerts: AlertSettings | None
    ) -> None:  # fmt: skip
        self._restic, self._log, self._rules, self._command = restic, log, rules, command
        self._say, self._alerts = say, alerts
        self._watch_file = log.with_suffix(".watch")
        self._boot = BootFiles.of(os.environ).boot_id.read_text("ascii").strip()

    def turn(self, ask: list[str], after_s: float | None) -> rent.Step:
        """One look, and what follows from it."""
        watch = self._watch()
        sight, error = _looked(self._restic)
        if sight is not None and ask and sight.named:
            there = self._is_there(ask, sight.box)
            sight = replace(sight, there=there)
        watch = watched(watch, sight, boot_s())
        durable.replace(self._watch_file, json.dumps([self._boot, dataclasses.asdict(watch)]).encode())
        if sight is None:
            step = rent.Step("wait", AWAY, f"the repository does not answer: {error}")
        else:
            found = judge(watch, sight, after_s)
            step = rent.next_step(self._rules, self._tries(), found, sight.named, text.wall_s())
        self._note(step)
        if sight is not None and step.do == "rent":
            self._rent(sight, step.why)
        return step

    def _rent(self, sight: Sight, why: str) -> None:
        """Presume the box dead before all, look once more, and rent."""
        try:
            next_box.mark(self._restic, next_box.PRESUMED)
            again = next_box.look(self._restic)
        except ResticError as error:
            self._note(rent.Step("wait", AWAY, f"the repository does not answer: {error}"))
            return
        if again.sign != sight.sign or again.paused:
            return
        if again.presumed != socket.gethostname():
            self._record(rent.LEFT_TO, f"{why}; {again.presumed} rents the next box", sight, INFO)
            return
        env = {**hooks.environ(), "EXTRALIFE_LOST_BOX": sight.box}
        if self._rules.usd_per_hour is not None:
            env["EXTRALIFE_USD_PER_HOUR"] = f"{self._rules.usd_per_hour:g}"
        code, output = self._run(self._command, _COMMAND_S, env)
        price = _PRICE.search(output)
        usd = float(price[1]) if price else None
        if code == 0:
            costs = "" if usd is None else f" for {usd:g} USD an hour"
            self._record(rent.RENTED, f"{why}; the next box was rented{costs}", sight, WARNING, usd)
        else:
            # What it printed may have secrets, so only its status is recorded.
            how = "did not end in time" if code is None else f"ended with status {code}"
            self._record(rent.FAILED, f"{why}; the command that rents the next box {how}", sight, CRITICAL)

    def _run(self, command: list[str], limit_s: float, env: dict[str, str]) -> tuple[int | None, str]:
        try:
            return hooks.run(command, limit_s, env=env, cwd=os.getcwd(), errors=False)  # noqa: PTH109
        except OSError as error:
            self._say(text.printable(f"{command[0]} cannot be run: {error.strerror or error}"))
            return 127, ""

    def _is_there(self, ask: list[str], box: str) -> bool | None:
        code, _ = self._run(ask, _ASK_S, {**hooks.environ(), "EXTRALIFE_BOX": box})
        return {0: True, 1: False}.get(-1 if code is None else code)

    def _watch(self) -> Watch:
        try:
            boot, fields = json.loads(files.read(self._watch_file, _MOST_BYTES))
            return Watch(**fields) if boot == self._boot else Watch()  # its clock began anew
        except (OSError, ValueError, TypeError):
            return Watch()

    def _entries(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(OSError):
            for line in files.read(self._log, _MOST_BYTES).decode("utf-8", "replace").splitlines():
                with contextlib.suppress(ValueError):
                    if isinstance(entry := json.loads(line), dict):
                        yield entry

    def _tries(self) -> list[rent.Try]:
        found = []
        for each in self._entries():
            with contextlib.suppress(KeyError, TypeError, ValueError):
                if each["what"] in {rent.RENTED, rent.FAILED, rent.LEFT_TO}:
                    found.append(rent.Try(each["what"], str(each["of"]), float(each["wall_s"]), each["usd_per_hour"]))
        return found

    def _note(self, step: rent.Step) -> None:
        """Write what it sees to the log, if it has changed."""
        newest = next((each for each in reversed([*self._entries()]) if "key" in each), {})
        if newest.get("key") != step.key:
            self._write({"what": "sees", "key": step.key, "why": step.why})
            if step.severity:
                self._alert(step.why, step.severity)

    def _record(self, what: str, why: str, sight: Sight, severity: str, usd: float | None = None) -> None:
        self._write({"what": what, "why": why, "of": sight.named, "box": sight.box, "usd_per_hour": usd})
        self._alert(why, severity)

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps({"wall_s": round(text.wall_s(), 1), **entry})
        with self._log.open("a", encoding="utf-8") as out:
            out.write(f"{line}\n")
            out.flush()
            os.fsync(out.fileno())
        self._say(text.printable(str(entry["why"])))

    def _alert(self, why: str, severity: str) -> None:
        if self._alerts is None:
            return
        notice = Notice(uuid.uuid4().hex[:16], "next_box", severity, text.printable(why), text.wall_s())
        for each in deliver_to_all(self._alerts, notice):
            if each.error:
                self._say(text.printable(f"{each.target} did not get the alert: {each.error}"))


def keep(session: Session, restic: Restic, options: dict[str, str], command: list[str], alerts: AlertSettings | None) -> int:
    """Rent the next box whenever the present one is presumed dead, until the work is over."""
    if not command:
        raise Failed("Error: keep needs the command that rents a box: offsite keep [OPTIONS] -- COMMAND", USAGE)
    log = Path(options["--log"]) if "--log" in options else _log_of(restic.place)
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    dollars = options.get("--usd-per-hour")
    if dollars is not None and not re.fullmatch(r"\d+(\.\d+)?", dollars):
        raise Failed(f"Error: --usd-per-hour must be a number of dollars, not {dollars!r:.40}", USAGE)
    rules = rent.RentRules(_seconds(options, "a-day", rent.RentRules().a_day), None if dollars is None else float(dollars))
    try:
        ask = shlex.split(options.get("--ask", ""))
    except ValueError as error:
        raise Failed(f"Error: --ask: {error}", USAGE) from None
    every_s, after_s = _seconds(options, "every", _KEEP_S), _after(options)
    keeper = Keeper(restic, log, rules, command, lambda line: session.say(f"{time.strftime('%F %T')} {line}"), alerts)
    with log.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failed(f"another `offsite keep` uses {log}: name another --log, or end that one") from None
        while (step := keeper.turn(ask, after_s)).do != "end" and "--once" not in options:
            text.pause(every_s)
    return GENERIC if step.key == AWAY else OK


def _log_of(place: str) -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    return Path(home) / "extralife" / f"next-box-{place}.jsonl"

