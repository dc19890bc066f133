"""The configuration: TOML < `EXTRALIFE_*` and `RL_*` environment < flags, checked whole, into frozen settings.

All errors are reported at once, each as one sentence: what is wrong, where, what to do. Unknown keys are refused with the
nearest valid one: a typo that vanishes silently is found at the end of a paid night. Nothing is applied before all of it
is right, so a bad edit leaves the running configuration alone. docs/config.md lists every key.
"""

from supervisor.config.changes import Changes, applicable, diff, explain, summary
from supervisor.config.default import DEFAULT_TOML
from supervisor.config.loading import Loaded, alerts_alone, load, load_given
from supervisor.config.sheet import ConfigError, Origin
from supervisor.places import find_config, runtime_dir_for, state_dir_for

__all__ = [
    "DEFAULT_TOML",
    "Changes",
    "ConfigError",
    "Loaded",
    "Origin",
    "alerts_alone",
    "applicable",
    "diff",
    "explain",
    "find_config",
    "load",
    "load_given",
    "runtime_dir_for",
    "state_dir_for",
    "summary",
]
