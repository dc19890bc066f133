"""An ASCII locale ends no command: text has its encoding everywhere, and file names are UTF-8."""

import ast
import os
import subprocess
import sys

import pytest
from tools import ROOT

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def unspecified(source):
    """Calls for text without an encoding, also those on a value whose type ruff's PLW1514 does not know."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        given = {each.arg: each.value for each in call.keywords}
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        of_os = ast.unparse(call.func).startswith(("os.", "self._replies.")) and name != "fdopen"
        if "encoding" in given or of_os:
            continue
        at = {"fdopen": 1, "open": 0 if isinstance(call.func, ast.Attribute) else 1}.get(name)
        mode = given.get("mode") or (call.args[at] if at is not None and len(call.args) > at else ast.Constant("r"))
        if (
            (name == "read_text" and not call.args)
            or (name == "write_text" and len(call.args) < 2)
            or (at is not None and isinstance(mode, ast.Constant) and "b" not in str(mode.value))
            or (name in {"run", "Popen", "check_output"} and {"text", "universal_newlines"} & given.keys())
        ):
            yield f"{call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("place", ["supervisor", "workers", "client", "deploy"])
def test_text_files_and_the_output_of_tools_name_their_encoding(place):
    found = {path: [*unspecified(path.read_text("utf-8"))] for path in (ROOT / place).rglob("*.py")}
    assert found
    assert {str(path): calls for path, calls in found.items() if calls} == {}


@pytest.mark.parametrize(
    ("call", "is_found"),
    [
        ("path.read_text()", True),
        ("path.read_text(errors='replace')", True),
        ("path.write_text(text)", True),
        ("path.open('a')", True),
        ("open(path)", True),
        ("os.fdopen(fd, 'w')", True),
        ("subprocess.run(argv, text=True)", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(text, encoding='utf-8')", False),
        ("path.open('rb')", False),
        ("open(path, 'ab')", False),
        ("os.open(path, flags)", False),
        ("subprocess.run(argv, encoding='utf-8')", False),
    ],
)
def test_what_counts_as_no_encoding(call, is_found):
    assert bool([*unspecified(call)]) is is_found


@pytest.fixture
def box(tmp_path):
    """A configuration whose paths and texts are no ASCII."""
    place = tmp_path / "größe-学"
    place.mkdir()
    (place / "c.toml").write_text(
        f"""
        [daemon]
        state_dir = "{place}/state"
        runtime_dir = "{place}/run"
        [program.mine]
        command = ["python3", "{place}/größe.py"]
        directory = "{place}"
        """,
        encoding="utf-8",
    )
    (place / "sv.conf").write_text(f"[program:größe]\ncommand={sys.executable} größe.py\n", encoding="utf-8")
    return place


@pytest.mark.parametrize(
    "words",
    [
        ["supervisor", "--check"],
        ["supervisor.ctl", "config"],
        ["supervisor.ctl", "status"],
        ["supervisor.ctl", "import", "sv.conf"],
        ["supervisor.ctl", "tail", "mine"],
    ],
    ids=lambda words: words[1],
)
def test_a_command_in_an_ascii_locale_reads_and_prints_paths_that_are_not(box, words):
    module, *rest = words
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, "-c", box / "c.toml", *rest],
        env={**os.environ, **ASCII, "PYTHONPATH": str(ROOT)}, cwd=box, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    said = (done.stdout + done.stderr).decode("utf-8")
    assert "Traceback" not in said
    assert done.returncode in {0, 4, 7}, said
    assert "größe" in said or words[1] == "--check"


def test_what_a_terminal_cannot_show_is_escaped(box):
    """As with PYTHONIOENCODING, or in a locale of another alphabet."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "supervisor.ctl", "-c", box / "c.toml", "pid"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert b"Traceback" not in done.stderr
    assert b"gr\\xf6\\xdfe-\\u5b66" in done.stdout
