"""Numbers, durations and times as people read them, on both sides of each border."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from supervisor import formats

SHOWN = {
    formats.number: [
        (None, "-"), (0, "0"), (950, "950"), (999, "999"), (3.14159, "3.1"), (-2.25, "-2.2"), (999.4, "999.4"),
        (999.5, "1k"), (1000, "1k"), (1234, "1.23k"), (9994, "9.99k"), (9995, "10k"), (12_345, "12.3k"), (99_940, "99.9k"),
        (99_950, "100k"), (10_440, "10.4k"), (100_440, "100k"), (123_456, "123k"), (999_499, "999k"), (999_500, "1M"), (-12_345_678, "-12.3M"), (2.5e9, "2.5G"),
        (999_499_999, "999M"), (999_500_000, "1G"), (4e12, "4T"), (5e15, "5000T"), (100_000, "100k"),
    ],
    formats.signed: [
        (None, "-"), (0.0, "0.00"), (9.994, "9.99"), (-9.999, "-10.00"), (10, "10.0"), (-18.24, "-18.2"), (9999.94, "9999.9"),
        (10_000.0, "10k"), (-20_000.0, "-20k"),
    ],
    formats.usd: [
        (None, "-"), (0, "$0.00"), (9.54e-05, "<$0.001"), (0.001, "$0.001"), (0.05, "$0.05"), (0.1394, "$0.139"),
        (0.5, "$0.50"), (0.9994, "$0.999"), (0.9996, "$1.00"), (1.005, "$1.00"), (41.2, "$41.20"), (1234.5, "$1,234.50"),
    ],
    formats.duration: [
        (None, "-"), (-300.1, "-"), (-300.0, "0s"), (-0.6, "0s"), (0.4, "0s"), (42.0, "42s"), (59.4, "59s"), (59.6, "1m"),
        (60, "1m"), (65, "1m 5s"), (3599, "59m 59s"), (3600, "1h"), (3659, "1h"), (3660, "1h 1m"), (11_100, "3h 5m"),
        (86_399, "23h 59m"), (86_400, "1d"), (89_999, "1d"), (90_000, "1d 1h"), (187_200, "2d 4h"),
    ],
    formats.span: [
        (0, "0s"), (0.0004, "<1ms"), (0.0425, "42ms"), (0.9996, "1s"), (2.0, "2s"), (2.54, "2.5s"), (9.94, "9.9s"),
        (9.96, "10s"), (75.2, "1m 15s"), (-2.0, "0s"),
    ],
    formats.clock: [
        (None, "-"), (-5.0, "0:00:00"), (59.9, "0:00:59"), (155.0, "0:02:35"), (3600.0, "1:00:00"), (86_399.0, "23:59:59"),
        (86_400.0, "1 day, 0:00:00"), (93_784.0, "1 day, 2:03:04"), (172_800.0, "2 days, 0:00:00"),
    ],
    formats.percent: [
        (None, "-"), (0.0, "0%"), (0.0042, "0.42%"), (0.0099, "0.99%"), (0.00995, "1.0%"), (0.01, "1.0%"), (0.891, "89.1%"),
        (0.9994, "99.9%"), (0.9995, "100%"), (1.0, "100%"), (2.5, "250%"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("shown", "value", "text"), [(shown, *row) for shown, rows in SHOWN.items() for row in rows])
def test_what_people_read(shown: Callable[[float | None], str], value: float | None, text: str) -> None:
    assert shown(value) == text


def test_sizes_money_and_counts() -> None:
    assert [formats.size(value) for value in (None, 950.4, 2.1e9)] == ["-", "950B", "2.1GB"]
    assert [formats.mib(value) for value in (None, 81_559 * 2**20)] == ["-", "81,559 MiB"]
    assert [formats.count(many, "reboot") for many in (0, 1, 2)] == ["0 reboots", "1 reboot", "2 reboots"]


def test_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        whole, wall_s = "2025-11-21 04:40:00", 1_763_700_000.0
        assert formats.when(wall_s) == whole
        assert formats.when(wall_s, wall_s) == "04:40:00"
        assert formats.when(wall_s, wall_s + 43_199.9) == "04:40:00"
        assert formats.when(wall_s, wall_s + 43_200.0) == whole
        assert formats.when(wall_s, wall_s - 0.1) == whole, "a moment of the future"
        assert formats.when(None) == formats.when(5.0) == "-", "a clock that was not set"
    time.tzset()
