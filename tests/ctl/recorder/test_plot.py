"""`plot`: pictures of curves and of stability, and the sentences where there is none."""

import xml.etree.ElementTree as ET
from importlib.util import find_spec

import pytest
from fake_backend import program
from running import ROOT, Terminal, ctl

from supervisor.features.recorder.rules.recording import Row, as_places
from supervisor.model import facts
from supervisor.model.facts import Stamped

pytestmark = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")

WALL_S = 1_763_700_000.0
HOSTILE = "_a$x^2$<script>"


@pytest.fixture
def pictures():
    """Imported where a test draws: matplotlib takes half a second of each process that collects the tests."""
    from supervisor.features.recorder import pictures

    return pictures


def level(name, **known):
    return {"name": name, "mtbf_s": None, "mtbf_bound_s": None, "up_s": 0.0, "reboots": 0.0} | known


def span(begin_s, end_s, **known):
    wall = {"from_wall_s": WALL_S + begin_s, "to_wall_s": WALL_S + end_s}
    return {"from_s": begin_s, "to_s": end_s, "count": 1} | wall | known


TIMELINE = {
    "since_s": 0.0, "until_s": 7200.0, "since_wall_s": WALL_S, "until_wall_s": WALL_S + 7200.0, "programs": [], "backups": [],
    "levels": [span(0, 3000, level="light", trial=False), span(3000, 7200, level=HOSTILE, trial=True)],
    "box": [
        span(4000, 4100, kind="reboot", cause="unclean"), span(5000, 5100, kind="reboot", cause="orderly"),
        span(5500, 5600, kind="no daemon"), span(6000, 6100, kind="something else"),
    ],
    "marks": [{"kind": "stall", "wall_s": WALL_S + 100.0}, {"kind": "trouble", "wall_s": WALL_S + 1.0}],
}  # fmt: skip
LADDER = {
    "levels": [
        level("light", up_s=3000.0, mtbf_bound_s=1300.0), level("medium"),
        level(HOSTILE, up_s=4200.0, reboots=1.0, mtbf_s=4200.0, mtbf_bound_s=1000.0),
    ]
}  # fmt: skip


@pytest.fixture
def night(backend):
    """Two seeds of Pong. The first was taken back from step 60 to 40."""
    backend.programs, backend.ladder = {}, LADDER
    backend.add(program("Pong-s1", game="Pong"), program("Pong-s2", game="Pong"), program("Breakout", game="Breakout"))
    backend.journal = [Stamped(1, 0.0, WALL_S, "b" * 32, facts.LevelChosen("set", "light", 2))]
    for name, attempts in (("Pong-s1", ((0, 60), (40, 90))), ("Pong-s2", ((0, 80),))):
        at_s = 10.0
        for token, (begin, end) in enumerate(attempts):
            for step in range(begin, end + 1, 10):
                told = {"env_steps": float(step), "resumed_step": float(begin), "mean_return": step / 10.0}
                told |= {"attempt": 1.0 + token, "first_attempt": 1.0 + token}
                backend.rows.append(
                    Row(at_s, WALL_S + at_s, (name, f"{token}" * 32), ("RUNNING", "training", "light"), told)
                )
                at_s += 10.0
    return backend


def texts(file):
    return " ".join(node.text or "" for node in ET.fromstring(file.read_text()).iter("{http://www.w3.org/2000/svg}text"))


def test_the_curves_of_a_game(api, night, tmp_path):
    file = tmp_path / "pong.svg"
    told = ctl("plot", "Pong", "-o", str(file), socket=api)
    assert (told.stdout, told.stderr, told.returncode) == (f"{file}\n", "", 0)
    words = texts(file)
    for wanted in (
        "Pong: mean return",
        "Pong-s1",
        "Pong-s2",
        "mean of 2 seeds",
        "taken back by a resume",
        "environment steps",
    ):
        assert wanted in words


def test_another_figure_of_a_game(api, night, tmp_path):
    own = [as_places(row.at_s, row.wall_s, row.keys[0], row.keys[1], None, {"kl": 0.5}) for row in night.rows]
    night.rows += own
    for series, wanted in (("kl", "Pong: kl"), ("attempt", "Pong: attempt")):
        file = tmp_path / f"{series}.svg"
        told = ctl("plot", "Pong", "--series", series, "-o", str(file), socket=api)
        assert (told.stderr, told.returncode) == ("", 0)
        assert wanted in texts(file)


def test_without_a_name_every_game_has_its_picture(api, night, tmp_path):
    told = ctl("plot", "--since", "all", cwd=tmp_path, socket=api)
    assert (told.stdout, told.returncode) == ("Pong.png\n", 0)
    assert "nothing was recorded of the returns of Breakout" in told.stderr
    assert ctl("plot", "-o", "x.png", socket=api).stdout.startswith("Error: plot takes the name of a game")


def test_stability_as_png(api, night, tmp_path):
    assert ctl("plot", "stability", cwd=tmp_path, socket=api).stdout == "stability.png\n"
    assert (tmp_path / "stability.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("Breakout",), "nothing was recorded of the returns of Breakout in that time"),
        (("Pong", "--series", "loss"), "nothing was recorded of the loss of Pong in that time"),
        (("Pong", "--series", "kl"), "programs have no series 'kl'; there are: env_steps, "),
        (("Pong", "-o", "/nonexistent/pong.png"), "/nonexistent/pong.png cannot be written: No such file or directory"),
        (("Pong", "--since", "x"), "--since takes a span"),
    ],
)
def test_refusals(api, night, tmp_path, args, says):
    told = ctl("plot", *args, cwd=tmp_path, socket=api)
    assert told.returncode != 0
    by_daemon = "have no series" in says
    assert told.stdout.startswith(f"{'ERROR' if by_daemon else 'Error'}: {says}")
    assert not [*tmp_path.iterdir()]


def test_without_matplotlib_one_sentence_says_what_to_install(api, night, tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    told = ctl("plot", "Pong", socket=api, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert told.stdout == "Error: plot needs matplotlib: pip install 'extralife[plot]'\n"


@pytest.mark.skipif(find_spec("plotext") is None, reason="plotext is not installed")
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("Pong",), {"Pong: mean return", "Pong-s1", "Pong-s2", "environment steps"}),
        (("stability",), {"light", "0 reboots", "hours"}),
    ],
)
def test_without_a_file_it_draws_in_the_terminal(api, night, args, says):
    with Terminal("plot", *args, socket=api, columns=80) as terminal:
        drawn, code = terminal.end()
    assert code == 0, drawn
    assert not [word for word in says if word not in drawn]
    with Terminal("plot", *args, socket=api, columns=80, NO_COLOR="1") as terminal:
        lines = terminal.end()[0].replace("\r", "").splitlines()
    assert "\x1b" not in "".join(lines)
    assert max(map(len, lines)) <= 80
    assert any(0x2800 < ord(char) < 0x2900 for char in "".join(lines)), "a line of dots"


def test_without_plotext_one_sentence_says_what_to_install(api, night, tmp_path):
    (tmp_path / "plotext.py").write_text("raise ImportError('not here')")
    with Terminal("plot", "Pong", socket=api, columns=200, PYTHONPATH=f"{tmp_path}:{ROOT}") as terminal:
        told = terminal.end()[0].strip()
    assert told == (
        "Error: plot needs plotext to draw in a terminal: pip install 'extralife[plot]'; or name a file: -o FILE.png"
    )


def test_hostile_names_are_words(pictures, tmp_path):
    pictures.stability(TIMELINE, LADDER).savefig(tmp_path / "s.svg")
    seed = {
        "program": HOSTILE, "env_steps": [1.0, 2.0], "at_s": [0.0, 10.0], "wall_s": [WALL_S, WALL_S + 10], "kept": [True, True],
        "series": {"mean_return": {"mean": [1.0, 2.0], "least": [1.0, 1.0], "most": [1.0, 3.0]}},
    }  # fmt: skip
    figure = pictures.learning(HOSTILE, "mean_return", {"period_s": 10.0, "subjects": [seed]}, TIMELINE)
    figure.savefig(tmp_path / "l.svg")
    labels = [entry.get_text() for axes in figure.axes for entry in axes.get_legend().get_texts()]
    assert labels.count(r" _a\$x^2\$<script>") == 2


def test_a_night_without_anything(pictures):
    empty = {**TIMELINE, "levels": [], "box": [], "marks": [], "until_wall_s": WALL_S}
    assert "0 unclean reboots" in pictures.stability(empty, {"levels": []}).axes[0].get_title()


# --- what is drawn -------------------------------------------------------------------------------------------------------


def test_gaps_stay_gaps_and_a_step_back_is_no_line(pictures):
    rows = [(1, 1.0, 0, 0, True, 0.0), (2, 2.0, 0, 0, True, 10.0), (3, None, 0, 0, True, 20.0), (4, 4.0, 0, 0, True, 30.0),
            (5, 5.0, 0, 0, True, 300.0), (3, 3.0, 0, 0, True, 310.0), (6, 6.0, 0, 0, False, 320.0)]  # fmt: skip
    assert [[row[0] for row in run] for run in pictures._runs(rows, kept=True, gap_s=35.0)] == [[1, 2], [4], [5], [3]]
    assert [[row[0] for row in run] for run in pictures._runs(rows, kept=False, gap_s=35.0)] == [[6]]
