"""What the documents point at exists: files, headings, rules, tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
ADRS = sorted((ROOT / "docs" / "adr").glob("*.md"))
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)(?:\s+\"([^\"]*)\")?\)")
RULES = (
    "deploy/health.py",
    "supervisor/policy/",
    "supervisor/core/",
    "supervisor/adapters/",
    "supervisor/shell/",
    "supervisor/shim.py",
    "supervisor/trust.py",
    "workers/",
)


def prose(path):
    """The text without code, where brackets are not links."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "code", text)


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


def happenings():
    """The rows of README's table: what happens, the link to its rule, the link to its test."""
    text = (ROOT / "README.md").read_text()
    table = text[text.index("| when | then | rule | test |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table]


def test_the_table_of_happenings_is_there():
    assert len(happenings()) >= 13
    assert all(len(row) == 4 and all(row) for row in happenings())


@pytest.mark.parametrize("row", happenings(), ids=lambda row: row[0])
def test_a_happening_has_a_rule_and_a_test(row):
    ((rule, _),) = LINK.findall(row[2])
    ((test, function),) = LINK.findall(row[3])
    assert rule.startswith(RULES)
    assert '"""' in (ROOT / rule).read_text().splitlines()[0], "a rule is stated in its file's first lines"
    assert Path(test).name.startswith("test_")
    assert re.search(rf"^(async )?def {function}\(", (ROOT / test).read_text(), flags=re.MULTILINE), (
        f"{test} has no {function}: give the name of the test as the link's title"
    )


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
def test_a_decision_is_one_page_with_its_alternatives(adr):
    text = adr.read_text()
    assert text.startswith(f"# {adr.name[:4]}: ")
    parts = [text.index(f"**{part}.**") for part in ("Question", "Decision", "Alternatives", "Consequences")]
    assert parts == sorted(parts)
    assert text.count("\n- ") >= 2, "name what else was thought of"
    assert len(text.splitlines()) <= 50
