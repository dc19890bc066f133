"""The variables that the scripts of the next box read (`deploy/`), and those that it gives to the command that rents it."""

from __future__ import annotations

from typing import Final

VARIABLES: Final = (
    "BOX", "BOX_ID", "LOST_BOX", "NEXT_BOX", "OFFSITE_ENV_FILE", "OFFSITE_PASSWORD", "OFFSITE_PASSWORD_FILE",
    "OFFSITE_REPOSITORY", "OFFSITE_SFTP_COMMAND",
)  # fmt: skip
