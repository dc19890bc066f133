"""The command of a user's own script: placeholders, values, groups, shells; and every mistake in one sentence."""

from dataclasses import replace

import pytest
from config_kit import Place, plain_id

from supervisor.adapters.process.processes import filled_in
from supervisor.config import scripts
from supervisor.model.settings import ProgramSpec
from supervisor.policy.script.placeholders import for_attempt

LADDER = """
[levels.light]
slots = 2
[levels.wide]
slots = 3
[levels.heavy]
num_envs = 64
batch_size = 1024
"""


def started(spec: ProgramSpec, resume: str = "") -> ProgramSpec:
    """The program as its next attempt is started."""
    assert spec.template is not None
    template = for_attempt(spec.template, batch_size=None, rollbacks=0, resume=resume)
    return filled_in(replace(spec, template=template), "/nowhere")


def at(place: Place, text: str, level: str, name: str = "it") -> ProgramSpec:
    found = place.settings(LADDER + text).at(level).program(name)
    assert found is not None
    return found


# --- values --------------------------------------------------------------------------------------------------------------


def test_a_scripts_command_is_that_of_each_level(place):
    text = '[program.it]\ncommand = "train --num-envs {num_envs} --batch-size {batch_size} --preset {level} --resume={resume}"\n'
    light, heavy = at(place, text, "light"), at(place, text, "heavy")
    assert started(light).argv == ("train", "--num-envs", "32", "--batch-size", "512", "--preset", "light")
    assert started(heavy, "/ckpt/9").argv == (
        "train", "--num-envs", "64", "--batch-size", "1024", "--preset", "heavy", "--resume=/ckpt/9",
    )  # fmt: skip
    assert (light.num_envs, light.batch_size, heavy.num_envs, heavy.batch_size) == (32, 512, 64, 1024)
    assert light.digest != heavy.digest
    assert light.own_digest == heavy.own_digest != ""


@pytest.mark.parametrize(
    ("keys", "moved_by"),
    [
        ('command = "t {num_envs} {resume}"', {"heavy"}),
        ('command = "t {batch_size} {resume}"', {"heavy"}),
        ('command = "t {level} {resume}"', {"wide", "heavy"}),
        ('command = "t"\nenv = { N = "{num_envs}" }\nfollows_level = true', {"heavy"}),
        ('command = "t"\ndirectory = "/r/{level}"\ncheckpoint_glob = "*.pt"', {"wide", "heavy"}),
        ('command = "t"\nlevel_values = ["batch_size"]', {"heavy"}),
        ('command = "t {num_envs}"\nnum_envs = 8', set()),
        ('command = "t {name} {run_dir} {resume}"', set()),
        ('command = "t {seed} {game} {gpu}"\nseed = 1\ngame = "x"\ngpu = 0', set()),
        ('command = "t"', set()),
    ],
)
def test_a_level_moves_exactly_the_programs_that_use_what_it_changes(place, keys, moved_by):
    text = f"[program.it]\n{keys}\n"
    light = at(place, text, "light")
    assert {level for level in ("wide", "heavy") if at(place, text, level).digest != light.digest} == moved_by
    assert bool(light.own_digest) == bool(moved_by)
    assert {at(place, text, level).own_digest for level in ("light", "wide", "heavy")} == {light.own_digest}


@pytest.mark.parametrize(
    ("keys", "follows"),
    [
        ('command = "t {num_envs}"', False),
        ('command = "t {num_envs}"\nprogress = "beat"', True),
        ('command = "t {num_envs}"\nenv = { FROM = "{resume}" }', True),
        ('shell = true\ncommand = "t {num_envs} ${EXTRALIFE_RESUME:+--resume}"', True),
        ('command = "t {num_envs}"\ncheckpoint_glob = "*.pt"\nfollows_level = false', False),
    ],
)
def test_a_climb_moves_no_program_that_names_no_way_to_resume(place, keys, follows):
    text = f"[load]\nstart = 'heavy'\n{LADDER}[program.it]\n{keys}\n"
    found = [rung.programs[0] for rung in place.settings(text).ladder]
    assert len({spec.digest for spec in found}) == 1 + follows
    assert [spec.num_envs for spec in found] == ([32, 32, 64] if follows else [64, 64, 64])
    assert {bool(spec.own_digest) for spec in found} == {follows}
    fixed = place.settings(text.replace("[load]", '[load]\nmode = "fixed"')).ladder
    assert [rung.programs[0].num_envs for rung in fixed] == [32, 32, 64], "a level that the operator pins is meant"


@pytest.mark.parametrize("keys", ["", "seeds = [1, 2]\n"])
def test_a_section_that_a_climb_leaves_alone_is_one_warning_with_both_remedies(place, keys):
    section = f'[program.it]\ncommand = "sleep {{num_envs}}"\nenv = {{ S = "{"{seed}" if keys else ""}" }}\n{keys}'
    loaded = place.load(section + LADDER)
    assert loaded.warnings == (
        (
            f"{place.file}, line 1: program.it: names no way to resume and would begin anew at each change of level: it keeps the "
            "settings of light; set checkpoint_glob to what it resumes from, or follows_level = true to restart it all the same; "
            "no program follows the level, so it stays as it is"
        ),
    )
    (beside,) = place.load(section + "[program.Pong]\n" + LADDER).warnings
    assert beside == loaded.warnings[0].partition("; no program")[0]
    key = f"program.{loaded.settings.programs[0].name}.follows_level"
    assert (loaded.values[key], str(loaded.origins[key])) == (False, "names no way to resume")
    assert place.load(section + "follows_level = false\n" + LADDER).warnings == ()
    told = place.load(section + "follows_level = true\n" + LADDER)
    assert (told.warnings, told.values[key]) == ((), True)


def test_seeds_of_a_script_are_programs(place):
    text = (
        '[program.Pong]\ncommand = ["t", "--game", "{game}", "--seed", "{seed}", "--run-name", "{name}"]\nseeds = [4, 6]\n'
    )
    settings = place.settings(text)
    assert [(spec.name, spec.group, started(spec).argv[2::2]) for spec in settings.programs] == [
        ("Pong-s4", "Pong", ("Pong", "4", "Pong-s4")), ("Pong-s6", "Pong", ("Pong", "6", "Pong-s6")),
    ]  # fmt: skip


def test_a_value_of_each_kind(place):
    words = '["t", "{game}", "{gpu}", "{name}", "{run_dir}", "{{x}}", "${HOME}"]'
    text = f'[program.it]\ncommand = {words}\ngame = "ALE/Pong-v5"\ngpu = 3\nenv = {{ W = "{{name}}/{{gpu}}" }}\n'
    settings = place.settings(text)
    (spec,) = settings.programs
    run_dir = settings.paths.run_dir("it")
    made = started(spec)
    assert made.argv == ("t", "ALE/Pong-v5", "3", "it", run_dir, "{x}", "${HOME}")
    env = dict(made.env)
    assert {key: env[key] for key in ("W", "EXTRALIFE_GAME", "EXTRALIFE_GPU", "EXTRALIFE_NAME", "EXTRALIFE_RUN_DIR")} == {
        "W": "it/3", "EXTRALIFE_GAME": "ALE/Pong-v5", "EXTRALIFE_GPU": "3", "EXTRALIFE_NAME": "it",
        "EXTRALIFE_RUN_DIR": run_dir,
    }  # fmt: skip
    assert "EXTRALIFE_NUM_ENVS" not in env, "it uses nothing of the level, so none is given that may be out of date"


def test_what_a_script_reads_by_itself_is_in_its_environment(place):
    spec = place.program("it", '[program.it]\ncommand = "t"\nlevel_values = ["num_envs", "level"]\nbatch_size = 64\n')
    env = dict(started(spec).env)
    found = [env.get(f"EXTRALIFE_{key}") for key in ("NUM_ENVS", "LEVEL", "BATCH_SIZE", "THREADS")]
    assert found == ["32", "light", "64", None]


def test_a_directory_is_filled_in_and_relative_to_the_file(place):
    for text, wanted in (
        ("runs/{name}", f"{place.directory}/runs/it"),
        ("{run_dir}/x/..", f"{place.directory}/state/programs/it"),
        ("/r/{{a}}", "/r/{a}"),
        ("~/x", None),
        ("", ""),
    ):
        spec = place.program("it", f'[program.it]\ncommand = "t"\ndirectory = "{text}"\n')
        assert spec.directory == wanted or (wanted is None and spec.directory.endswith("/x") and "~" not in spec.directory)


def test_a_group_of_words_vanishes_when_its_placeholder_is_empty(place):
    spec = place.program("it", '[program.it]\ncommand = ["t", ["--resume", "{resume}"], "-v"]\n')
    assert started(spec).argv == ("t", "-v")
    assert started(spec, "/c").argv == ("t", "--resume", "/c", "-v")


def test_a_shell_reads_one_string_and_is_another_on_a_box_without_bash(place, monkeypatch):
    text = "[program.it]\ncommand = 't.py {num_envs} 2>&1 | tee $HOME/log'\nshell = true\n"
    read = "t.py 32 2>&1 | tee $HOME/log"
    monkeypatch.setattr(scripts, "_BASH", str(place.directory / "bash"))
    assert started(place.program("it", text)).argv == ("/bin/sh", "-c", read)
    (place.directory / "bash").touch()
    assert started(place.program("it", text)).argv == (f"{place.directory}/bash", "-o", "pipefail", "-c", read)


# --- mistakes ------------------------------------------------------------------------------------------------------------

IT = "program.it"
C = f"FILE, line 2: {IT}.command"
MISTAKES = {
    'command = "t {num_env}"': f"{C} cannot be filled in: {{num_env}} is no placeholder; did you mean {{num_envs}}? "
    "{{ and }} are braces that stay",
    'command = "t {a{seed}}"': f"{C} cannot be filled in: placeholders cannot be nested in '{{a{{seed}}}}'; "
    "{{ and }} are braces that stay",
    'command = "t {seed}"': f"FILE, line 1: {IT}: {{seed}} has no value here; set seed = 1, or seeds = [1, 2, 3]",
    'command = "t {game}"': f'FILE, line 1: {IT}: {{game}} has no value here; set game = "Pong"',
    'command = "t {gpu}"': f"FILE, line 1: {IT}: {{gpu}} has no value here; set gpu = 0",
    'command = "t {num_envs}"\nkind = "service"': (
        f"FILE, line 1: {IT}: {{num_envs}} is a value of the level, and a service has none; write the value itself"
    ),
    'command = "t {resume}"\ndirectory = "{resume}"': (
        f"FILE, line 3: {IT}.directory cannot hold {{resume}}, which is empty at a first start; remove it"
    ),
    'command = "t"\ndirectory = "{x}"': (
        f"FILE, line 3: {IT}.directory: {{x}} is no placeholder; there are num_envs, batch_size, threads, level, seed, "
        "game, name, run_dir, gpu, resume; {{ and }} are braces that stay"
    ),
    'command = "t"\nenv = { A = "{sed}" }': (
        f"FILE, line 3: {IT}.env.A: {{sed}} is no placeholder; did you mean {{seed}}? {{{{ and }}}} are braces that stay"
    ),
    'command = "t"\nenv = { API_KEY = "s3cret{" }': (
        f"FILE, line 3: {IT}.env.API_KEY: has braces that are no placeholder; write {{{{ and }}}} for braces"
    ),
    'command = "t --resume {resume}"': (
        f'{C} leaves --resume alone at a first start, when {{resume}} is empty; write "--resume={{resume}}", which is '
        'removed completely, or ["--resume", "{resume}"] as a list in the list'
    ),
    'command = ["{resume}", "x"]': f"{C} begins with {{resume}}, which is empty at a first start; name the program there",
    'command = ["t", ["-v", "-x"]]': (
        f"{C} a list in it is removed when its placeholder is empty, and this one has none; write its words without it: "
        "['-v', '-x']"
    ),
    'command = ["t", ["a", ["b"]]]': (
        f"{C} must be a string or a list of strings, such as [\"python\", \"train.py\"], not ['t', ['a', ['b']]]"
    ),
    'command = "t 2>&1 | tee log"': (
        f"{C} holds 2>&1 |, which is for a shell, and no shell reads it: set shell = true, or quote what is meant as an argument"
    ),
    'command = ["t"]\nshell = true': (
        f'{C} must be one string where shell = true, such as "python train.py | tee log", not [\'t\']'
    ),
    'command = " "\nshell = true': f'{C} names no program; write it such as ["python", "train.py"], without NUL characters',
    'command = "t"\nshell = "yes"': f"FILE, line 3: {IT}.shell must be true or false, not 'yes'",
    'command = "t"\nlevel_values = ["num_env"]': (
        f"FILE, line 3: {IT}.level_values: 'num_env' is not a value of a level; did you mean num_envs?"
    ),
    'command = "t"\nlevel_values = "num_envs"': (
        f"FILE, line 3: {IT}.level_values must be a list such as [\"num_envs\", \"batch_size\"], not 'num_envs'"
    ),
    'command = "t {batch_size}"\nbatch_size = "auto"': (
        f'FILE, line 3: {IT}.batch_size = "auto" is for built-in games; write a number, or leave it to the level'
    ),
    'command = "t {game}"\ngame = "a b"': (
        f"FILE, line 3: {IT}.game must be a word for {{game}}, such as \"Pong\" or \"ALE/Pong-v5\", not 'a b'"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "sentence"), MISTAKES.items(), ids=lambda text: plain_id(text[:40]))
def test_one_sentence(place, keys, sentence):
    assert place.errors(f"[program.it]\n{keys}\n") == [sentence]
    assert place.errors(f"[program.it]\n{keys}\n{LADDER}") == [sentence], "told once, not once a level"


WARNINGS = {
    'command = "t $HOME/x ~/y data/*.pt"': (
        "command: no shell reads it, so $HOME/x ~/y data/*.pt stays as it is; set shell = true, or quote literal text"
    ),
    'command = ["t", "$HOME/x", "2>&1", "|", "data/*.pt"]': (
        "command: no shell reads it, so $HOME/x 2>&1 | stays as it is; set shell = true and write one string, if a shell is to read it"
    ),
    'command = "t"\nnum_envs = 8': (
        "num_envs: only a script that reads EXTRALIFE_NUM_ENVS takes it, because {num_envs} is not used in command, env or directory"
    ),
    'command = "t"\nfallback_batch = 8': (
        "fallback_batch: only a script that reads EXTRALIFE_BATCH_SIZE takes it, because {batch_size} is not used in command, env or directory"
    ),
    'command = "t {batch_size}"\nbatch_size = 8\nfallback_batch = 8': (
        "fallback_batch 8 is no smaller than batch_size 8 and has no effect"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "sentence"), WARNINGS.items(), ids=lambda text: plain_id(text[:40]))
def test_what_is_odd_is_a_warning(place, keys, sentence):
    (warning,) = [told for told in place.load(f"[program.it]\n{keys}\n").warnings if "is not found" not in told]
    line = 2 + keys.count("\n")  # the last key is the odd one
    separator = ": " if sentence.endswith("has no effect") else "."
    assert warning == f"{place.file}, line {line}: {IT}{separator}{sentence}"


TWO = """
[program.a]
command = "t"
directory = "/srv/{name}"
checkpoint_glob = "*.pt"
[program.b]
command = "t"
directory = "/srv/b/"
checkpoint_glob = "KEY"
[program.own]
command = "t"
checkpoint_glob = "*.pt"
[program.too]
command = "t"
checkpoint_glob = "*.pt"
"""


def test_two_programs_never_have_the_same_checkpoints(place):
    assert place.settings(TWO.replace("KEY", "*.pt")).program("b")
    (told,) = place.errors(TWO.replace("KEY", "/srv/a/*.pt"))
    assert told == (
        "FILE, line 9: program.b.checkpoint_glob: /srv/a/*.pt are the checkpoints of a, too, and each would resume from the "
        "other's; put {name} into it, or give each a directory"
    )
    (told,) = place.errors(TWO.replace("KEY", "/srv/**/*.pt"))
    assert told == (
        "FILE, line 9: program.b.checkpoint_glob: /srv/**/*.pt and /srv/a/*.pt of a meet, and each would resume from the "
        "other's; put {name} into it, or give each a directory"
    )


@pytest.mark.parametrize(
    ("glob", "sentence"),
    [
        ("{seed}/*.pt", "{seed} is not known here, or not the same at each start; a pattern may hold {name}, {run_dir}"),
        ("*.{pt,ckpt}", "{ alone is no placeholder in '*.{pt,ckpt}'; {{ and }} are braces that stay"),
    ],
)
def test_a_pattern_with_other_braces_is_refused(place, glob, sentence):
    (told,) = place.errors(f'[program.it]\ncommand = "t {{seed}}"\nseed = 1\ncheckpoint_glob = "{glob}"\n')
    assert told == f"FILE, line 4: program.it.checkpoint_glob: {sentence}"


def test_a_ladder_that_no_program_tells_anything_of_is_a_warning(place):
    commands = ("sleep 1", "sleep {num_envs} {resume}")
    found = [place.load(f'[program.it]\ncommand = "{command}"\n{LADDER}').warnings for command in commands]
    assert found == [
        (
            (
                f"{place.file}, line 1: no program takes a value of the level, such as {{num_envs}}, so none shows whether a higher "
                "level is faster: the level stays as it is (docs/any-script.md)"
            ),
        ),
        (),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '[load]\nmode = "fixed"\n[levels.a]\n[levels.b]\nslots = 3\n[program.it]\ncommand = "sleep 1"\n',
        '[levels.a]\n[program.it]\ncommand = "sleep 1"\n',
        '[levels.a]\n[levels.b]\nslots = 3\n[program.it]\ncommand = "sleep 1"\n[program.Pong]\n',
    ],
)
def test_a_ladder_that_is_not_climbed_or_can_be_measured_is_none(place, text):
    assert place.load(text).warnings == ()


def test_the_name_of_a_level_of_the_built_in_ladder_is_a_warning(place):
    text = '[load]\nmode = "climb"\n[program.it]\ncommand = "sleep {level} {resume}"\n'
    found = [place.load(text).warnings, place.load(text + LADDER).warnings]
    assert found == [
        (
            (
                f"{place.file}, line 3: program.it: {{level}} is one of light, 3x32, medium, 5x64, 6x128, heavy here; for names of "
                "your own, add sections such as [levels.light]"
            ),
        ),
        (),
    ]


def test_checkpoints_that_two_programs_can_both_match_are_a_warning(place):
    text = TWO.replace("KEY", "/srv/*/[0-9].pt")
    assert place.errors(text) == []
    (told,) = [each for each in place.load(text).warnings if "checkpoint_glob" in each]
    assert told.partition(", ")[2] == (
        "line 9: program.b.checkpoint_glob: /srv/*/[0-9].pt can match checkpoints of a (/srv/a/*.pt), and each would resume "
        "from the other's; give each a directory of its own"
    )
