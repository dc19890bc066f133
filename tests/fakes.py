"""Fakes at the few seams, for tests that step time instead of waiting for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeClock:
    """`ports.Clock` in a box whose time is an attribute. Journal time is CLOCK_BOOTTIME here: the offset is zero."""

    at_s: float = 1_000.0
    at_wall_s: float = 1_700_000_000.0

    def now_s(self) -> float:
        return self.at_s

    def wall_s(self) -> float:
        return self.at_wall_s

    def from_boot_ns(self, at_ns: int) -> float:
        return at_ns / 1e9

    def to_boot_ns(self, at_s: float) -> int:
        return int(at_s * 1e9)

    def advance(self, seconds: float) -> None:
        """Time passes, on both clocks."""
        self.at_s += seconds
        self.at_wall_s += seconds

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.at_wall_s += seconds
