"""A feature is a folder: `rm -r` removes it, also with a journal full of its facts, and the guide's example adds one."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from box import ROOT, TRAINER, Box, until
from tools import PATIENCE

from supervisor import discovery
from supervisor.adapters.journal.sqlite import Journal
from supervisor.model import codec, facts

EVERY = "every feature"
GO_WITH = {"offsite": ["next_box"], "alerts": ["next_box"]}  # it continues from copies off the box, and says so by an alert
OLD_NIGHT = ROOT / "tests" / "outside" / "old_night.jsonl.xz"
# Of the features that the old night's journal knows nothing of.
MORE = (
    facts.OffsiteHeld("this box holds it", "token", 1, "place"),
    facts.OffsiteAsked("the operator", "operator"),
    facts.OffsiteCopied("copied", "operator", "5f3a", 40.0, 1.8e9, {"Pong": 100}, 10, 10, 1.0, {}),
    facts.EndAnnounced("this box ends", "n1", "command", True, "spot", None, None),
    facts.EndCalledOff("not any more", "n1", "command"),
    facts.WhenDoneStep("all is done", "begin", "done"),
    facts.WhenDoneStep("not any more", "call off"),
    facts.ReportMade("the daily report", "1\n2", 1.8e9),
    facts.ClusterUnreachable("the cluster does not answer: timeout", "timeout"),
    facts.ClusterReached("the cluster answers again", 30.0),
    facts.NodeFaulted("node a14 has lost job 17 of Pong", "a14", "gpu", "Pong", "17", new=True),
    facts.NodeExcluded("node a14 has failed 3 times within a week", "a14", 1e9),
)


def a_copy(directory: Path) -> Path:
    """A copy of the sources."""
    for name in ("supervisor", "workers", "client", ".mypy_cache"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", directory)
    return directory


@pytest.fixture(params=[EVERY, *(pytest.param(each, marks=pytest.mark.slow) for each in discovery.names())])
def without(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the sources without a feature, or without all of them."""
    copy = a_copy(tmp_path / "copy")
    for name in discovery.names() if request.param == EVERY else [request.param, *GO_WITH.get(request.param, [])]:
        shutil.rmtree(copy / "supervisor" / "features" / name)
    return copy


class Copied:
    """The daemon and the client of a copy of the sources, on the state of a box."""

    def __init__(self, sources: Path, box: Box) -> None:
        self.sources, self.box = sources, box
        self.env = {**os.environ, "PYTHONPATH": str(sources), "EXTRALIFE_BOOT_FILES": str(box.boot_files), **box.home}
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.box.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "supervisor", "-c", str(self.box.config_file)], cwd=self.sources, env=self.env,
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "supervisor.ctl", "-c", str(self.box.config_file), *words], cwd=self.sources,
            env=self.env | {"COLUMNS": "200"}, capture_output=True, text=True, timeout=30 * PATIENCE, check=False,
        )  # fmt: skip

    def pid(self) -> int | None:
        """The pid of the running program's worker."""
        done = self.ctl("status", "--json")
        rows = json.loads(done.stdout)["programs"] if done.returncode in {0, 3} and done.stdout else []
        return next((row["pid"] for row in rows if row["name"] == "steady" and row["phase"] == "RUNNING"), None)

    def kill(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()


@pytest.fixture
def copied(without: Path, box: Box) -> Iterator[Copied]:
    made = Copied(without, box)
    yield made
    made.kill()


def check(sources: Path) -> None:
    """Their types and their imports are right."""
    for tool in ("mypy", "lint-imports"):
        command = [f"{Path(sys.executable).parent}/{tool}"]
        done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.timeout(900)
def test_the_sources_without_it_are_right(without: Path) -> None:
    check(without)


@pytest.fixture
def tests(without: Path) -> Callable[..., str]:
    """Runs pytest there, on the tests of what is left."""
    for name in ("tests", "bench", "deploy", "docs", "units"):
        shutil.copytree(ROOT / name, without / name, ignore=shutil.ignore_patterns("__pycache__", ".envs"))
    shutil.copy2(ROOT / "README.md", without)
    for path in [path for name in removed(without) for path in (without / "tests").glob(f"*/{name}")]:
        shutil.rmtree(path)

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow and not lab", *words]
        done = subprocess.run(command, cwd=without, capture_output=True, text=True, timeout=3000, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    return run


def removed(sources: Path) -> set[str]:
    return {name for name in discovery.names() if not (sources / "supervisor" / "features" / name).exists()}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tests_of_the_rest_can_be_imported(tests: Callable[..., str], without: Path) -> None:
    assert set(re.findall(r"SKIPPED .* (\w+) is removed", tests("--collect-only"))) <= removed(without)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("without", [EVERY, "alerts"], indirect=True)
def test_the_tests_of_the_rest_pass(tests: Callable[..., str]) -> None:
    tests("-n2", "tests/core", "tests/policy", "tests/config", "tests/ctl", "tests/sim")


def test_a_journal_full_of_its_facts_is_gone_on_with(copied: Copied, box: Box) -> None:
    box.state.mkdir()
    journal = Journal(box.state / "journal.sqlite")
    rows = [json.loads(line) for line in lzma.decompress(OLD_NIGHT.read_bytes()).splitlines()]
    for row in rows:
        fact = codec.decode(row["kind"], row["version"], json.dumps(row["body"]))
        journal.append([fact], at_s=row["at_s"], wall_s=row["wall_s"], boot_id=row["boot_id"])
    last = rows[-1]
    journal.append(MORE, at_s=last["at_s"] + 1.0, wall_s=last["wall_s"] + 1.0, boot_id=last["boot_id"])
    journal.close()
    command = json.dumps([sys.executable, str(TRAINER), "none"])
    box.config(f'[program.steady]\ncommand = {command}\nprogress = "beat"\n')
    copied.start()
    pid = until(copied.pid, 60, "it to train", lambda: box.log.read_text()[-3000:])
    copied.kill()
    copied.start()
    assert until(copied.pid, 60, "the next daemon to adopt it", lambda: box.log.read_text()[-3000:]) == pid
    for words in (("status",), ("report",), ("history", "-n", "2000"), ("explain", "steady"), ("level",), ("cost",)):
        done = copied.ctl(*words)
        assert (done.returncode, done.stderr) == (0, ""), f"{words}: {done.stdout[-500:]}{done.stderr}"
        if words[0] == "history":
            assert "rolled back to" in done.stdout
            assert "not any more" in done.stdout
    for name in removed(copied.sources):
        for verbs in Path(ROOT, "supervisor", "features", name).glob("verbs*.py"):
            verb = re.search(r"^def ([a-z]\w*)\(session", verbs.read_text(), re.MULTILINE)[1]
            assert "Unknown syntax" in copied.ctl(verb.replace("_", "-")).stdout
    copied.daemon.send_signal(signal.SIGTERM)
    copied.daemon.wait(30 * PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        pytest.fail("it still runs")


@pytest.mark.parametrize(
    ("feature", "section"),
    [
        ("backups", "[backup]\nkeep = 3\n"),
        ("slurm", '[launcher]\nkind = "slurm"\n'),
        ("recorder", "[recorder]\nmax_mb = 0\n"),
    ],
)
def test_a_section_of_a_removed_feature_is_refused_with_the_sections_that_exist(
    copied: Copied, box: Box, feature: str, section: str
) -> None:
    box.config('[program.steady]\ncommand = "sleep 60"\n', extra=section)
    done = subprocess.run(
        [sys.executable, "-m", "supervisor", "-c", str(box.config_file), "--check"], cwd=copied.sources, env=copied.env,
        capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
    )  # fmt: skip
    exists = (copied.sources / "supervisor" / "features" / feature).exists()
    assert (done.returncode == 0) == exists, done.stdout + done.stderr
    name = section.partition("]")[0][1:]
    assert exists or f"{name} is not a section; the sections are daemon, level" in done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_the_example_of_the_guide_is_a_feature(tmp_path: Path, box: Box) -> None:
    sources = a_copy(tmp_path / "copy")
    blocks = re.findall(
        r"```python\n# (supervisor/\S+)\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 6
    for name, code in blocks:
        path = sources / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code)
    (path.parent / "__init__.py").touch()
    check(sources)
    box.config('[program.brief]\ncommand = "false"\n', extra="[crashes]\nalert_every = 2\n[restart]\nbase_delay_s = 0.1\n")
    made = Copied(sources, box)
    made.start()
    try:
        until(
            lambda: made.ctl("crashes").stdout in {"brief 2\n", "brief 3\n", "brief 4\n"}, 60, "the count", box.log.read_text
        )
    finally:
        made.kill()


KEYS = """
from supervisor.keys import key
from supervisor.records import Record


class Paint(Record):
    colour: str = key("red", "its colour", choices=("red", "blue"))


PROGRAM = {"paint": Paint}
"""
SHOW = """
import sys
from supervisor import config
from supervisor.features.paint.settings import Paint

print(*(f"{spec.name} {spec.of(Paint).colour}" for spec in config.load(sys.argv[1], {}, look=False).settings.programs))
"""


@pytest.mark.parametrize(
    ("colours", "told"),
    [(("blue", ""), "Pong red mine blue"), (("", "blue"), "Pong blue mine red"), (("green", ""), "colour must be one of")],
)
def test_a_feature_adds_a_key_to_every_program(tmp_path: Path, box: Box, colours: tuple[str, str], told: str) -> None:
    sources = a_copy(tmp_path / "copy")
    folder = sources / "supervisor" / "features" / "paint"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "settings.py").write_text(KEYS)
    mine, game = (f'colour = "{each}"\n' if each else "" for each in colours)
    box.config(f'[program.mine]\ncommand = "false"\n{mine}[program.Pong]\n{game}')
    done = subprocess.run(
        [sys.executable, "-c", SHOW, str(box.config_file)], cwd=sources, capture_output=True, text=True, check=False,
        timeout=60 * PATIENCE,
    )  # fmt: skip
    assert told in done.stdout + done.stderr
