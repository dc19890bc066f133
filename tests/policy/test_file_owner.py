"""Which program a file of figures belongs to: the rule, on facts of each kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.script.file_owner import Claim, decide

A, B, AB, NOBODY = frozenset("A"), frozenset("B"), frozenset("AB"), frozenset()


@pytest.mark.parametrize(
    ("before", "open_by", "growths", "after"),
    [
        (Claim(), A, (), Claim("A")),
        (Claim("B"), A, (), Claim("A")),
        (Claim("B"), NOBODY, (A, A), Claim("B")),
        (Claim(), AB, (), Claim(is_shared=True)),
        (Claim(is_shared=True), NOBODY, (A, A), Claim(is_shared=True)),
        (Claim(is_shared=True), B, (), Claim("B")),
        (Claim(), NOBODY, (), Claim()),
        (Claim(), NOBODY, (A,), Claim(spared=A)),
        (Claim(), NOBODY, (A, A), Claim(suspects=A, agreed=1, spared=A)),
        (Claim(suspects=A, agreed=1, spared=A), NOBODY, (AB,), Claim("A", suspects=A, agreed=2, spared=A)),
        (Claim(), NOBODY, (AB, AB, AB), Claim(suspects=AB, spared=AB)),
        (Claim(), NOBODY, (AB, B, AB), Claim(suspects=AB, spared=B)),
        (Claim(), NOBODY, (AB, B, AB, B, AB), Claim("B", suspects=B, agreed=2, spared=B)),
        (Claim(suspects=A, agreed=1, spared=A), NOBODY, (B,), Claim(suspects=A, agreed=1, spared=NOBODY)),
        (Claim(suspects=A, agreed=1, spared=A), NOBODY, (B, B), Claim(doubts=1)),
        (Claim(suspects=A, agreed=1, doubts=4, spared=A), NOBODY, (NOBODY, NOBODY), Claim(doubts=5)),
        (Claim(), NOBODY, (NOBODY, *[A] * 8), Claim(suspects=A, agreed=7, doubts=1, spared=A)),
        (Claim(), NOBODY, (NOBODY, *[A] * 9, B), Claim("A", suspects=A, agreed=8, doubts=1, spared=A)),
    ],
)
def test_a_file_is_the_programs_that_has_it_open_or_that_alone_can_have_written_it(before, open_by, growths, after):
    assert decide(before, open_by, growths) == after


@given(
    st.sampled_from("ABCDE"), st.lists(st.frozensets(st.sampled_from("ABCDE"), min_size=1), max_size=30), st.integers(0, 30)
)
def test_a_writer_whose_count_comes_late_once_loses_its_file_to_nobody(writer, others, late):
    growths = [each if place == late else each | {writer} for place, each in enumerate(others)]
    assert decide(Claim(), NOBODY, growths).owner in {writer, None}
