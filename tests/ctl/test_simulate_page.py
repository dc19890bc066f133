"""`simulate` as people run it: a page, JSON, pictures, and what goes wrong."""

import json
import subprocess
import sys

import pytest
from running import ctl, environment


def test_the_page_compares_and_draws() -> None:
    told = ctl("simulate", "--days", "1", "--why").stdout
    assert told.startswith("seed, 1 days, seed 1: kept work less 5 min of training a reboot")
    for name in ("hold and probe", "oracle", "always light", "always heavy"):
        assert name in told
    assert "heavy |" in told
    assert "trying heavy: expected" in told


def test_json_has_the_path_and_the_reasons() -> None:
    found = json.loads(ctl("simulate", "--host", "robust", "--days=1", "--start", "medium", "--json").stdout)
    assert found["outcomes"][1]["share"] == 1.0
    assert found["path"][0] == [0.0, 2]
    assert found["path"][-1][1] == 5
    assert found["deaths"] == []
    assert all(why for _, _, why in found["whys"])


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--host", "sed"), "did you mean seed?"),
        (("--host", "zzz"), "or freshN (drawn at random), not 'zzz'"),
        (("--days", "0"), "--days must be a whole number from 1"),
        (("--days", "400"), "--days takes at most 366"),
        (("--seed", "x"), "--seed must be a whole number"),
        (("--start", "hevy"), "--start takes one of light, 3, medium"),
        (("now",), "takes only options"),
        (("--wat",), "unknown option --wat"),
    ],
)
def test_what_is_wrong_is_one_sentence(args: tuple[str, ...], says: str) -> None:
    done = ctl("simulate", *args)
    assert done.returncode == 2
    assert says in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_a_picture(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    done = ctl("simulate", "--host", "fresh3", "--days", "1", "--out", str(tmp_path / "level.svg"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "<svg" in (tmp_path / "level.svg").read_text()
    done = ctl("simulate", "--days", "1", "--out", str(tmp_path / "no" / "level.png"))
    assert done.returncode == 1
    assert "cannot write" in done.stdout


def test_without_matplotlib_it_says_what_to_install(tmp_path) -> None:
    hide = "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.figure'] = None; import runpy; "
    code = hide + f"sys.argv = ['x', 'simulate', '--days', '1', '--out', {str(tmp_path / 'a.svg')!r}]; "
    code += "runpy.run_module('supervisor.ctl', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False, env=environment(), cwd="/"
    )
    assert done.returncode == 1, done.stderr
    assert "pip install 'extralife[plot]'" in done.stdout
