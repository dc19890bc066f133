"""Every command, path, variable and setting of the pages that a new renter reads: run against a real daemon, or resolved."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from box import Box
from tools import ROOT

from supervisor import config
from supervisor.config.whole_input import NO_SETTINGS, VARIABLES
from workers import contract

PAGES = [
    ROOT / name
    for name in ("README.md", *(f"docs/{each}.md" for each in ("first-night", "container", "offsite", "accounts")))
]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
OURS = {"extralifectl", "supervisorctl"}
ENDLESS = {"top", "dashboard", "--watch", "-f"}
STAND_INS = {"NAME": "Pong", "REPO": "/tmp/repository", "FILE": "file", "DIR": "/tmp/directory", "ID": "latest"}
VARIABLE = re.compile(r"\bEXTRALIFE_[A-Z_]+[A-Z]\b")


def code(page: Path, language: str = "") -> list[str]:
    return [text for kind, text in FENCED.findall(page.read_text()) if kind == language]


def lines(page: Path) -> list[list[str]]:
    """The words of each command: the lines of blocks, and code within sentences."""
    blocks = [line for text in (*code(page, "sh"), *code(page)) for line in text.splitlines()]
    found = []
    for line in (*blocks, *re.findall(r"`([^`\n]+)`", FENCED.sub("", page.read_text()))):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        parts = (part.removeprefix("sudo ").split() for part in " ".join(words).split(" && "))
        found += [[STAND_INS.get(word, word) for word in part] for part in parts]
    return [words for words in found if words]


ASKED = sorted(
    {tuple(words[1:]) for page in PAGES for words in lines(page) if words[0].rpartition("/")[2] in OURS and words[1:]}
)


def test_each_documented_action_is_answered_by_a_daemon_with_each_documented_variable(box: Box) -> None:
    scripts = (path.read_text(errors="replace") for path in (ROOT / "deploy").rglob("*") if path.is_file())
    names = {name for text in (*scripts, (ROOT / "docs/container.md").read_text()) for name in VARIABLE.findall(text)}
    assert {"EXTRALIFE_STATE", "EXTRALIFE_OWN_LAYER", "EXTRALIFE_STOP_WITHIN_S"} <= names
    set_by_box = {"EXTRALIFE_BOOT_FILES", *(name for name in names if name in VARIABLES or hasattr(contract, name[11:]))}
    box.env = dict.fromkeys(names - set_by_box, "/workspace") | {
        "EXTRALIFE_STOP_WITHIN_S": "60",
        "EXTRALIFE_USD_PER_HOUR": "1.2",
    }
    box.config(box.trainer("Pong"), extra=f'[when_done]\ncommand = ["{ROOT}/deploy/when_done/vastai"]')
    box.start()
    box.wait_phase("Pong", "RUNNING")
    last = {("shutdown",): 1, ("when-done", "now"): -1}  # nothing is over yet, so `now` is refused
    assert len(ASKED) > 25
    for words in sorted(ASKED, key=lambda words: last.get(words, 0)):
        endless = ENDLESS & set(words)
        elsewhere = ["-o", str(box.directory / "a.png")] if words[0] == "plot" else []  # not into the checkout
        done = box.ctl(*([words[0], "--help"] if endless else [*words, *elsewhere]), timeout_s=60)
        assert done.returncode != 2, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        assert "Unknown syntax" not in done.stdout, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_path_and_option_exists(page: Path) -> None:
    for words in lines(page):
        script = ROOT / words[0]
        if words[0].startswith(("deploy/", "tests/")):
            assert script.exists(), words
            for option in (word for word in words if word.startswith("--")):
                known = script.read_text() if script.is_file() else ""
                assert option in known or f"{option[2:]})" in known, f"{words[0]} has no {option}"
    text = page.read_text()
    for path in re.findall(r"/opt/extralife/(?:current/)?(deploy/[\w/.-]+)", text):
        assert (ROOT / path).exists(), path
    entrypoint = (ROOT / "deploy/container/entrypoint").read_text()
    for name in re.findall(r"/workspace/extralife/([\w.]+)", text):
        assert f"$prefix/{name}" in entrypoint or name in entrypoint.split(), name
    for block in code(page, "sh"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_variable_is_read_by_something(page: Path) -> None:
    ours = {value for key, value in vars(contract).items() if key.startswith("ENV_")}
    of_tests = {name for path in (ROOT / "tests/lab").glob("*.py") for name in VARIABLE.findall(path.read_text())}
    assert set(VARIABLE.findall(page.read_text())) <= {*VARIABLES, *NO_SETTINGS, *ours, *of_tests}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_settings_block_passes_the_check(page: Path, tmp_path: Path) -> None:
    for name in ("restic.password", "restic.env", "alert-urls"):
        (tmp_path / name).write_text("json://127.0.0.1/x" if name == "alert-urls" else "A_NAME=long-enough\n")
        (tmp_path / name).chmod(0o600)
    # An ordinary user may not write where the service does.
    places = {"state_dir": str(tmp_path / "state"), "runtime_dir": str(tmp_path / "run")}
    blocks, passed = list(code(page, "toml")), 0
    for block in blocks:
        whole = block if "[program." in block else (ROOT / "deploy/examples/box.toml").read_text() + block
        file = tmp_path / "extralife.toml"
        file.write_text(whole.replace("/opt/extralife/deploy", f"{ROOT}/deploy"))
        config.load(str(file), {"HOME": str(tmp_path)}, places)
        passed += 1
    assert passed == len(blocks)
