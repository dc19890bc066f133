"""When a copy off the box is due, when it is too old, and whose a repository is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.features.offsite.messages import Claim, Lease
from supervisor.features.offsite.rules import (
    Copies,
    Kept,
    Lock,
    due_s,
    first_look_until_s,
    indispensable,
    is_abandoned,
    judge,
    last_copy_s,
    late_at_s,
    newest,
    retry_s,
    verified,
)
from supervisor.features.offsite.settings import OffsiteSettings
from supervisor.policy.upkeep.copies import LEVEL, NOTICE

RULES = OffsiteSettings(repository="/srv/copies", every_s=900.0, late_s=3600.0)
H2 = 7200.0


@pytest.mark.parametrize(
    ("copies", "due"),
    [
        (Copies(0.0, None), None),
        (Copies(50.0, None, trained=True), 110.0),
        (Copies(None, None, trained=True), 60.0),
        (Copies(0.0, H2), None),
        (Copies(0.0, H2, trained=True), H2 + 900),
        (Copies(0.0, H2, asked=LEVEL), 0.0),
        (Copies(0.0, H2, trained=True, failures=1, failed_s=H2 + 900), H2 + 960),
        (Copies(0.0, H2, trained=True, failures=3, failed_s=H2 + 100), H2 + 900),
        (Copies(0.0, H2, asked=LEVEL, failures=2, failed_s=H2 + 900), H2 + 1020),
        (Copies(0.0, H2, asked=NOTICE, failures=2, failed_s=H2 + 900), H2 + 902),
    ],
)
def test_when_the_next_copy_is_due(copies, due):
    assert due_s(RULES, copies) == due


def test_without_a_repository_nothing_is_due_or_late():
    copies = Copies(0.0, None, asked=LEVEL, trained=True)
    assert due_s(OffsiteSettings(), copies) is None
    assert late_at_s(OffsiteSettings(), copies) is None


def test_tries_become_rarer_up_to_the_period():
    assert [retry_s(RULES, n) for n in (1, 2, 3, 4, 5, 99)] == [60, 120, 240, 480, 900, 900]


@pytest.mark.parametrize(
    ("copies", "late"),
    [
        (Copies(50.0, None, trained=True), 3650.0),
        (Copies(50.0, H2, trained=True), H2 + 3600),
        (Copies(50.0, H2), None),
        (Copies(None, None, trained=True), None),
    ],
)
def test_when_the_newest_copy_is_too_old(copies, late):
    assert late_at_s(RULES, copies) == late


@pytest.mark.parametrize(
    ("rules", "rebooted", "held", "until_s"),
    [
        (RULES, True, True, 110.0),
        (RULES, False, True, None),
        (RULES, True, False, None),
        (OffsiteSettings(), True, True, None),
    ],
)
def test_the_first_look_after_a_reboot_is_waited_for(rules, rebooted, held, until_s):
    assert first_look_until_s(rules, rebooted=rebooted, held=held, now_s=100.0) == until_s


A1, B2 = Lease("a", 1, "A"), Lease("b", 2, "B")


@pytest.mark.parametrize(
    ("ours", "found", "claim"),
    [
        (None, None, Claim.WRITE),
        (A1, None, Claim.WRITE),
        (A1, A1, Claim.HELD),
        (B2, A1, Claim.WRITE),
        (A1, B2, Claim.LOST),
        (A1, Lease("b", 1, "B"), Claim.LOST),
        (None, A1, Claim.FOREIGN),
    ],
)
def test_whose_the_repository_is(ours, found, claim):
    assert judge(ours, found) is claim


def test_the_highest_generation_counts_then_the_newest():
    later = Lease("c", 2, "C", since_s=5.0)
    assert newest([]) is None
    assert newest([B2, later, Lease("a", 1, "A", since_s=99.0)]) == later


def test_a_repository_has_a_name_without_its_secrets():
    assert OffsiteSettings().place == ""
    assert OffsiteSettings(repository="/a").place == OffsiteSettings(repository="/a", every_s=5.0).place
    assert OffsiteSettings(repository="/a").place != OffsiteSettings(repository="/b").place


@pytest.mark.parametrize(
    ("host", "runs", "gone", "age_s", "abandoned"),
    [
        ("here", True, None, 5.0, False), ("here", False, set(), 5.0, True), ("here", True, set(), 1800.0, True),
        ("ada", False, set(), 1799.0, False), ("ada", False, {"ada"}, 5.0, True), ("ada", True, {"bob"}, 5.0, False),
        ("ada", True, None, 5.0, True), ("ada", True, set(), 1800.0, True), ("ada", True, set(), -1e6, False),
    ],
)  # fmt: skip
def test_a_lock_that_nobody_holds(host, runs, gone, age_s, abandoned):
    assert is_abandoned(Lock(host, 7, 1e9 - age_s), here="here", runs=runs, gone=gone, wall_s=1e9) is abandoned


@pytest.mark.parametrize(
    ("programs", "spared"),
    [((), {"c", "d"}), (("a",), {"b", "c", "d"}), (("b",), {"a", "c", "d"}), (("a", "b", "x"), {"a", "b", "c", "d"})],
)
def test_copies_that_stay_whatever_is_kept(programs, spared):
    copies = [
        Kept("z", 1, {"a": 5}), Kept("a", 1, {"a": 8, "b": None}), Kept("b", 2, {"a": 9}), Kept("c", 2, {"a": 4}), Kept("d", 3, {}),
    ]  # fmt: skip
    assert indispensable(copies, programs) == spared
    assert indispensable([], programs) == set()


@pytest.mark.parametrize(
    ("reboot_s", "left_s", "limit_s"),
    [(20.0, None, 20.0), (20.0, 8.0, 8.0), (20.0, 1.9, 0.0), (20.0, -5.0, 0.0), (1.0, None, 1.0), (0.0, 60.0, 0.0)],
)
def test_how_long_an_end_waits_for_a_last_copy(reboot_s, left_s, limit_s):
    assert last_copy_s(replace(RULES, reboot_s=reboot_s), left_s) == limit_s


def test_what_a_check_has_shown():
    assert [verified(percent) for percent in (None, 0, 100)] == [
        "no errors", "no errors in its structure; its data was not read", "no errors in its structure and in 100 % of its data",
    ]  # fmt: skip
