"""The configuration: TOML < `RL_*` and `EXTRALIFE_*` environment < flags, checked whole, into frozen settings.

All errors are reported at once, each as one sentence: what is wrong, where, what to do. Unknown keys are refused with the
nearest valid one: a typo that vanishes silently is found at the end of a paid night. Nothing is applied before all of it
is right, so a bad edit leaves the running configuration alone.

`supervisorctl` imports this module to find the socket: standard library only, and quick.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
import sys
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from supervisor.core.settings import DaemonSettings, Level, Paths, ProgramSpec, Progress, Settings
from supervisor.policy.checkpointing import CheckpointSettings
from supervisor.policy.restart import RestartSettings
from supervisor.policy.stall import StallSettings
from workers import options
from workers.options import EXTRA_GAMES, GAMES, OPTIONS, Option, nearest

ENV_CONFIG: Final = "EXTRALIFE_CONFIG"
_ENV_DAEMON: Final = {
    "EXTRALIFE_STATE_DIR": "state_dir", "EXTRALIFE_RUNTIME_DIR": "runtime_dir", "EXTRALIFE_LOG_LEVEL": "log_level",
}  # fmt: skip
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}")
_SECRET: Final = re.compile(r"key|token|secret|password", re.IGNORECASE)
_LEAST_FREE_BYTES: Final = 64 * 2**20
_MOST_SOCKET_BYTES: Final = 107  # sun_path, unix(7)
_LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_ZERO_IS_FINE: Final = frozenset({"first_delay_s", "slow_ratio", "prior_failures", "move", "log_backups"})
_PROGRAM_KEYS: Final = frozenset({"priority", "autostart", "stall_timeout_s", "start_timeout_s", "stop_grace_s"})
_FOREIGN_KEYS: Final = frozenset({"command", "directory", "env", "progress", "progress_glob", "done_codes"})
_SECTIONS: Final[dict[str, type]] = {
    "daemon": DaemonSettings, "level": Level, "restart": RestartSettings, "stall": StallSettings,
    "checkpoint": CheckpointSettings,
}  # fmt: skip

DEFAULT_TOML: Final = """\
# extralife's embedded default: two real games at a load that a laptop bears.
[level]
name = "light"
slots = 2
num_envs = 8
batch_size = 64

[training]
learning_starts = 2_000
replay_size = 100_000
replay_ratio = 1.0

[program.Pong]
[program.Breakout]
"""


class ConfigError(Exception):
    """The configuration cannot be used; `errors` holds every reason, a sentence each."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings, and where each value came from."""

    settings: Settings
    origins: dict[str, tuple[object, str]]


@dataclass(frozen=True, slots=True)
class Changes:
    """What an update would do, by program name. `live` differ only in what needs no restart."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    live: tuple[str, ...] = ()


# --- where things are ------------------------------------------------------------------------------------------------------


def find_config(environ: Mapping[str, str]) -> str | None:
    """The config file when none was named: $EXTRALIFE_CONFIG, ./extralife.toml, the user's, the system's; else None."""
    if environ.get(ENV_CONFIG):
        return environ[ENV_CONFIG]
    home = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    places = ("extralife.toml", f"{home}/extralife/extralife.toml", "/etc/extralife/extralife.toml")
    return next((str(Path(place).absolute()) for place in places if Path(place).is_file()), None)


def state_dir_for(environ: Mapping[str, str]) -> str:
    """The state directory when none is configured."""
    if environ.get("STATE_DIRECTORY"):  # systemd's, systemd.exec(5)
        return environ["STATE_DIRECTORY"].split(":")[0]
    base = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME', '/root')}/.local/state"
    return f"{base}/extralife"


def runtime_dir_for(state_dir: str, environ: Mapping[str, str]) -> str:
    """The runtime directory of a state directory: on tmpfs, and another one for each state directory on this host.

    systemd's $RUNTIME_DIRECTORY, else /run/extralife (root), $XDG_RUNTIME_DIR/extralife or /dev/shm/extralife-UID,
    with eight hex digits of the state directory's path behind.
    """
    if environ.get("RUNTIME_DIRECTORY"):
        return environ["RUNTIME_DIRECTORY"].split(":")[0]
    mark = hashlib.blake2b(os.fsencode(Path(state_dir).absolute()), digest_size=4).hexdigest()
    if os.geteuid() == 0 and os.access("/run", os.W_OK) and _on_tmpfs("/run"):
        return f"/run/extralife-{mark}"
    if environ.get("XDG_RUNTIME_DIR") and os.access(environ["XDG_RUNTIME_DIR"], os.W_OK):
        return f"{environ['XDG_RUNTIME_DIR']}/extralife-{mark}"
    return f"/dev/shm/extralife-{os.geteuid()}-{mark}"  # noqa: S108  0700, and its owner is checked before use


def _on_tmpfs(path: str) -> bool:
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return False
    kinds = [line.split()[2] for line in mounts.splitlines() if line.split()[1:2] == [path]]
    return bool(kinds) and kinds[-1] in {"tmpfs", "ramfs"}


# --- loading ---------------------------------------------------------------------------------------------------------------


def load(path: str | None, environ: Mapping[str, str], flags: Mapping[str, object] | None = None) -> Loaded:
    """Read, merge and check everything. `flags` are [daemon] or [level] keys of the command line. Raises ConfigError."""
    path = path or find_config(environ)
    text, where = _read(path)
    try:
        body = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{where}: not valid TOML: {error}"]) from None
    return _Loader(where, path, environ, flags or {}, _lines(text)).settings(body)


def _read(path: str | None) -> tuple[str, str]:
    if path is None:
        return DEFAULT_TOML, "the embedded default"
    try:
        return Path(path).read_text(encoding="utf-8"), path
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}; name another file with -c"]) from None


def _lines(text: str) -> dict[str, int]:
    """The line of each `section.key`, as far as a line-wise look can tell; for messages only."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        head = re.fullmatch(r"\s*\[([^\[\]]+)\]\s*(#.*)?", line)
        if head:
            section = head[1].strip().replace('"', "")
            found.setdefault(section, number)
        elif key := re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line):
            found.setdefault(f"{section}.{key[1]}", number)
    return found


class _Loader:
    """One load: collects errors and origins while the settings are made."""

    def __init__(
        self, where: str, path: str | None, environ: Mapping[str, str], flags: Mapping[str, object], lines: Mapping[str, int]
    ) -> None:
        self.where, self.path, self.environ, self.flags, self.lines = where, path, environ, flags, lines
        self.errors: list[str] = []
        self.origins: dict[str, tuple[object, str]] = {}

    def settings(self, body: Mapping[str, Any]) -> Loaded:
        known = (*_SECTIONS, "training", "program")
        for key in body:
            if key not in known:
                self.error(key, f"is not a section{nearest(key, known)}")
        made = {name: self.section(name, kind, self.table(body, name)) for name, kind in _SECTIONS.items()}
        paths = self.paths(self.table(body, "daemon"))
        level = made["level"]
        training = self.training(self.table(body, "training"))
        programs = self.programs(self.table(body, "program"), level, training)
        if not self.errors and not programs:
            self.error("program", "there is no program; add a section such as [program.Pong]")
        self.check_rules(made)
        if not self.errors:
            self.check_paths(paths)
        if self.errors:
            raise ConfigError(self.errors)
        settings = Settings(
            paths=paths, level=level, programs=programs, daemon=made["daemon"], restart=made["restart"],
            stall=made["stall"], checkpoint=made["checkpoint"],
        )  # fmt: skip
        return Loaded(settings, self.origins)

    # helpers

    def error(self, key: str, what: str) -> None:
        line = self.lines.get(key)
        place = f"{self.where}, line {line}" if line else self.where
        self.errors.append(f"{place}: {key}: {what}")

    def table(self, body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        value = body.get(name, {})
        if isinstance(value, dict):
            return value
        self.error(name, f"must be a section, [{name}], not {value!r}")
        return {}

    def note(self, key: str, value: object, origin: str) -> None:
        self.origins[key] = (value, origin)

    def file_origin(self, key: str) -> str:
        line = self.lines.get(key)
        return f"{self.where}:{line}" if line else self.where

    # sections of plain fields

    def section(self, name: str, kind: type, body: Mapping[str, Any]) -> Any:
        """A dataclass from its table. Field names, types and defaults are the dataclass's own."""
        hints = typing.get_type_hints(kind)
        extra = ("state_dir", "runtime_dir") if name == "daemon" else ()
        values: dict[str, Any] = {}
        for key, value in body.items():
            if key in extra:
                continue
            if key not in hints:
                self.error(f"{name}.{key}", f"is not a setting{nearest(key, (*hints, *extra))}")
                continue
            self.take(name, key, value, hints[key], self.file_origin(f"{name}.{key}"), values)
        for key, value, origin in self.overrides(name):
            if key in hints:
                self.take(name, key, value, hints[key], origin, values)
        for field in fields(kind):
            if f"{name}.{field.name}" not in self.origins:
                self.note(f"{name}.{field.name}", values.get(field.name, field.default), "default")
        return kind(**values)

    def overrides(self, section: str) -> Iterable[tuple[str, object, str]]:
        if section == "daemon":
            for env, key in _ENV_DAEMON.items():
                if self.environ.get(env):
                    yield key, self.environ[env], f"environment {env}"
        keys = {field.name for field in fields(_SECTIONS[section])} | {"state_dir", "runtime_dir"}
        owner = {"slots": "level", "num_envs": "level", "batch_size": "level", "threads": "level"}
        for key, value in self.flags.items():
            if value is not None and key in keys and owner.get(key, "daemon") == section:
                yield key, value, f"flag --{key.replace('_', '-')}"

    def take(self, section: str, key: str, value: object, hint: Any, origin: str, values: dict[str, Any]) -> None:
        try:
            values[key] = _convert(key, value, hint)
        except ValueError as error:
            self.error(f"{section}.{key}", f"{error} ({origin})" if origin.startswith(("env", "flag")) else str(error))
            return
        self.note(f"{section}.{key}", values[key], origin)

    def check_rules(self, made: Mapping[str, Any]) -> None:
        daemon, checkpoint, restart, level = (made[name] for name in ("daemon", "checkpoint", "restart", "level"))
        if daemon.log_level not in _LOG_LEVELS:
            self.error("daemon.log_level", f"must be one of {', '.join(_LOG_LEVELS)}, not {daemon.log_level!r}")
        if checkpoint.min_s > checkpoint.max_s:
            self.error("checkpoint.min_s", f"{checkpoint.min_s:g} is more than max_s, {checkpoint.max_s:g}")
        if restart.slow_retry_s > restart.slow_retry_max_s:
            self.error("restart.slow_retry_s", f"{restart.slow_retry_s:g} is more than slow_retry_max_s")
        if restart.factor < 1.0:
            self.error("restart.factor", f"must be at least 1, not {restart.factor:g}")
        if not _NAME.fullmatch(level.name):
            self.error("level.name", f"must be a word of letters, digits, _ . -, not {level.name!r}")

    # paths

    def paths(self, body: Mapping[str, Any]) -> Paths:
        given = {key: (body[key], self.file_origin(f"daemon.{key}")) for key in ("state_dir", "runtime_dir") if key in body}
        given |= {
            key: (value, origin) for key, value, origin in self.overrides("daemon") if key in ("state_dir", "runtime_dir")
        }
        state_dir = self.directory("state_dir", given, state_dir_for(self.environ))
        runtime_dir = self.directory("runtime_dir", given, runtime_dir_for(state_dir, self.environ))
        config_file = None if self.path is None else str(Path(self.path).absolute())
        return Paths(state_dir, runtime_dir, config_file)

    def directory(self, key: str, given: Mapping[str, tuple[object, str]], default: str) -> str:
        value, origin = given.get(key, (default, "default"))
        if not isinstance(value, str) or not value or "\0" in value:
            self.error(f"daemon.{key}", f"must be the path of a directory, not {value!r}")
            value = default
        path = str(Path(value).expanduser().absolute())
        self.note(f"daemon.{key}", path, origin)
        return path

    def check_paths(self, paths: Paths) -> None:
        state = Path(paths.state_dir)
        existing = next((p for p in (state, *state.parents) if p.exists()), Path("/"))
        if state.exists() and not state.is_dir():
            self.error("daemon.state_dir", f"{state} is not a directory; choose another with --state-dir")
        elif not existing.is_dir():
            self.error("daemon.state_dir", f"{existing} is not a directory; choose another place with --state-dir")
        elif not os.access(existing, os.W_OK | os.X_OK) or os.statvfs(existing).f_flag & os.ST_RDONLY:
            self.error("daemon.state_dir", f"{existing} cannot be written by this user; choose another with --state-dir")
        elif state.exists() and state.stat().st_uid != os.geteuid():
            self.error(
                "daemon.state_dir", f"{state} belongs to user {state.stat().st_uid}, not to this one ({os.geteuid()})"
            )
        else:
            free = os.statvfs(existing).f_bavail * os.statvfs(existing).f_frsize
            if free < _LEAST_FREE_BYTES:
                self.error(
                    "daemon.state_dir",
                    f"only {free / 2**20:.0f} MiB are free in {existing}, at least {_LEAST_FREE_BYTES >> 20} are needed",
                )
        longest = max((len(os.fsencode(p)) for p in (paths.socket, paths.notify_socket("x" * 20))), default=0)
        if longest > _MOST_SOCKET_BYTES:
            self.error(
                "daemon.runtime_dir", f"{paths.runtime_dir} is too long for a socket (107 bytes); choose a shorter one"
            )

    # programs

    def training(self, body: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
        """[training] and RL_*: (value, origin) by option."""
        values: dict[str, tuple[object, str]] = {}
        for key, value in body.items():
            option = OPTIONS.get(key)
            if option is None or key == "game":
                self.error(f"training.{key}", f"is not a setting{nearest(key, OPTIONS)}")
                continue
            self.option(f"training.{key}", option, value, self.file_origin(f"training.{key}"), values)
        return values

    def option(self, key: str, option: Option, value: object, origin: str, values: dict[str, tuple[object, str]]) -> None:
        try:
            values[option.name] = (option.check(value), origin)
        except ValueError as error:
            self.error(key, str(error))

    def programs(
        self, body: Mapping[str, Any], level: Level, training: Mapping[str, tuple[object, str]]
    ) -> tuple[ProgramSpec, ...]:
        overrides, errors = options.from_environment(self.environ)
        self.errors += errors
        specs = []
        for name, table in body.items():
            if not _NAME.fullmatch(name) or name == "all":
                self.error(f"program.{name}", "a name is 1 to 64 letters, digits, _ . - (not first), and not `all`")
            elif not isinstance(table, dict):
                self.error(f"program.{name}", f"must be a section, [program.{name}]")
            else:
                common = self.common(name, table)
                made = (
                    self.foreign(name, table, common)
                    if "command" in table
                    else self.builtin(name, table, common, level, training, overrides)
                )
                if made is not None:
                    specs.append(made)
        return tuple(sorted(specs, key=lambda spec: (spec.priority, spec.name)))

    def common(self, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
        hints = typing.get_type_hints(ProgramSpec)
        values: dict[str, Any] = {}
        for key in sorted(_PROGRAM_KEYS):
            if key in table:
                self.take(f"program.{name}", key, table[key], hints[key], self.file_origin(f"program.{name}.{key}"), values)
        return values

    def foreign(self, name: str, table: Mapping[str, Any], common: dict[str, Any]) -> ProgramSpec | None:
        before = len(self.errors)
        known = _PROGRAM_KEYS | _FOREIGN_KEYS
        for key in table:
            if key not in known:
                hint = " (it belongs to built-in games)" if key in OPTIONS else nearest(key, known)
                self.error(f"program.{name}.{key}", f"is not a setting of a program with a command{hint}")
        argv = self.command(name, table["command"])
        directory = table.get("directory", "")
        if not isinstance(directory, str) or (directory and not Path(directory).expanduser().is_dir()):
            self.error(f"program.{name}.directory", f"{directory!r} is not a directory")
            directory = ""
        progress = table.get("progress", Progress.LOG.value)
        if progress not in list(Progress):
            names = ", ".join(Progress)
            self.error(
                f"program.{name}.progress", f"must be one of {names}, not {progress!r}{nearest(str(progress), Progress)}"
            )
            progress = "log"
        pattern = table.get("progress_glob", "")
        if not isinstance(pattern, str) or (progress == "files") != bool(pattern):
            self.error(f"program.{name}.progress_glob", 'is a pattern such as "*.pt", given exactly with progress = "files"')
        if len(self.errors) > before:
            return None
        env = self.env(name, table.get("env", {}))
        codes = table.get("done_codes", [0])
        if not isinstance(codes, list) or not all(type(code) is int and 0 <= code <= 255 for code in codes):
            self.error(f"program.{name}.done_codes", f"must be a list of exit codes, 0 to 255, not {codes!r}")
            return None
        for key in sorted(_FOREIGN_KEYS & table.keys()):
            self.note(f"program.{name}.{key}", _masked(key, table[key]), self.file_origin(f"program.{name}.{key}"))
        spec = ProgramSpec(
            name, argv, "", env=env, directory=str(Path(directory).expanduser()) if directory else "",
            progress=Progress(progress), progress_glob=pattern, done_codes=tuple(codes), **common,
        )  # fmt: skip
        return dataclasses.replace(spec, digest=digest(spec))

    def command(self, name: str, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            try:
                parts = shlex.split(value)
            except ValueError as error:
                self.error(f"program.{name}.command", f"cannot be split into words: {error}")
                return ()
        elif isinstance(value, list) and all(isinstance(part, str) for part in value):
            parts = value
        else:
            self.error(f"program.{name}.command", f"must be a string or a list of strings, not {value!r}")
            return ()
        if not parts or any("\0" in part for part in parts):
            self.error(f"program.{name}.command", "is empty, or holds a NUL character")
            return ()
        return tuple(parts)

    def env(self, name: str, value: object) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            self.error(f"program.{name}.env", f'must be a table of strings, such as {{ KEY = "value" }}, not {value!r}')
            return ()
        return tuple(sorted(value.items()))

    def builtin(
        self,
        name: str,
        table: Mapping[str, Any],
        common: dict[str, Any],
        level: Level,
        training: Mapping[str, tuple[object, str]],
        overrides: Mapping[str, object],
    ) -> ProgramSpec | None:
        before = len(self.errors)
        values: dict[str, tuple[object, str]] = {
            "num_envs": (level.num_envs, "level.num_envs"), "batch_size": (level.batch_size, "level.batch_size"),
            "threads": (level.threads or max(1, (os.cpu_count() or 1) // level.slots), "cores / slots"), **training,
        }  # fmt: skip
        known = (*OPTIONS, *_PROGRAM_KEYS)
        for key, value in table.items():
            if key in OPTIONS:
                self.option(f"program.{name}.{key}", OPTIONS[key], value, self.file_origin(f"program.{name}.{key}"), values)
            elif key not in _PROGRAM_KEYS:
                hint = "; it needs a `command`" if key in _FOREIGN_KEYS else nearest(key, known)
                self.error(f"program.{name}.{key}", f"is not a setting{hint}")
        for key, value in overrides.items():
            values[key] = (value, f"environment {OPTIONS[key].env_name}")
        game = str(values.get("game", (name, ""))[0])
        if game not in (*GAMES, *EXTRA_GAMES):
            self.error(
                f"program.{name}",
                f"{game!r} is not one of the {len(GAMES)} Atari games{nearest(game, (*GAMES, *EXTRA_GAMES))}; "
                f"for a program of your own give it a `command`, or set `game`",
            )
        plain = {key: value for key, (value, _) in values.items() if value is not None}
        self.errors += [f"{self.where}: program.{name}: {error}" for error in options.check_together(plain)]
        if len(self.errors) > before:
            return None
        for key, option in OPTIONS.items():
            value, origin = values.get(key, (option.default, "default"))
            self.note(f"program.{name}.{key}", game if key == "game" else value, origin)
        return self.builtin_spec(name, game, plain, common)

    @staticmethod
    def builtin_spec(name: str, game: str, plain: Mapping[str, object], common: dict[str, Any]) -> ProgramSpec:
        argv = [sys.executable, "-m", "workers", "--program", name, "--game", game]
        for key in sorted(plain.keys() - {"game"}):
            value = plain[key]
            argv += [OPTIONS[key].flag, str(value).lower() if isinstance(value, bool) else str(value)]
        threads = str(plain["threads"])
        env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        # The worker is started from its run directory: an uninstalled checkout must still be found there.
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        num_envs, batch_size = plain["num_envs"], plain["batch_size"]
        spec = ProgramSpec(
            name, tuple(argv), "", env=tuple(sorted(env.items())), builtin=True, game=game, progress=Progress.BEAT,
            num_envs=num_envs if isinstance(num_envs, int) else None,
            batch_size=batch_size if isinstance(batch_size, int) else None, **common,
        )  # fmt: skip
        return dataclasses.replace(spec, digest=digest(spec))


def _convert(key: str, value: object, hint: Any) -> Any:
    """A TOML (or textual) value as the field's type. Raises ValueError with half a sentence."""
    optional = isinstance(hint, types.UnionType) and type(None) in typing.get_args(hint)
    kind = next(arg for arg in typing.get_args(hint) if arg is not type(None)) if optional else hint
    option = Option(key, kind if kind in (int, float, bool) else str, None, "", low=0 if kind in (int, float) else None)
    checked = option.parse(value) if isinstance(value, str) and kind is not str else option.check(value)
    numeric = isinstance(checked, int | float) and not isinstance(checked, bool)
    if numeric and checked == 0 and key not in _ZERO_IS_FINE and key != "priority":
        raise ValueError(f"{key} must be more than 0")
    return checked


def digest(spec: ProgramSpec) -> str:
    """Of all that needs a restart to change."""
    body = [spec.argv, spec.env, spec.directory, spec.builtin, spec.progress.value, spec.progress_glob, spec.done_codes]
    return hashlib.blake2b(json.dumps(body).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _masked(key: str, value: object) -> object:
    if key == "env" and isinstance(value, dict):
        return {name: "***" if _SECRET.search(name) else item for name, item in value.items()}
    return value


# --- what people ask of it -----------------------------------------------------------------------------------------------------


def diff(old: Settings, new: Settings) -> Changes:
    """What an update from `old` to `new` touches."""
    before = {spec.name: spec for spec in old.programs}
    after = {spec.name: spec for spec in new.programs}
    both = sorted(before.keys() & after.keys())
    return Changes(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(name for name in both if before[name].digest != after[name].digest),
        removed=tuple(sorted(before.keys() - after.keys())),
        live=tuple(name for name in both if before[name].digest == after[name].digest and before[name] != after[name]),
    )


def explain(loaded: Loaded) -> list[tuple[str, object, str]]:
    """(key, value, origin) of every setting, sorted by key; secrets in environments are masked."""
    return [(key, value, origin) for key, (value, origin) in sorted(loaded.origins.items())]


def summary(settings: Settings) -> str:
    """One line for `supervisord --check`."""
    level, count = settings.level, len(settings.programs)
    return (
        f"config OK: {count} program{'s' if count != 1 else ''}, level {level.name}: "
        f"{level.slots} slots x {level.num_envs} environments, batch {level.batch_size}"
    )
