"""Checks of `doctor` on `[alerts]`, `[offsite]` and `[notice]`: alerts, copies and notices of the end could arrive.

Alerts are not sent; `supervisorctl alerts test` does. One small file is copied into the repository, restored and removed.
Each source of notices that announce the end of this box is queried once.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pwd
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from supervisor import files
from supervisor.adapters.host.boot import BootFiles
from supervisor.adapters.host.clock import SystemClock, boot_s, wall_s
from supervisor.adapters.notices import detect
from supervisor.adapters.notices.local import Command, File, Unreadable, source
from supervisor.adapters.offsite import restoring
from supervisor.adapters.offsite.restic import COPY_TAG, Restic, ResticError
from supervisor.config.offsite import unfit
from supervisor.config.secrets import lines_in
from supervisor.ctl import text
from supervisor.ctl.checks import Finding, Installation, probed
from supervisor.policy.upkeep.alerting import AlertSettings, target_name
from supervisor.policy.upkeep.notices import COMMAND, FILE
from supervisor.policy.upkeep.offsite import OffsiteSettings

_PROBE_S: Final = 30.0
_HOMES: Final = ("/home/", "/root/", "/run/user/")  # directories that ProtectHome= of the unit hides (systemd.exec(5))
# Parses the URLs as the daemon would, and sends nothing. The URLs come on standard input, because `ps` shows arguments.
_PROBE: Final = """
import json, logging, sys
logging.disable(logging.CRITICAL)
import apprise
print(json.dumps([apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None for url in json.load(sys.stdin)]))
"""


def alerts(installation: Installation) -> Iterator[Finding]:
    """Alerts have a target, and the daemon can use every configured one."""
    rules = installation.settings.alerts
    if not rules.urls and not rules.urls_file and not rules.command:
        do = "set [alerts] urls_file or command (docs/alerts.md), then: supervisorctl alerts test"
        yield Finding("alerts", "warn", "alerts go nowhere: reboots and abandoned trainings are not reported", do)
        return
    user = _daemon_user(installation.settings.paths.state_dir)
    found = [*_urls(rules, user), *_command("alerts", rules.command, user, installation.root)]
    yield from found
    if not found:
        told = f"{len(rules.urls)} URLs" if rules.urls else ""
        told = " and ".join(filter(None, (told, "a command" if rules.command else "")))
        yield Finding("alerts", "ok", f"{told} can be used; to see whether alerts arrive: supervisorctl alerts test")


def _urls(rules: AlertSettings, user: int) -> Iterator[Finding]:
    urls = list(rules.urls)
    if rules.urls_file:
        try:
            there = Path(rules.urls_file).stat()
            urls += [url for _, url in lines_in(files.read(rules.urls_file, 1 << 16).decode("utf-8", "replace"))]
        except PermissionError:
            yield Finding("alerts", "unknown", f"{rules.urls_file} cannot be read by this user", "run doctor as root")
        except OSError as error:
            what = f"alerts.urls_file: {rules.urls_file} cannot be read: {error.strerror}"
            yield Finding("alerts", "bad", what, "correct the path, or make the file: one URL a line, mode 0600")
        else:
            if there.st_mode & 0o077:
                what = f"other users may read {rules.urls_file}, which holds secrets: the daemon refuses it"
                yield Finding("alerts", "bad", what, f"chmod 600 {rules.urls_file}")
            elif user not in {there.st_uid, 0}:
                what = f"{rules.urls_file} belongs to user {there.st_uid}, and the daemon, user {user}, may not read it"
                yield Finding("alerts", "bad", what, f"chown {user} {rules.urls_file}")
    if urls:
        yield from _understood(urls)


def _understood(urls: Sequence[str]) -> Iterator[Finding]:
    if importlib.util.find_spec("apprise") is None:
        what = "alerts.urls need the package apprise, which is not installed: they get no alerts"
        yield Finding("alerts", "bad", what, f"{sys.executable} -m pip install 'extralife[alerts]'")
        return
    answers = probed(_PROBE, timeout_s=_PROBE_S, given=json.dumps(list(urls)))
    if answers is None:
        yield Finding("alerts", "unknown", "apprise did not answer whether it knows the URLs", "supervisorctl alerts test")
        return
    for number, (url, good) in enumerate(zip(urls, answers, strict=True), 1):
        if not good:
            what = f"URL {number} ({target_name(url)}; not shown) is unknown to apprise: it gets no alerts"
            yield Finding("alerts", "bad", what, "compare it with apprise's documentation of that service")


def when_done(installation: Installation) -> Iterator[Finding]:
    """The daemon can run the command that stops this box."""
    settings = installation.settings
    if not settings.when_done.command:
        return
    user, command = _daemon_user(settings.paths.state_dir), settings.when_done.command
    ok = Finding("when_done", "ok", f"{command[0]} stops this box; causes: {', '.join(settings.when_done.when)}")
    yield from list(_command("when_done", command, user, installation.root)) or [ok]


def _command(section: str, command: Sequence[str], user: int, root: str) -> Iterator[Finding]:
    if not command:
        return
    name, what = command[0], f"{section}.command: {command[0]}"
    path = shutil.which(name) or (name if os.path.lexists(name) else "")
    if not path:
        yield Finding(section, "bad", f"{what} does not exist", f"correct {section}.command")
    elif not _may_execute(Path(path), user):
        yield Finding(section, "bad", f"{what} may not be executed by the daemon, user {user}", f"chmod 755 {path}")
    elif str(Path(path).resolve()).startswith(_HOMES) and Path(f"{root}/etc/systemd/system/extralife.service").exists():
        what = f"{what} lies in a home directory, which the service does not see"
        yield Finding(section, "bad", what, "put it into /usr/local/bin, /srv or /etc/extralife")


def _may_execute(path: Path, user: int) -> bool:
    """Judge by mode and owner only: the daemon's groups are unknown here."""
    try:
        status = path.stat()
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    return bool(status.st_mode & (0o111 if user == 0 else 0o100 if status.st_uid == user else 0o011))


def _daemon_user(state_dir: str) -> int:
    """User id of the daemon: the owner of its state directory; without one, the current user."""
    try:
        return Path(state_dir).stat().st_uid
    except OSError:
        return os.geteuid()


# --- copies off the box --------------------------------------------------------------------------------------------------


_TRY_S: Final = 60.0


def copies(installation: Installation) -> Iterator[Finding]:
    """The daemon's user can copy a file into the repository and restore it."""
    rules = installation.settings.offsite
    if not rules.on:
        what = "nothing is copied off this box: its trainings are lost with it"
        yield Finding("copies", "warn", what, "set [offsite] repository (docs/offsite.md)")
    elif why := unfit():
        what, _, remedy = why.partition(": ")
        yield Finding("copies", "bad", f"{what}: nothing is copied off this box", remedy)
    elif _is_hidden(rules.password_file):
        yield Finding("copies", "unknown", f"{rules.password_file} cannot be read by this user", "run doctor as root")
    else:
        yield _tried(rules, installation.settings.paths.state_dir)


def _is_hidden(path: str) -> bool:
    """Whether the file exists, or may exist, and this user may not read it."""
    try:
        os.stat(path)  # noqa: PTH116
    except PermissionError:
        return True
    except OSError:
        return False  # restic then says what is wrong
    return not os.access(path, os.R_OK)


def _tried(rules: OffsiteSettings, state_dir: str) -> Finding:
    # The daemon could not read files that root writes into a repository on this box.
    user = None
    if os.geteuid() == 0 and (uid := _daemon_user(state_dir)):
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(uid)
    with tempfile.TemporaryDirectory(prefix="extralife-doctor-") as name:
        directory = Path(name)
        restic = Restic(rules, directory / "cache", user=user, limit_s=_TRY_S)
        (directory / "probe").mkdir()
        if user is not None:
            for each in (directory, directory / "probe"):
                os.chown(each, user.pw_uid, user.pw_gid)
        wrong = restoring.try_out(restic, directory / "probe", box=socket.gethostname())
        if wrong:
            do = "supervisorctl offsite init makes a repository; docs/offsite.md has examples of each backend"
            return Finding("copies", "bad", text.printable(wrong), do)
        return Finding("copies", "ok", f"a file went into the repository and came back; {_newest(restic)}")


def _newest(restic: Restic) -> str:
    try:
        found = [each for each in restic.snapshots() if COPY_TAG in each.tags]
    except ResticError as error:
        return text.printable(str(error))
    if not found:
        return "it has no copy yet"
    copies = "1 copy" if len(found) == 1 else f"{len(found)} copies"
    return f"{copies}, the newest {text.duration(text.wall_s() - found[-1].wall_s)} old"


# --- notices -------------------------------------------------------------------------------------------------------------


_NOTICES: Final = "notices"


def notices(installation: Installation) -> Iterator[Finding]:
    """Whether the daemon would receive a notice before this box ends."""
    rules = installation.settings.notice
    wall = SystemClock(wall_s() - boot_s())
    asked = {name: made for name in (COMMAND, FILE) if (made := source(name, rules, wall)) is not None}
    program = detect.command(BootFiles.of(os.environ))
    if program and COMMAND not in asked and not installation.settings.remote:
        provider = program.rpartition("/")[2]
        told = f"this box is of {provider}, and nothing asks {provider} for notices of its end"
        yield Finding(_NOTICES, "warn", told, f'[notice] command = "{program}"')
    elif not asked:
        yield Finding(_NOTICES, "ok", "no source of notices is configured: this box ends without notice (docs/offsite.md)")
    for name, made in asked.items():
        yield _asked(name, made)


def _asked(name: str, source: Command | File) -> Finding:
    try:
        found = source.read()
    except Unreadable as error:
        return Finding(_NOTICES, "bad", f"{name}: {text.printable(str(error))}", "docs/offsite.md, notices of the end")
    told = "; ".join(f"THIS BOX ENDS: {each.what}" for each in found) or "no end is announced"
    return Finding(
        _NOTICES, "bad" if found else "ok", f"{name}: {text.printable(told)}", "let it save and copy" if found else ""
    )
