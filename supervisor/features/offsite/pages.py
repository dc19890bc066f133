"""The page `offsite`."""

from __future__ import annotations

from typing import Final

from supervisor.reports.pages import Page

PAGES: Final = {"offsite": Page("supervisor.features.offsite.page.offsite", instant=True)}
