"""What the documents point at exists: files, headings, rules, tests."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from catalogue import ROWS
from tools import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)(?:\s+\"([^\"]*)\")?\)")
RULES = (
    "deploy/health.py", "deploy/container/", "supervisor/policy/", "supervisor/deciding/", "supervisor/model/",
    "supervisor/reports/", "supervisor/adapters/", "supervisor/shell/", "supervisor/shim.py", "supervisor/trust.py",
    "supervisor/as_user.py", "supervisor/features/", "workers/",
)  # fmt: skip


def prose(path):
    """The text without code, where brackets are not links."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


CODE = sorted(path for room in ("supervisor", "workers") for path in (ROOT / room).rglob("*.py"))
CLASSES = {each for path in CODE for each in re.findall(r"^class (\w+)", path.read_text(), flags=re.MULTILINE)}
# A level and Slurm have these words too (docs/concepts.md). No name joins the list, and each renamed one leaves it.
REFUSED = {"load", "ladder", "rung", "climb", "cluster", "launcher"}
LEFT = {
    "Climb", "ClusterReached", "ClusterRecord", "ClusterUnreachable", "LadderLaid", "Launcher", "LauncherSettings",
    "Load", "LoadSettings", "LoadState", "LoadVerdict", "LocalLauncher", "RebootCluster", "Rung", "SlurmLauncher",
    "climb_view", "ladder", "launcher", "load",
}  # fmt: skip


def links(path):
    return LINK.findall(prose(path))


def anchors(path):
    """Headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def name(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_resolve(document):
    for target, _ in links(document):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        resolved = (document.parent / file).resolve() if file else document
        assert resolved.is_relative_to(ROOT), f"{target} leaves the repository"
        assert resolved.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(resolved), f"{target}: no such heading"


def test_links_are_found():
    assert sum(len(links(document)) for document in DOCUMENTS) > 200


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.when)
def test_a_row_has_a_rule_and_a_test(row):
    assert row.rule.startswith(RULES)
    first, second = (ROOT / row.rule).read_text().splitlines()[:2]
    assert '"""' in first or (first.startswith("#!") and second.startswith("# ")), (
        "a rule is stated in its file's first lines"
    )
    file, _, function = row.test.partition("::")
    assert Path(file).name.startswith("test_")
    assert re.search(rf"^(async )?def {function}\(", (ROOT / "tests" / file).read_text(), flags=re.MULTILINE), (
        f"{file} has no {function}"
    )


def test_the_ten_rows_of_the_readme_are_rows_of_the_catalogue():
    text = (ROOT / "README.md").read_text()
    table = text[text.index("| when | then |") :].split("\n\n")[0].splitlines()[2:]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table]
    assert 5 <= len(rows) <= 10
    assert set(rows) <= {(row.when, row.then) for row in ROWS}


def test_the_figures_of_the_readme_are_figures_of_the_page_on_speed():
    text, speed = ((ROOT / name).read_text() for name in ("README.md", "docs/speed.md"))
    figures = re.findall(r"^\| (.+?) \| (.+?) \| .+ \| `(.+?)` \|$", text, flags=re.MULTILINE)
    assert len(figures) == 5
    for what, ours, command in figures:
        assert f"| {what} | {ours} |" in speed
        assert f"`{command}`" in speed
        assert (ROOT / command.split()[1]).is_file()


def test_the_second_screen_of_the_readme_has_alerts_copies_the_end_of_the_meter_and_games():
    """`tests/e2e/test_documented_commands.py` checks it as a configuration."""
    text = (ROOT / "README.md").read_text()
    (snippet,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    assert len(snippet.splitlines()) <= 12, "about ten lines"
    assert list(tomllib.loads(snippet)) == ["alerts", "offsite", "when_done", "program"]
    assert text[: text.index(snippet)].count("\n## ") == 2


def test_every_guide_is_listed_in_the_readme_and_begins_with_its_task():
    listed = {target for target, _ in links(ROOT / "README.md")}
    guides = sorted((ROOT / "docs").glob("*.md"))
    assert {f"docs/{guide.name}" for guide in guides} <= listed
    for guide in guides:
        title, _, rest = guide.read_text().partition("\n\n")
        assert title.startswith("# ")
        assert rest.startswith("Read this when you want to "), f"{guide.name}: say first for which task it is"


def test_each_word_of_the_list_names_classes_or_files():
    table = (ROOT / "docs" / "concepts.md").read_text().partition("| word | is |")[2].strip().splitlines()[2:]
    assert 35 <= len(table) <= 50
    for row in table:
        for name in re.findall(r"`([^`]+)`", row.strip("|").split("|")[-1]):
            assert (ROOT / name).is_file() if "/" in name else name in CLASSES, name


def test_no_new_name_has_another_word_for_a_level_or_for_slurm():
    names = CLASSES | {part for path in CODE for part in path.relative_to(ROOT).with_suffix("").parts}
    assert {each for each in names if REFUSED & set(re.findall(r"[a-z]+", re.sub("([A-Z])", r"_\1", each).lower()))} == LEFT


def test_only_texts_about_two_names_or_about_supervisor_say_supervisorctl():
    """On images of vast.ai and RunPod that is the stock Supervisor's own command: a hint must not lead there."""
    rooms = [path for room in ("supervisor", "workers", "units", "docs") for path in (ROOT / room).rglob("*.*")]
    texts = [path for path in [ROOT / "README.md", *rooms] if path.is_file() and path.suffix != ".pyc"]
    assert {name(path) for path in texts if b"supervisorctl" in path.read_bytes()} <= {
        "README.md", "docs/extralifectl.md", "docs/supervisor-compatibility.md", "supervisor/features/when_done/adapters/stopping.py",
        "supervisor/features/dialect/__init__.py", "supervisor/collision.py", "supervisor/ctl/checks_service.py",
        "supervisor/ctl/completion.py", "workers/commands.py",
    }  # fmt: skip


def test_the_two_commands_can_be_run():
    commands = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[1].splitlines()
    assert [line.split()[0] for line in commands] == ["deploy/try", "tests/run"]
    for line in commands:
        assert (ROOT / line.split()[0]).stat().st_mode & 0o111 == 0o111


def test_decisions_are_numbered_and_listed():
    numbers = [each.name.partition("-")[0] for each in ADRS]
    assert all(len(number) == 4 and number.isdigit() for number in numbers)
    assert len(set(numbers)) == len(numbers), "one decision has one number; a gap is a decision that was never landed"
    listed = {target for target, _ in links(ROOT / "docs" / "architecture.md")}
    assert {f"adr/{each.name}" for each in ADRS} <= listed


@pytest.mark.parametrize("adr", ADRS, ids=lambda path: path.stem)
def test_a_decision_is_short_and_names_what_was_refused(adr):
    text = adr.read_text()
    assert text.startswith(f"# {adr.name[:4]}: ")
    parts = [text.index(f"**{part}.**") for part in ("Context", "Decision", "Refused")]
    assert parts == sorted(parts)
    assert text.count("\n- ") >= 2
    assert len(text.split()) <= 250


def test_the_picture_is_drawn_from_its_recording():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        from picture import draw
    finally:
        sys.path.remove(str(ROOT / "bench"))
    pictures = ROOT / "docs" / "pictures"
    assert (pictures / "night.svg").read_text() == draw((pictures / "night.txt").read_text()), "bench/picture.py --draw"
