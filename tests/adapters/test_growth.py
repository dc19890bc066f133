"""Progress that is seen from outside: what counts as new in logs and files."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supervisor.adapters.process import growth
from supervisor.adapters.process.growth import Growth
from supervisor.model.settings import Paths, ProgramSpec


@pytest.fixture
def paths(tmp_path):
    made = Paths(str(tmp_path / "state"), str(tmp_path / "run"))
    Path(made.run_dir("Pong")).mkdir(parents=True)
    return made


def program(**fields):
    return ProgramSpec("Pong", ("x",), "d", **fields)


def test_the_first_look_is_where_counting_begins_and_whatever_is_new_then_counts():
    grown = Growth()
    for now_s, seen, at_s in (
        (1.0, {"a": (5, 0), "b": (9, 0)}, None),
        (2.0, {"a": (5, 0), "b": (9, 0)}, None),
        (3.0, {"a": (6, 0)}, 3.0),  # one of them has grown
        (4.0, {"a": (6, 0), "b": (9, 0)}, 3.0),  # the other one is as it was before it could not be read
        (5.0, {"b": (9, 7)}, 5.0),  # written again, with as many bytes
        (6.0, {"a": (0, 8)}, 5.0),  # emptied
        (7.0, {"a": (1, 8)}, 7.0),
        (8.0, {"c": (0, 0)}, 8.0),  # a new one, although it is empty
        (9.0, {}, 8.0),
    ):
        grown.note(seen, now_s)
        assert grown.at_s == at_s, now_s
    assert grown.seen == {"a": (1, 8), "b": (9, 7), "c": (0, 0)}


def test_what_was_written_since_the_start_counts_at_the_first_look():
    grown = Growth()
    grown.began((7, 3))
    grown.began((100, 100))
    assert grown.seen == {"stdout": (7, 0), "stderr": (3, 0)}, "it has begun once"
    grown.note({"stdout": (7, 0), "stderr": (3, 0)}, 1.0)
    assert grown.at_s is None
    grown.note({"stdout": (7, 0), "stderr": (4, 0)}, 2.0)
    assert grown.at_s == 2.0


def test_files_are_those_of_the_pattern_or_all_in_the_programs_directory(paths, tmp_path, monkeypatch):
    own, elsewhere = Path(paths.run_dir("Pong")), tmp_path / "out"
    elsewhere.mkdir()
    for path, text, at_ns in ((own / "a.pt", "12", 5), (own / "b.txt", "123", 6), (elsewhere / "c.pt", "1", 7)):
        path.write_text(text)
        os.utime(path, ns=(1, at_ns))
    (own / "gone.pt").symlink_to(tmp_path / "nothing")
    a, b, c = ({str(own / "a.pt"): (2, 5)}, {str(own / "b.txt"): (3, 6)}, {str(elsewhere / "c.pt"): (1, 7)})
    assert growth.files(paths, program()) == a | b
    assert growth.files(paths, program(progress_glob="*.pt")) == a
    assert growth.files(paths, program(progress_glob="*.pt", directory=str(elsewhere))) == c
    for nothing in ("/etc/*", "**bad", "\0", "none/*"):
        assert growth.files(paths, program(progress_glob=nothing)) == {}
    monkeypatch.setattr(growth, "_MOST_FILES", 1)
    assert len(growth.files(paths, program())) == 1, "of a huge directory only so many are looked at"


@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_a_log_that_was_taken_away_is_measured_through_the_file_that_its_worker_has_open(paths, how):
    path, grown = Path(paths.log("Pong", "stdout")), Growth()
    with path.open("ab", buffering=0) as out:
        code = "import os, sys; [os.write(1, b'line') for _ in sys.stdin]"
        worker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=out, text=True, bufsize=1)
        assert worker.stdin is not None
        logs = growth.Logs(worker.pid)
        grown.note(logs.sizes(paths, program()), 1.0)
        assert logs.taken == frozenset()
        path.rename(path.with_name("stdout.log.1")) if how == "renamed" else path.unlink()
        if how == "replaced":
            path.touch()
        print("go", file=worker.stdin)
        while os.fstat(out.fileno()).st_size == 0:
            time.sleep(0.01)
        grown.note(logs.sizes(paths, program()), 2.0)
        assert (grown.at_s, logs.taken) == (2.0, {"stdout"}), "it is not silent"
        logs = growth.Logs(worker.pid)
        assert (logs.sizes(paths, program())["stdout"], logs.taken) == ((4, 0), {"stdout"}), "nor for the next daemon"
        worker.stdin.close()
        worker.wait(60)
    assert logs.sizes(paths, program()).get("stdout") in (None, (0, 0))
    assert logs.taken == frozenset(), "without its worker nobody writes to it"


def test_a_worker_that_writes_elsewhere_has_lost_no_log(paths, tmp_path):
    Path(paths.log("Pong", "stdout")).touch()
    with (tmp_path / "its own").open("wb") as out, subprocess.Popen(["sleep", "60"], stdout=out) as worker:
        logs = growth.Logs(worker.pid)
        assert logs.sizes(paths, program()) == {"stdout": (0, 0)}
        Path(paths.log("Pong", "stdout")).unlink()
        assert (logs.sizes(paths, program()), logs.taken) == ({}, frozenset())
        worker.kill()
