"""The outside of a busy night is what was recorded: facts, API, XML-RPC, every verb of extralifectl.

A change of structure must not change a byte of it. Where a change is meant, record.py records it anew, and the diff of git
shows what users will see.
"""

import json

import pytest
from outside_pages import ACTS, ALONE, CALLS, CHANGES, ELSEWHERE, FILES, LAST_CALL, READS, STREAMS, VERBS
from recording import Pages, differences, old_night, recorded, state_of


@pytest.fixture(scope="module")
def pages():
    made = Pages()
    try:
        made.ask_all()
        yield made
    finally:
        made.close()


@pytest.mark.long
def test_every_page_is_as_recorded(pages):
    """One test, so that the night is told once however tests are spread over processes."""
    said = differences(pages.found, recorded())
    if said:
        pytest.fail(said, pytrace=False)
    assert set(pages.methods) <= {method for method, _ in (*CALLS, LAST_CALL)}, "a method without a page"
    verbs = {line.split()[0] for line in (*VERBS, *CHANGES, *ALONE)} | ELSEWHERE
    assert set(pages.verbs()) <= verbs, "a verb without a page"
    asked = {target.partition("?")[0] for _, target in READS} | {target for _, target, _ in ACTS}
    routes = {path for _, path in pages.application.routes if not path.startswith("/RPC2")} - STREAMS - FILES
    assert not [path for path in routes if not any(_fits(path, target) for target in asked)], "a route without a page"


def _fits(path, target):
    parts, given = path.split("/"), target.split("/")
    return len(parts) == len(given) and all(one == other or one[:1] == "{" for one, other in zip(parts, given, strict=True))


def test_an_old_journal_gives_its_state_for_ever():
    """Whatever later code does with new nights: this journal is read, and comes to the state that it came to."""
    rows = [json.loads(line) for line in old_night().splitlines()]
    assert len(rows) > 900
    assert len({row["kind"] for row in rows}) > 60
    name = "state_of_the_old_night.json"
    assert differences({name: state_of(old_night())}, {name: recorded()[name]}) == ""


def test_a_difference_names_the_page_the_line_and_the_command():
    said = differences(
        {"a.txt": "one\ntwo\n", "c.txt": "new\n"}, {"a.txt": "one\n2\n", "b.txt": "gone\n", "d.txt": "x\n" * 99}
    )
    assert said.startswith(
        "4 pages differ from what was recorded. If that is meant: .venv/bin/python tests/outside/record.py"
    )
    assert "--- recorded/a.txt\n+++ now\n@@ -1,2 +1,2 @@\n one\n-2\n+two" in said
    assert "-gone" in said
    assert "+new" in said
    assert "more lines" in said
    assert differences({"a.txt": "one\n"}, {"a.txt": "one\n"}) == ""
