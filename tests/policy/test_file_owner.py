"""Which program a file of figures belongs to: the rule, on facts of each kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.policy.worker.file_owner import Claim, decide

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
        (Claim(), NOBODY, (A,), Claim(suspects=A, agreed=1)),
        (Claim(suspects=A, agreed=1), NOBODY, (AB,), Claim("A", suspects=A, agreed=2)),
        (Claim(), NOBODY, (AB, AB, AB), Claim(suspects=AB)),
        (Claim(), NOBODY, (AB, B, AB), Claim("B", suspects=B, agreed=2)),
        (Claim(suspects=A, agreed=1), NOBODY, (B,), Claim(doubts=1)),
        (Claim(suspects=A, agreed=1, doubts=4), NOBODY, (NOBODY, NOBODY), Claim(doubts=5)),
        (Claim(), NOBODY, (NOBODY, *[A] * 7), Claim(suspects=A, agreed=7, doubts=1)),
        (Claim(), NOBODY, (NOBODY, *[A] * 8, B), Claim("A", suspects=A, agreed=8, doubts=1)),
    ],
)
def test_a_file_is_the_programs_that_has_it_open_or_that_alone_can_have_written_it(before, open_by, growths, after):
    assert decide(before, open_by, growths) == after


@given(st.sampled_from("ABCDE"), st.lists(st.frozensets(st.sampled_from("ABCDE")), max_size=30))
def test_if_its_writer_is_always_among_those_that_wrote_enough_nobody_else_gets_it(writer, others):
    assert decide(Claim(), NOBODY, [each | {writer} for each in others]).owner in {writer, None}
