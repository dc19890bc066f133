"""The page `alerts`."""

from __future__ import annotations

from typing import Final

from supervisor.reports.pages import Page

PAGES: Final = {"alerts": Page("supervisor.features.alerts.page.alerts", instant=True)}
