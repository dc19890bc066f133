"""The table of the rule: what a worker's cgroup is given."""

import pytest

from supervisor.policy.worker.confinement import CgroupSettings, Limits, limits

MB = 2**20


@pytest.mark.parametrize(
    ("settings", "memory_mb", "cpu_weight", "expected"),
    [
        ({}, None, None, Limits(None, None, 8192, 100)),
        ({}, 6000, None, Limits(6000 * MB, 6000 * MB, 8192, 100)),
        ({"memory_slack": 0.25}, 100, None, Limits(100 * MB, 125 * MB, 8192, 100)),
        ({"pids_max": 64, "cpu_weight": 50}, None, None, Limits(None, None, 64, 50)),
        ({"cpu_weight": 50}, None, 200, Limits(None, None, 8192, 200)),
    ],
)
def test_limits(settings, memory_mb, cpu_weight, expected):
    assert limits(CgroupSettings(**settings), memory_mb=memory_mb, cpu_weight=cpu_weight) == expected


def test_nothing_is_guessed_about_memory():
    assert limits(CgroupSettings(memory_slack=5.0), memory_mb=None, cpu_weight=None).memory_max_bytes is None
