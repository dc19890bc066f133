"""The daemon's configuration as a whole, for the few actions that need it. Reading it takes longer than most actions."""

from __future__ import annotations

import os

from supervisor import config
from supervisor.ctl.outcome import Options
from supervisor.model.settings import Settings


def settings(options: Options) -> Settings | None:
    """The whole configuration; None if it cannot be read, and then there is less to show."""
    try:
        flags = {"state_dir": options.state_dir} if options.state_dir is not None else {}
        return config.load(options.config_file, os.environ, flags, look=False).settings
    except config.ConfigError:
        return None
