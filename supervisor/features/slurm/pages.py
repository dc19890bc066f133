"""The page of nodes and partitions."""

from __future__ import annotations

from typing import Final

from supervisor.reports.pages import Page

PAGES: Final = {"nodes": Page("supervisor.features.slurm.page.nodes", instant=True)}
