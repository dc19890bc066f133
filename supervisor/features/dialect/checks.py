"""The check of `doctor` that no other supervisor may start the same trainings."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from supervisor.ctl.checks import Finding, Installation
from supervisor.ctl.checks_service import our_pid
from supervisor.ctl.outcome import Failed
from supervisor.features.dialect.foreign_config import read
from supervisor.records import Record

_FOREIGN_UNITS: Final = ("supervisor.service", "supervisord.service")
_FOREIGN_CONFIGS: Final = ("etc/supervisor/supervisord.conf", "etc/supervisord.conf")


def other_supervisors(installation: Installation) -> Iterator[Finding]:
    """No Supervisor (the other project of this name) and no second extralife runs: each may start the same trainings."""
    ours, why = our_pid(installation)
    running = [each for each in _running(installation) if each.pid != ours]
    places = [Path(f"{installation.root}/{name}") for name in _FOREIGN_CONFIGS]
    places += [each.config for each in running if each.config is not None]
    same = _same_programs(installation, places)
    if same:
        same_names = "; ".join(f"{path} starts {', '.join(names)}" for path, names in same.items())
        what = f"Supervisor's configuration has the same trainings: {same_names}"
        do = "take these sections out of it (extralifectl of that package: reread, update): two supervisors destroy a run"
        yield Finding("other supervisors", "bad", what, do)
    foreign = [each for each in running if not each.extralife]
    if foreign:
        do = "check that it does not start the same trainings"
        yield Finding("other supervisors", "warn", f"another supervisord runs: pid {_pids(foreign)}", do)
    extralife = [each for each in running if each.extralife]
    if extralife and why is not None:
        what = f"cannot tell whether this is another supervisor: extralife runs as pid {_pids(extralife)}; {why.what}"
        yield Finding("other supervisors", "unknown", what, why.do)
    for each in extralife if why is None else []:
        named = f" with -c {each.named}" if each.named else ""
        do = f"if that is the one you mean: extralifectl{' -c ' + each.named if each.named else ''} doctor"
        what = f"another extralife daemon runs with another state directory: pid {each.pid}{named}"
        yield Finding("other supervisors", "warn", what, f"{do}; otherwise check that it does not start the same trainings")
    if not running and not same:
        wanted = Path(f"{installation.root}/etc/systemd/system")
        unit = next((name for name in _FOREIGN_UNITS if any(wanted.glob(f"*.wants/{name}"))), "")
        if unit:
            what = f"{unit} (Supervisor's service) is started at boot"
            do = f"systemctl disable --now {unit}, unless other programs need it"
            yield Finding("other supervisors", "warn", what, do)
        else:
            yield Finding("other supervisors", "ok", "none")


class Running(Record):
    """A running supervisord: its pid, whether it is extralife's, the Supervisor configuration it reads, its -c as given."""

    pid: int
    extralife: bool
    config: Path | None
    named: str


def _running(installation: Installation) -> Iterator[Running]:
    for entry in Path(f"{installation.root}/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        named = any(word.rpartition(b"/")[2] == b"supervisord" for word in words[:2])
        extralife = words[1:3] == [b"-m", b"supervisor"] or words[1:4] == [b"-P", b"-m", b"supervisor"]
        if named or extralife:
            given = next((value for flag, value in itertools.pairwise(words) if flag in {b"-c", b"--config"}), b"")
            extralife = extralife or given.endswith(b".toml")
            yield Running(int(entry.name), extralife, _named_config(installation, entry, words), os.fsdecode(given))


def _pids(running: list[Running]) -> str:
    return ", ".join(str(pid) for pid in sorted(each.pid for each in running))


def _named_config(installation: Installation, entry: Path, words: list[bytes]) -> Path | None:
    for flag, value in itertools.pairwise(words):
        if flag in {b"-c", b"--configuration"} and value.endswith((b".conf", b".ini")):
            path = Path(os.fsdecode(value))
            try:
                return Path(f"{installation.root}{path}") if path.is_absolute() else (entry / "cwd").readlink() / path
            except OSError:
                return None
    return None


def _same_programs(installation: Installation, places: list[Path]) -> dict[Path, list[str]]:
    """By file: its programs that are ours too, or that start extralife.

    A program is ours if its command names our state directory or the trainer's module, or if its name and script match.
    """
    found: dict[Path, list[str]] = {}
    if installation.loaded is None:
        return found
    names = {spec.name for spec in installation.settings.programs}
    scripts = {spec.argv[1] for spec in installation.settings.programs if not spec.builtin and len(spec.argv) > 1}
    ours = ("-m workers", "-m supervisor", "extralife", installation.settings.paths.state_dir)
    for path in dict.fromkeys(places):
        with contextlib.suppress(Failed):  # no such file, or no configuration of Supervisor's
            for section in read(path):
                mine = (*ours, *scripts) if section.title in names else ours
                if section.kind == "program" and any(each in section.keys.get("command", "") for each in mine):
                    found.setdefault(section.file, []).append(section.title)
    return found
