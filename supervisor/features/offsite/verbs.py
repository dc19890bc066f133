"""`offsite`: copies off the box: show the newest, make one, list all, restore one, and take over the trainings."""

from __future__ import annotations

import os
import pwd
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

from supervisor.config import moved
from supervisor.ctl import text
from supervisor.ctl.locate import settings, state_dir
from supervisor.ctl.outcome import GENERIC, OK, USAGE, Failed, Unreachable
from supervisor.ctl.session import Session, parse_options
from supervisor.features.offsite.adapters import hardware, restoring
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters.restic import Restic, ResticError, ResticSnapshot
from supervisor.features.offsite.adapters.restoring import Restored
from supervisor.features.offsite.config import masked
from supervisor.features.offsite.lines import line
from supervisor.features.offsite.messages import Claim
from supervisor.features.offsite.rules import verified
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.model.codes import SUCCESS

_LOOK_S = 0.2
_FLAGS = ("--json", "--no-wait", "--take-over", "--yes")
OPTIONS = tuple(
    f"--{each}" for each in "to snapshot config-to runtime-dir repository password-file env-file sftp-command".split()
)


def offsite(session: Session, args: list[str]) -> int:
    """`offsite [status|now|list|check|init|restore --to DIR|take-over] [--json] [--no-wait]`.

    Copies off the box. `init` creates the repository, `now` makes a copy, `list` shows all, `check` verifies the repository.
    `restore --to DIR [--snapshot ID]` makes DIR a state directory. With --take-over the box that held the trainings stops
    (--yes: also if this one has less cores, memory or GPUs);
    --config-to FILE [--runtime-dir DIR] writes its configuration for this box. `take-over` brings the trainings to this box.
    Without a configuration: `--repository REPO --password-file FILE [--env-file FILE] [--sftp-command COMMAND]`. All but
    `now` work without the daemon.
    """
    words, options = parse_options(args, *_FLAGS, valued=OPTIONS)
    if len(words) > 1:
        raise Failed(f"Error: offsite takes one word, not {' '.join(words)!r}", USAGE)
    do = words[0] if words else "status"
    if do not in _DO:
        raise Failed(f"Error: offsite {text.printable(do)} is unknown; there are {', '.join(_DO)}", USAGE)
    return _DO[do](session, options)


# --- through the daemon ------------------------------------------------------------------------------------------------


def _status(session: Session, options: dict[str, str]) -> int:
    session.warn_if_dead(to_stdout="--json" not in options)
    found = session.page("offsite")
    session.show(found, page, options)
    return GENERIC if found["on"] and (found["late"] or found["fence"] or found["error"]) else OK


def page(found: dict[str, Any]) -> list[str]:
    """The newest copy, the current activity, the errors, and the box that holds the repository."""
    if not found["on"]:
        return ["nothing is copied off this box: set [offsite] repository (docs/offsite.md)"]
    lines = [line(found)]
    copied = found["copied"]
    if copied is not None:
        steps = ", ".join(f"{text.printable(name)} {text.number(step)}" for name, step in sorted(copied["steps"].items()))
        sizes = f"{text.size(copied['size_bytes'])}, {text.size(copied['sent_bytes'])} of it new"
        lines.append(f"  {copied['snapshot']} ({copied['cause']}): {steps or 'no checkpoint'}; {sizes}, in "
                     f"{text.duration(copied['took_s'])}")  # fmt: skip
        lines += [f"  not copied: {text.printable(name)}: {text.printable(why)}" for name, why in copied["missed"].items()]
    if found["error"]:
        lines.append(f"  the newest try failed: {text.printable(found['error'])}")
    if found["doing"]:
        lines.append(f"  now: {found['doing']}")
    for what, each in found["tended"].items():
        told = f"ERROR ({text.printable(each['error'])})" if each["error"] else verified(each.get("read_percent"))
        lines.append(f"  {what}, {text.when(each['wall_s'], text.wall_s())}: {told}")
    if found["generation"]:
        lines.append(f"  this box holds the repository (generation {found['generation']})" * (found["fence"] is None))
    return [each for each in lines if each]


def _print_outcome(session: Session, options: dict[str, str], *lines: str, well: bool = True) -> int:
    if "--json" in options:
        session.say_json({"ok": well, "lines": list(lines)})
    else:
        for each in lines:
            session.say(text.printable(each))
    return OK if well else GENERIC


def _asked(session: Session, options: dict[str, str], do: str) -> int:
    """Let the daemon perform an action, and wait for its end. Raises Unreachable without a daemon."""
    before = session.client.get("/api/v1/offsite")
    result = session.client.post("/api/v1/offsite", {"do": do})
    if result["code"] != SUCCESS:
        raise Failed(f"offsite {do}: ERROR ({text.printable(result['text'])})")
    if "--no-wait" in options:
        return _print_outcome(session, options, f"offsite {do}: started")
    try:
        while True:
            found = session.client.get("/api/v1/offsite")
            ended = _outcome(before, found, do)
            if ended is not None:
                return _print_outcome(session, options, ended[0], well=ended[1])
            text.pause(_LOOK_S)
    except KeyboardInterrupt:
        return _print_outcome(session, options, f"offsite {do} continues in the background")


def _outcome(before: dict[str, Any], found: dict[str, Any], do: str) -> tuple[str, bool] | None:
    """(text, whether it succeeded) once the action has ended; None before."""
    if do != "check":
        over = found["ends"] > before["ends"] and found["asked"] != "operator"
        return (found["ended"], found["ended_well"]) if over else None
    newest = found["tended"].get("check")
    if newest is None or newest == before["tended"].get("check"):
        return None
    return newest["error"] or f"the repository has {verified(newest.get('read_percent'))}", not newest["error"]


# --- with restic, from this process -------------------------------------------------------------------------------------


def _list(session: Session, options: dict[str, str]) -> int:
    restic, _ = opened(session, options)
    found = run_restic(restic.snapshots)
    session.show({"copies": list(map(_as_json, found))}, lambda found: _copies(found["copies"]), options)
    return OK


def _copies(found: list[dict[str, Any]]) -> list[str]:
    rows = [("COPY", "WHEN", "BOX", "WHY")]
    for each in reversed(found):
        takes_over = f"goes on with the trainings (generation {each['generation']})"
        why = takes_over if each["cause"] is None else each["cause"]
        rows.append((each["id"], text.when(each["wall_s"], text.wall_s()), text.printable(each["box"]), text.printable(why)))
    return text.table(rows) if found else ["the repository has no copy of extralife yet"]


def _as_json(each: ResticSnapshot) -> dict[str, Any]:
    cause = next((tag.partition("=")[2] for tag in each.tags if tag.startswith("cause=")), text.UNKNOWN)
    return {
        "id": each.id, "wall_s": each.wall_s, "box": each.host, "cause": cause if each.lease is None else None,
        "generation": None if each.lease is None else each.lease.generation,
    }  # fmt: skip


def _check(session: Session, options: dict[str, str]) -> int:
    try:
        if "--repository" not in options:
            return _asked(session, options, "check")
    except Unreachable as gone:
        session.require_dead(gone)
    restic, _ = opened(session, options)
    return _print_outcome(session, options, f"the repository has {verified(run_restic(restic.check))}")


def _init(session: Session, options: dict[str, str]) -> int:
    restic, rules = opened(session, options)
    run_restic(restic.init)
    made = f"made the repository {masked(rules.repository)}; without its password nobody can read it"
    return _print_outcome(session, options, made)


def _take_over(session: Session, options: dict[str, str]) -> int:
    try:
        return _asked(session, options, "take-over")
    except Unreachable as gone:
        session.require_dead(gone)
    restic, _ = opened(session, options)
    state_dir = _state_dir(session)
    claim, lease = run_restic(
        lambda: leases.take_over(restic, Path(state_dir) / "offsite", socket.gethostname(), text.wall_s())
    )  # fmt: skip
    if claim is not Claim.HELD:
        again = "run `extralifectl offsite take-over` again on the box that should continue"
        raise Failed(f"box {text.printable(lease.box)} has taken over at the same moment: {again}")
    held = f"this box holds the repository (generation {lease.generation}); its programs run once the daemon starts"
    return _print_outcome(session, options, held)


def _restore(session: Session, options: dict[str, str]) -> int:
    if "--to" not in options:
        raise Failed("Error: restore needs --to DIR, the state directory to make", USAGE)
    restic, rules = opened(session, options, owner=None)

    def say(said: str) -> None:
        if "--json" not in options:
            session.say(text.printable(said))

    try:
        snapshots = run_restic(restic.snapshots)
        snapshot = restoring.choose(snapshots, options.get("--snapshot", "latest"))
        made = run_restic(
            lambda: restoring.restore(
                restic, snapshot, Path(options["--to"]).absolute(), take_over="--take-over" in options,
                box=socket.gethostname(),
                wall_s=text.wall_s(), say=say,
                ready=lambda config, about: confirm_takeover(session, config, about, rules, options), known=snapshots,
            )
        )  # fmt: skip
    except restoring.NotRestored as error:
        raise Failed(f"offsite restore: ERROR ({text.printable(str(error))})") from error
    lines = restored_lines(made, taken="--take-over" in options)
    if "--json" in options:  # without --json, `confirm_takeover` has printed them before the takeover
        lines[1:1] = _shortcomings(made.about)
    if "--config-to" in options:
        lines.append(f"its configuration for this box is {options['--config-to']}")
    return _print_outcome(session, options, *lines)


def confirm_takeover(
    session: Session, config: Path | None, about: dict[str, Any], rules: OffsiteSettings, options: dict[str, str]
) -> None:  # fmt: skip
    """Before the lease and the journal are written: print what this box lacks, and ask the user. Raises Failed."""
    _write_config(config, rules, options)
    shortcomings = _shortcomings(about)
    if "--json" not in options:
        for each in shortcomings:
            session.say(text.printable(each))
    if not shortcomings or "--take-over" not in options or {"--yes", "--json"} & options.keys():
        return
    if sys.stdin.isatty() and sys.stdout.isatty():
        answer = input("continue on this box anyway, and stop the other box's programs? [y/N] ")
        if answer.strip().lower() not in {"y", "yes"}:
            raise Failed("nothing was taken over: no program starts here, and the other box continues")
    else:
        session.say("no terminal to ask: this box takes over anyway (--yes skips this question)")


def _shortcomings(about: dict[str, Any]) -> list[str]:
    """A sentence for each resource of which this box has less than the copied box."""
    return [f"this box has {each}" for each in hardware.missing(about.get("hardware") or {}, hardware.here())]


def _write_config(config: Path | None, rules: OffsiteSettings, options: dict[str, str]) -> None:
    """Write the copied configuration with this box's paths, if --config-to is given. Raises Failed."""
    if "--config-to" not in options:
        return
    if config is None:
        raise Failed("the copy has no configuration: write one with `extralife --print-default`, and set state_dir in it")
    files = {"password_file": rules.password_file, **({"env_file": rules.env_file} if rules.env_file else {})}
    to = Path(options["--config-to"]).absolute()
    wanted = moved.here(
        str(Path(options["--to"]).absolute()), options.get("--runtime-dir"), rules.repository, files,
        rules.sftp_command or None,
    )  # fmt: skip
    try:
        written = moved.moved(config.read_text(encoding="utf-8"), wanted)
    except moved.NotMoved as error:
        raise Failed(f"{config}: {text.printable(str(error))}") from error
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(written, encoding="utf-8")


def restored_lines(made: Restored, *, taken: bool) -> list[str]:
    """Lines on the restored copy, its age, and the next steps."""
    steps = ", ".join(
        text.printable(name) + ("" if step is None else f" at step {step:,}") for name, step in sorted(made.steps.items())
    )
    age = text.duration(text.wall_s() - made.wall_s)
    lines = [f"restored copy {made.snapshot} of box {text.printable(made.box)}, {age} old{f': {steps}' if steps else ''}"]
    if made.own:
        lines.append(
            f"checkpoints that scripts saved by themselves are put back before their first start (backup {made.own})"
        )
    if made.config is not None:
        lines.append(f"its configuration as it was is {made.config}")
    return [*lines, "this box goes on with these trainings; the other one stops its programs" if taken else
            "no program starts on it before `extralifectl offsite take-over`"]  # fmt: skip


def opened(session: Session, options: dict[str, str], owner: str | None = "") -> tuple[Restic, OffsiteSettings]:
    """The repository, from the options or the configuration. Raises Failed.

    As root, this process first becomes the state directory's owner. The daemon could not read files that root writes into a
    repository on a disk of this box. With `owner` None, the process keeps its user.
    """
    rules = _rules(session, options)
    if owner is not None and "--repository" not in options:
        _become_owner(_state_dir(session))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "extralife-offsite"  # noqa: PTH111
    if not os.access(cache.parent if cache.parent.exists() else cache.parent.parent, os.W_OK):
        cache = Path(tempfile.gettempdir()) / f"extralife-offsite-{os.getuid()}"
    return Restic(rules, cache), rules


def _rules(session: Session, options: dict[str, str]) -> OffsiteSettings:
    if "--repository" in options:
        if "--password-file" not in options:
            raise Failed("Error: --repository needs --password-file FILE", USAGE)
        files = {key: os.path.abspath(options[f"--{key}"]) for key in ("password-file", "env-file") if f"--{key}" in options}  # noqa: PTH100
        repository = options["--repository"]
        if ":" not in repository:
            repository = os.path.abspath(repository)  # noqa: PTH100  restic runs in another directory
        return OffsiteSettings(
            repository=repository, password_file=files["password-file"], env_file=files.get("env-file", ""),
            sftp_command=options.get("--sftp-command", ""),
        )  # fmt: skip
    found = settings(session.options)
    if found is None:
        raise Failed("the configuration cannot be read: supervisord --check says why; or name --repository")
    rules = found.of(OffsiteSettings)
    if not rules.on:
        raise Failed("no repository is configured: set [offsite] repository (docs/offsite.md), or name --repository")
    return rules


def _state_dir(session: Session) -> str:
    found = state_dir(session.options)
    if found is None:
        raise Failed("Error: name the configuration (-c FILE) or the state directory (--state-dir DIR)", USAGE)
    return found


def _become_owner(state_dir: str) -> None:
    if os.geteuid() != 0 or not os.path.isdir(state_dir):  # noqa: PTH112
        return
    uid = os.stat(state_dir).st_uid  # noqa: PTH116
    if uid == 0:
        return
    who = pwd.getpwuid(uid)
    os.initgroups(who.pw_name, who.pw_gid)
    os.setgid(who.pw_gid)
    os.setuid(uid)
    os.environ["HOME"] = who.pw_dir
    os.environ.pop("XDG_CACHE_HOME", None)


def run_restic(call: Any) -> Any:
    try:
        return call()
    except ResticError as error:
        raise Failed(text.printable(str(error))) from error
    except OSError as error:
        raise Failed(f"{error.filename or 'a file'}: {error.strerror or error}") from error


_DO = {
    "status": _status, "now": lambda session, options: _asked(session, options, "now"),
    "list": _list, "check": _check, "init": _init, "restore": _restore,
    "take-over": _take_over,
}  # fmt: skip
