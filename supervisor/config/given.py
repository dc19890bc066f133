"""Everything that a configuration was made from: its text, variables and flags.

A start that finds a bad file goes back to it as a whole. The file's text alone would not do: a bad `RL_LR` in the unit keeps
a start from its settings just as a bad file does. The text of `alerts.urls_file` is not part of it: it holds secrets, and a
copy of them in the state directory would go wherever that directory is copied.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any, Final, Self

from supervisor.config.sheet import Sheet
from supervisor.config.tables import DIRECTORIES, section_keys
from supervisor.records import dataclass

PREFIX: Final = "EXTRALIFE_"
# Settings that a variable or a flag may give: its name -> (section, key).
OVERRIDES: Final = {key: ("daemon", key) for key in (*section_keys("daemon"), *DIRECTORIES)} | {
    "slots": ("level", "slots"), "usd_per_hour": ("cost", "usd_per_hour"),
}  # fmt: skip
VARIABLES: Final = {PREFIX + key.upper(): key for key in OVERRIDES}


@dataclass(frozen=True, slots=True)
class Given:
    """What `load` was given. `path` is None for the embedded default; `flags` hold only those that were given.

    Texts and variables may hold secrets: no `repr` shows them.
    """

    path: str | None = None
    text: str = field(default="", repr=False)
    environ: dict[str, str] = field(default_factory=dict, repr=False)
    flags: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, sheet: Sheet, environ: Mapping[str, str], flags: Mapping[str, object]) -> Self:
        """What this sheet was made from."""
        return cls(
            sheet.source.path,
            sheet.source.text,
            {key: environ[key] for key in sorted(environ) if is_override(key)},
            {key: str(value) for key, value in flags.items() if value is not None},
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=True, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises ValueError for anything but what `to_json` has made."""
        value: Any = json.loads(text)
        names = ("path", "text", "environ", "flags")
        if not isinstance(value, dict) or set(value) != set(names):
            raise ValueError("it is not what a configuration was made from")
        texts = [value["text"], *([] if value["path"] is None else [value["path"]])]
        for name in ("environ", "flags"):
            if not isinstance(value[name], dict):
                raise ValueError(f"its {name} are no table")
            texts += value[name].values()
        if not all(isinstance(each, str) for each in texts):
            raise ValueError("a text in it is not a string")
        return cls(**value)


def is_override(variable: str) -> bool:
    """Whether an environment variable may be a setting. Others of our prefix are a worker's, a test's or somebody else's."""
    return variable in VARIABLES or variable.startswith("RL_")
