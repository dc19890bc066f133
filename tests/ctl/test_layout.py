"""What every page of extralifectl is laid out with: nothing is wider than its room, and what is cut says so."""

from hypothesis import given
from hypothesis import strategies as st

from supervisor.ctl.text import clip, fit, middle, pad, table, width

WORDS = st.text(st.sampled_from("ab-_學é\u0301"), max_size=12)
ROWS = st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4)


@given(WORDS, st.integers(2, 14))
def test_a_name_that_is_cut_fits_its_room_and_has_an_ellipsis(text, columns):
    for cut in (clip(text, columns), middle(text, columns)):
        assert width(cut) <= columns
        assert cut == text if width(text) <= columns else "…" in cut


@given(WORDS, st.integers(8, 14))
def test_both_ends_of_a_long_name_stay(text, columns):
    cut = middle(text, columns)
    head, _, end = cut.partition("…")
    assert text.startswith(head)
    assert text.endswith(end)


@given(ROWS, st.integers(0, 40))
def test_cells_of_a_column_begin_or_end_below_each_other(rows, columns):
    titles = ("NAME", "GAME", "WHY")
    lines = table([titles, *rows], right={0}, leave=("GAME", "WHY"), columns=columns)
    assert len(lines) == len(rows) + 1
    widest = max(width(row[0]) for row in [titles, *rows])
    names = [pad(row[0], widest, right=True).rstrip() for row in [titles, *rows]]
    assert all(line.startswith(name) for line, name in zip(lines, names, strict=True))
    left = lines[0].split()
    assert left == [title for title in titles if title in left], "in the same order"
    assert max(map(width, lines)) <= columns or left == ["NAME"]


@given(st.lists(st.sampled_from(["a", "word", "學校", "a-name"]), min_size=1, max_size=30), st.integers(20, 40))
def test_a_sentence_is_broken_between_words_and_says_the_same(words, columns):
    lines = fit([" ".join(words)], columns)
    assert " ".join(lines).split() == words
    assert max(map(width, lines)) <= columns
