"""The page `backups`."""

from __future__ import annotations

from typing import Final

from supervisor.reports.pages import Page, word

PAGES: Final = {"backups": Page("supervisor.features.backups.page.backups", check=word)}
