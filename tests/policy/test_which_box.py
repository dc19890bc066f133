"""Whether this is another box: one row a way in which witnesses change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.box.box_identity import WITNESSES, compare, merged

BOX = {
    "product": "p1", "machine": "m1", "hostname": "alpha", "cards": "c1,c2", "gpus": "g1,g2", "hardware": "Xeon, 8 CPUs, 64 GiB",
}  # fmt: skip
HIDDEN = {key: value for key, value in BOX.items() if key not in {"product", "cards", "gpus"}}  # an ordinary user's view


@pytest.mark.parametrize(
    ("before", "changes", "another"),
    [
        (BOX, {}, False),
        (BOX, {"product": "p2"}, True),  # a clone of a virtual machine
        (BOX, {"machine": "m2", "hostname": "beta", "hardware": "another"}, False),  # installed anew on the same board
        (
            BOX,
            {"product": "", "cards": "c9", "gpus": "g2,g3", "hostname": "beta", "machine": "m2"},
            False,
        ),  # one GPU is still there
        (BOX, {"product": "", "cards": "c2,c9", "gpus": "g9", "hostname": "beta"}, False),  # one card is still there
        (BOX, {"product": "", "cards": "c9", "gpus": "g9"}, True),  # the disk is in another computer
        (HIDDEN, {"hostname": "beta"}, False),  # renamed
        (HIDDEN, {"machine": "m2"}, False),  # a new machine-id alone
        (HIDDEN, {"hardware": "Xeon, 16 CPUs, 128 GiB"}, False),  # more memory
        (HIDDEN, {"machine": "m2", "hostname": "beta"}, True),  # copied, and named as one should
        (HIDDEN, {"machine": "", "hostname": "beta"}, False),  # a container without machine-id, of another name
        ({}, BOX, False),  # nothing is known of the box before
        (BOX, dict.fromkeys(BOX, ""), False),  # nothing can be read now
    ],
)
def test_another_box(before, changes, another):
    verdict = compare(before, {**before, **changes}, same_boot=False, settled=True)
    assert verdict.another == another
    assert bool(verdict.changed) == any(before.get(key) and value for key, value in changes.items())


def test_a_machine_id_that_is_made_at_each_boot_says_nothing():
    """A stateless image, a container that is given another name at each start."""
    now = {**HIDDEN, "machine": "m2", "hostname": "beta"}
    assert not compare(HIDDEN, now, same_boot=False, settled=False).another
    assert compare(HIDDEN, {**now, "hardware": "other"}, same_boot=False, settled=False).another


def test_what_was_renamed_is_said():
    verdict = compare(HIDDEN, {**HIDDEN, "machine": "m2", "hostname": "b", "hardware": "x"}, same_boot=True, settled=True)
    assert not verdict.another
    assert verdict.why == "the machine-id, the host name and CPU and memory"
    assert compare(HIDDEN, {**HIDDEN, "hostname": "b"}, same_boot=True, settled=True).why == "the host name"
    assert compare(HIDDEN, HIDDEN, same_boot=True, settled=True).why == ""


known = st.dictionaries(st.sampled_from(sorted(WITNESSES)), st.sampled_from(["", "x", "y", "x,y"]))


@given(known, known, st.booleans())
def test_the_same_boot_is_the_same_box_and_so_is_an_equal_one(before, now, settled):
    assert not compare(before, now, same_boot=True, settled=settled).another
    assert not compare(before, before, same_boot=False, settled=settled).another
    assert compare(before, now, same_boot=False, settled=settled) == compare(
        before, merged({}, now), same_boot=False, settled=settled
    )


@given(known, known)
def test_what_cannot_be_read_now_stays_known(before, now):
    found = merged(before, now)
    assert all(found.values())
    assert found == {
        **{key: value for key, value in before.items() if value},
        **{key: value for key, value in now.items() if value},
    }
