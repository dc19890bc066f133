"""The configuration: TOML < `EXTRALIFE_*` and `RL_*` environment < flags, checked as a whole, becomes frozen settings.

All errors are reported at once, each as one sentence: what is wrong, where, what to do. An unknown key is refused with the
nearest valid one. If typos were ignored, they would be found only at the end of a paid night. Nothing is applied until
everything is valid, so a bad edit does not change the running configuration. docs/config.md lists every key.
"""

from supervisor.config.changes import Changes, applicable, diff, differences, explain, listed, merged, summary
from supervisor.config.loading import Loaded, load, load_input
from supervisor.config.source import DEFAULT_TOML
from supervisor.config.validation import ConfigError, Origin
from supervisor.places import find_config, runtime_dir_for, state_dir_for

__all__ = [
    "DEFAULT_TOML",
    "Changes",
    "ConfigError",
    "Loaded",
    "Origin",
    "applicable",
    "diff",
    "differences",
    "explain",
    "find_config",
    "listed",
    "load",
    "load_input",
    "merged",
    "runtime_dir_for",
    "state_dir_for",
    "summary",
]
