"""The keys of a command about the figures that it writes itself: every mistake in one sentence, and the border of each limit."""

from __future__ import annotations

import pytest
from config_kit import Place, plain_id

from supervisor.policy.script.figures import Sources

HEAD = '[program.it]\ncommand = ["true"]\n'


def test_every_key(place: Place) -> None:
    text = (
        f"{HEAD}log_regex = 'step=(?P<step>a)'\njson_lines = 'a/*.jsonl'\ncsv_glob = '*.csv'\nevents_glob = 'runs/**/events*'\n"
        'target_steps = 9\nsteps_begin_anew = true\nfigures = { return = "eval/score", kl = "k" }\n'
    )
    assert place.program("it", text).figures == Sources(
        log_regex=("step=(?P<step>a)",), json_lines="a/*.jsonl", csv_glob="*.csv", events_glob="runs/**/events*",
        names=(("kl", "k"), ("mean_return", "eval/score")), target_steps=9, begin_anew=True,
    )  # fmt: skip
    assert place.program("it", HEAD).figures == Sources()
    shown = place.load(text).values
    assert {key: shown[f"program.it.{key}"] for key in ("log_regex", "json_lines", "csv_glob", "events_glob")} == {
        "log_regex": ["step=(?P<step>a)"], "json_lines": "a/*.jsonl", "csv_glob": "*.csv", "events_glob": "runs/**/events*",
    }  # fmt: skip
    assert shown["program.it.figures"] == {"kl": "k", "mean_return": "eval/score"}
    assert (shown["program.it.target_steps"], shown["program.it.steps_begin_anew"]) == (9, True)


LIST = "must be a regular expression or a list of them, such as 'step=(?P<step>\\d+)', not"
INSIDE = 'must be a pattern inside the directory, such as "runs/**/*.jsonl", not'
TABLE = 'must be a table, such as { return = "eval/score" }, not'
ALONE = "has no effect without json_lines, csv_glob or events_glob; groups of log_regex are figures by name"
NEEDED = 'progress = "figures" needs the steps: no log_regex has a group (?P<step>...)'
GLOB = 'json_lines = "*"\n'
MISTAKES = {
    "log_regex = 4": f"log_regex {LIST} 4",
    "log_regex = ['']": f"log_regex {LIST} ['']",
    f"log_regex = {['(?P<step>a)'] * 17}": "log_regex: has 17 regular expressions; at most 16 are tried on each line",
    f"log_regex = '(?P<step>{'a' * 991})'": "log_regex: a regular expression of 1001 characters; write at most 1000",
    "log_regex = '(?P<step>'": (
        "log_regex: '(?P<step>' is no regular expression: missing ), unterminated subpattern at position 0"
    ),
    "log_regex = 'step=([0-9]+)'": (
        "log_regex: 'step=([0-9]+)' has no named group: write the numbers that it finds as (?P<step>...), (?P<return>...), "
        "(?P<loss>...)"
    ),
    "log_regex = '(?P<nan_count>a)'": "log_regex: nan_count is measured by extralife itself; give the group another name",
    f"log_regex = '(?P<{'a' * 65}>a)'": "log_regex: the name of a group has at most 64 letters, not 65",
    "json_lines = 4": f"json_lines {INSIDE} 4",
    "events_glob = '../x'": f"events_glob {INSIDE} '../x'",
    'json_lines = "a\\u0000"': "json_lines must not hold a NUL character",
    f"{GLOB}figures = 4": f"figures {TABLE} 4",
    f"{GLOB}figures = {{ nan_count = 'a' }}": "figures: nan_count is measured by extralife itself; remove it",
    f"{GLOB}figures = {{ share_x = 'a' }}": "figures: 'share_x' is no name of a figure",
    f'{GLOB}figures = {{ "a\\nb" = "a" }}': "figures: 'a\\nb' is no name of a figure",
    f"{GLOB}figures = {{ {'a' * 65} = 'a' }}": f"figures: '{'a' * 65}' is no name of a figure",
    f"{GLOB}figures = {{ lr = 4 }}": "figures: lr must be the name of a key or a tag, a string, not 4",
    f"{GLOB}figures = {{ return = 'a', mean_return = 'b' }}": (
        "figures: mean_return says the same as another key of it; remove one of the two"
    ),
    f"{GLOB}figures = {{ lr = 'a', kl = 'a' }}": "figures: two figures have the same key or tag; remove one of them",
    f"{GLOB}figures = {{ {', '.join(f'f{number} = 1' for number in range(65))} }}": "figures: has 65 names; at most 64 are read",
    "figures = { lr = 'a' }": f"figures: {ALONE}",
    "log_regex = '(?P<step>a)'\nfigures = { lr = 'a' }": f"figures: {ALONE}",
    "target_steps = 0": "target_steps must be at least 1, not 0",
    "progress = 'figures'": 'progress: progress = "figures" needs log_regex, json_lines, csv_glob or events_glob',
    "log_regex = '(?P<loss>a)'\nprogress = 'figures'": f"progress: {NEEDED}",
    "log_regex = '(?P<loss>a) (?P<stp>b)'\nprogress = 'figures'": f"progress: {NEEDED}; did you mean step where it says stp?",
}  # fmt: skip


@pytest.mark.parametrize(("keys", "sentence"), MISTAKES.items(), ids=lambda text: plain_id(text[:40]))
def test_one_sentence(place: Place, keys: str, sentence: str) -> None:
    assert place.errors(f"{HEAD}{keys}\n") == [f"FILE, line {3 + keys.count(chr(10))}: program.it.{sentence}"]


def test_each_key_of_a_service_is_a_mistake_of_its_own(place: Place) -> None:
    keys = {
        "log_regex": '"a"',
        "json_lines": '"*"',
        "csv_glob": '"*"',
        "events_glob": '"*"',
        "figures": "{}",
        "target_steps": "4",
        "steps_begin_anew": "true",
    }
    text = "".join(f"{key} = {value}\n" for key, value in keys.items())
    assert place.errors(f'{HEAD}kind = "service"\n{text}') == [
        f"FILE, line {line}: program.it.{key}: a service is not judged by its figures; remove it, or the kind"
        for line, key in enumerate(keys, 4)
    ]


def test_a_pattern_may_hold_the_seed_which_a_rollback_changes(place: Place) -> None:
    text = '[program.it]\ncommand = "t {seed}"\nseeds = [4, 6]\nevents_glob = "runs/{name}-{seed}/*"\n'
    spec = place.program("it-s4", text)
    assert spec.figures.events_glob == "runs/it-s4-{seed}/*"
    assert spec.sources_at(0).events_glob == "runs/it-s4-4/*"
    (error,) = place.errors(f'{HEAD}json_lines = "{{seed}}.jsonl"\n')
    assert error.endswith("{seed} is not known here, or not the same at each start; a pattern may hold {name}, {run_dir}")


TWO = """[program.a]
command = ["true"]
directory = "/srv"
json_lines = "m.jsonl"
stdout_log = "/var/log/x"
[program.b]
command = ["true"]
directory = "/srv"
KEYS
"""


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        (
            'json_lines = "./m.jsonl"',
            (
                "json_lines: /srv/m.jsonl is the file of a, too, and their rows cannot be told apart; put {name} into it, or "
                "give each a directory"
            ),
        ),
        (
            "stdout_log = '/var/log/x'\nlog_regex = '(?P<step>.)'",
            "stdout_log: /var/log/x is the log of a, too, and its lines cannot be told apart; give each a log, or remove log_regex",
        ),
        ('json_lines = "*.jsonl"', ""),
        ('stdout_log = "/var/log/x"', ""),
        ("log_regex = '(?P<step>.)'", ""),
    ],
)
def test_two_programs_may_share_a_pattern_but_neither_a_file_nor_a_log_of_figures(
    place: Place, keys: str, error: str
) -> None:
    text = TWO.replace("KEYS", keys)
    if not error:
        assert place.load(text)
        return
    (told,) = place.errors(text)
    assert told.endswith(f"program.b.{error}")
