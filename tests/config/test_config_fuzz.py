"""Whatever stands in the file, the environment or the flags: settings, or ConfigError with sentences. Nothing else."""

import json
import tempfile
import tomllib
from pathlib import Path

import pytest
from config_kit import Place
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools import ROOT

from supervisor import config
from supervisor.config.tables import program_settings, settings_of
from supervisor.model.settings import SECTIONS
from workers.options import OPTIONS

EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.toml"))
TEXTS = {path.stem: path.read_text() for path in EXAMPLES} | {"default": config.DEFAULT_TOML}

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalar = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(0, 600), st.floats(), st.booleans(), text,
    st.sampled_from(["Pong", "Pongg", "sleep 1", "files", "log", "*.pt", "cuda:1", "/tmp", "~", "a'b", "0", "", "\0"]),
)  # fmt: skip
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=4
)
program_keys = st.sampled_from([*OPTIONS, *program_settings(command=False), *program_settings(command=True)]) | text
program = st.dictionaries(program_keys, value, max_size=4)
names = st.sampled_from(["Pong", "Qbert", "my-run", "all", "a.b", "-x"]) | text


def section(name):
    return st.dictionaries(
        st.sampled_from([*settings_of(SECTIONS[name]), "state_dir", "runtime_dir"]) | text, value, max_size=4
    )


body = st.fixed_dictionaries(
    {},
    optional={
        **{name: section(name) | value for name in SECTIONS},
        "levels": st.dictionaries(names, section("level") | value, max_size=3) | value,
        "training": st.dictionaries(program_keys, value, max_size=4) | value,
        "program": st.dictionaries(names, program | value, max_size=3) | value,
        "other": value,
    },
)
variables = st.dictionaries(
    st.sampled_from(["EXTRALIFE_LOG_LEVEL", "EXTRALIFE_SLOTS", "EXTRALIFE_STATE_DIR", "RL_LR", "RL_BATCH_SIZE", "RL_DEVICE"])
    | st.sampled_from(["RL_X", "EXTRALIFE_STATE", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "XDG_STATE_HOME", "HOME", "PATH"]),
    # Of all surrogates the kernel's bytes give only these.
    st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"])
        | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF),
        max_size=10,
    )
    | st.just("9" * 5000),
    max_size=3,
)
flags = st.dictionaries(st.sampled_from(["slots", "log_level", "state_dir", "nonsense"]), scalar | st.none(), max_size=2)


def toml(table):
    """A value as TOML, tables inline."""
    if isinstance(table, dict):
        return "{ " + ", ".join(f"{string(key)} = {toml(item)}" for key, item in table.items()) + " }"
    if isinstance(table, list):
        return "[" + ", ".join(map(toml, table)) + "]"
    if isinstance(table, bool):
        return str(table).lower()
    return string(table) if isinstance(table, str) else repr(table)


def string(item):
    return json.dumps(item, ensure_ascii=False).replace("\x7f", "\\u007f")


def document(table):
    """Top-level tables with headers, so that lines are looked for in both shapes."""
    plain = [f"{string(key)} = {toml(item)}\n" for key, item in table.items() if not isinstance(item, dict)]
    headed = [
        f"[{string(key)}]\n" + "".join(f"{string(name)} = {toml(item)}\n" for name, item in table[key].items())
        for key in table
        if isinstance(table[key], dict)
    ]
    return "".join(plain + headed)


def loaded_or_sentences(call):
    """The settings; None after it has looked at each error: a sentence on one line, with a place."""
    try:
        return call()
    except config.ConfigError as error:
        sentences = error.errors
    assert sentences
    for sentence in sentences:
        assert "\n" not in sentence
        assert len(sentence) < 700
        assert ": " in sentence or "environment variable" in sentence
    return None


def settle(place, said, environ=None, **given_flags):
    """Whether the text is a configuration, and if so one that can be shown and started."""
    loaded = loaded_or_sentences(lambda: place.load(said, environ, **given_flags))
    if loaded is None:
        return False
    for key, _, origin in config.explain(loaded):
        assert key
        assert str(origin)
    json.dumps([found for _, found, _ in config.explain(loaded)])
    for spec in loaded.settings.programs:
        assert spec.argv
        assert all("\0" not in word for word in (*spec.argv, *(f"{key}={item}" for key, item in spec.env)))
        json.dumps([spec.argv, spec.env, spec.digest])
    return True


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(body, variables, flags)
def test_nothing_else_is_ever_raised(table, environ, given_flags):
    with tempfile.TemporaryDirectory() as directory:
        settle(Place(Path(directory)), document(table), environ, **given_flags)


def parsed(said):
    try:
        return tomllib.loads(said)
    except tomllib.TOMLDecodeError:
        return None


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_that_is_cut_off_anywhere(tmp_path, name):
    """Every prefix that is no TOML, and every document that the others come to: most end in the same comment."""
    place, data = Place(tmp_path), TEXTS[name].encode()
    tried = whole = 0
    before = None
    for end in range(len(data)):
        said = data[:end].decode()
        document = parsed(said)
        if document is None or document != before:
            tried, whole, before = tried + 1, whole + settle(place, said), document
    assert 0 < whole < tried, "both happen: cut inside a key, and between two programs"
