"""`results.csv`: what is written can be read, what is damaged or hostile is left out, and it does not grow for ever."""

import dataclasses
import math

from hypothesis import example, given
from hypothesis import strategies as st

from workers import results
from workers.results import Row

ROW = Row("Pong-a", "Pong", 300_000, 1, -20.5, "ppo", 4, 84, 1_200_000, 0.25, 912, 0.00567, 2)

whole = st.integers(0, 2**63 - 1)
rows = st.builds(
    Row, program=st.text(min_size=1, max_size=20).filter(lambda t: "\x00" not in t), game=st.sampled_from(["Pong", "Catch"]),
    env_steps=whole, episode=whole, score=st.integers(-(10**6), 10**6).map(float), algo=st.sampled_from(["", "dqn"]),
    seed=st.none() | whole, resolution=st.none() | whole, frames=st.none() | whole, length=st.none() | whole,
    hns=st.none() | st.integers(-9, 9).map(float), games=st.none() | whole,
)  # fmt: skip


@given(st.lists(rows, max_size=3))
@example([results.Row("\r", "a\nb", 0, 0, 0.0), results.Row('"\r\n,', "", 1, 2, -0.5)])
def test_what_is_written_is_read(found):
    assert results.parse(results.text_of(found)) == found


CELLS = {  # column: (cells that make sense, cells that do not)
    "env_steps": (("0", "7", str(2**63 - 1)), ("", "-1", "1.5", "x", "nan", "9" * 5000)),
    "episode": (("1",), ("", "-1", "one")),
    "return": (("-20.5", "0", "1e3"), ("", "nan", "inf", "-inf", "x")),
    "seed": (("", "4"), ("-4", "4.5", "x")),
    "length": (("", "912"), ("-1", "long")),
    "hours_trained": (("", "0.25"), ("nan", "inf", "x")),
    "hns": (("", "-0.5"), ("inf", "x")),
}


@given(st.data())
def test_nonsense_in_a_row_costs_that_row_and_no_other(data):
    """Rows of which each has at most one wrong cell, between rows that are whole."""
    lines, sensible = [], 0
    for _ in range(data.draw(st.integers(1, 4))):
        cells = dict(zip(results.COLUMNS, ROW.cells(), strict=True))
        column = data.draw(st.sampled_from(sorted(CELLS)))
        good, bad = CELLS[column]
        cells[column] = data.draw(st.sampled_from(good + bad))
        sensible += cells[column] in good
        lines += [",".join(cells.values()), ",".join(ROW.cells())]
        sensible += 1
    rows = results.parse("\n".join([",".join(results.COLUMNS), *lines]))
    assert len(rows) == sensible
    assert rows.count(ROW) >= len(lines) // 2
    assert all(row.env_steps >= 0 and math.isfinite(row.score) for row in rows)


def test_columns_and_cells():
    head, line = results.text_of([ROW]).splitlines()
    assert head == ("program,game,algo,seed,resolution,env_steps,frames,hours_trained,episode,return,length,hns,games")
    assert line == "Pong-a,Pong,ppo,4,84,300000,1200000,0.25,1,-20.5,912,0.00567,2"


def test_a_file_of_before_there_were_periodic_tests():
    found = results.parse(
        "program,game,env_steps,episode,return,length\nPong,Pong,200,1,-21.0,900\nPong,Pong,200,2,-20.0,950\n"
    )
    (evaluation,) = results.evaluations(found)
    assert evaluation.whole
    assert evaluation.mean_return == -20.5
    assert (found[0].seed, found[0].games, found[0].algo) == (None, None, "")


def test_an_evaluation_is_whole_with_all_of_its_games():
    games = [dataclasses.replace(ROW, episode=number, score=float(number)) for number in (1, 2, 3)]
    assert [results.Evaluation(tuple(games[:count])).whole for count in (1, 2, 3)] == [False, True, True]
    assert results.Evaluation((dataclasses.replace(ROW, games=None),)).whole
    assert results.Evaluation(tuple(games)).mean_return == 2.0
    assert results.Evaluation(tuple(games)).first == games[0]


def test_the_oldest_evaluations_go_first_and_the_newest_never():
    many = [dataclasses.replace(ROW, env_steps=step, episode=number) for step in range(10) for number in range(3)]
    kept = results.bounded(many, 10)
    assert [row.env_steps for row in kept] == [7] * 3 + [8] * 3 + [9] * 3
    assert results.bounded(many, 9) == kept == many[-9:]
    assert results.bounded(many, 8) == many[-6:]
    assert results.bounded(many, 1) == many[-3:]
    full = [dataclasses.replace(ROW, env_steps=step) for step in (1, 2) for _ in range(results.MOST_ROWS // 2)]
    assert results.bounded(full) == full
    assert results.bounded([dataclasses.replace(ROW, env_steps=0), *full]) == full
    assert results.bounded([], 1) == []


def test_written_as_a_whole_and_read_again(tmp_path):
    path = tmp_path / "results.csv"
    assert results.read(path) == []
    path.with_name("results.tmp").write_text("of a write that a power cut ended")
    results.write(path, [ROW])
    results.write(path, [ROW, ROW])
    assert results.read(path) == [ROW, ROW]
    assert [item.name for item in tmp_path.iterdir()] == ["results.csv"]
    results.write(path, [dataclasses.replace(ROW, program="\u00e9")])
    assert path.read_bytes().splitlines()[1].startswith("\u00e9,Pong,".encode())
