"""The complete input of a configuration: its text, variables and flags.

A start that finds a bad file returns to the last good input as a whole. The file's text alone is not enough: a bad `RL_LR`
in the unit breaks a start just as a bad file does. The text of `alerts.urls_file` is not included. It holds secrets, and a
copy in the state directory would be copied wherever that directory is copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Final, Self

from supervisor import discovery
from supervisor.config.tables import DIRECTORIES, settings_of
from supervisor.config.validation import Validation
from supervisor.model.settings import DaemonSettings
from supervisor.records import Record

PREFIX: Final = "EXTRALIFE_"
# Settings that a variable or a flag may set: name -> (section, key).
OVERRIDES: Final = {key: ("daemon", key) for key in (*settings_of(DaemonSettings), *DIRECTORIES)} | {
    "slots": ("level", "slots"), "usd_per_hour": ("cost", "usd_per_hour"),
}  # fmt: skip
VARIABLES: Final = {PREFIX + key.upper(): key for key in OVERRIDES}
# Variables with the prefix that are no setting and may surround a daemon: scripts of deploy/ read them, or the daemon does.
NO_SETTINGS: Final = frozenset(PREFIX + name for name in (
    "AFTER_SHUTDOWN", "BOOT_FILES", "CHILD_OF", "CONFIG", "KEPT", "LISTEN_FD", "LOCK_HELD", "METADATA", "NAME_FD",
    "OWN_LAYER", "PACKAGES", "STATE",
    *(name for each in discovery.modules("settings") for name in getattr(each, "VARIABLES", ())),
))  # fmt: skip


class ConfigInput(Record):
    """The input of `load`. `path` is None for the embedded default; `flags` hold only those that were given.

    Texts and variables may hold secrets: no `repr` shows them.
    """

    path: str | None = None
    text: str = field(default="", repr=False)
    environ: dict[str, str] = field(default_factory=dict, repr=False)
    flags: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, validation: Validation, environ: Mapping[str, str], flags: Mapping[str, object]) -> Self:
        return cls(
            validation.source.path, validation.source.text,
            {key: environ[key] for key in sorted(environ) if is_override(key)},
            {key: str(value) for key, value in flags.items() if value is not None},
        )  # fmt: skip

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=True, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`. Raises ValueError for any other text."""
        value: Any = json.loads(text)
        names = ("path", "text", "environ", "flags")
        if not isinstance(value, dict) or set(value) != set(names):
            raise ValueError("it is not what a configuration was made from")
        texts = [value["text"], *([] if value["path"] is None else [value["path"]])]
        for name in ("environ", "flags"):
            if not isinstance(value[name], dict):
                raise ValueError(f"its {name} is not a table")
            texts += value[name].values()
        if not all(isinstance(each, str) for each in texts):
            raise ValueError("a text in it is not a string")
        return cls(**value)


def is_override(variable: str) -> bool:
    """Whether an environment variable may be a setting. Others with our prefix belong to workers, tests or others."""
    return variable in VARIABLES or variable.startswith("RL_")
