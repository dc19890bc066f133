"""Every mistake: one clear sentence that says what is wrong, where, and what to do. All of them at once."""

from __future__ import annotations

import os
import re

import pytest
from config_kit import Place, plain_id

from supervisor import config
from supervisor.config.tables import TOP

PONG = "[program.Pong]\n"
X = '[program.x]\ncommand = "sleep 1"\n'


MISTAKES = {
    # TOML itself
    "[program.Pong\n": (
        "FILE, line 1, column 14: not valid TOML: Expected ']' at the end of a table declaration; correct this line"
    ),
    '[program.Pong]\nlr = "': (
        "FILE, line 2: not valid TOML: Unterminated string at the end of the file; it seems to be cut off"
    ),
    "[program.Pong]\n[program.Pong]\n": (
        "FILE, line 2, column 14: not valid TOML: Cannot declare ('program', 'Pong') twice; correct this line"
    ),
    "[supervisord]\nlogfile=/x\n": (
        "FILE: is a configuration of Supervisor's; `extralifectl import FILE --out extralife.toml` makes one of extralife's of it"
    ),
    f"x = {'[' * 5000}": "FILE: not valid TOML: it is nested too deeply; remove the extra brackets",
    # sections and keys
    PONG + "[progam.Qbert]\n": "FILE, line 2: progam is not a section; did you mean program?",
    PONG + '["a\\u001b\\nb"]\n': (
        'FILE, line 2: "a\\u001b\\nb" is not a section; '
        f"the sections are {', '.join(TOP)}"
    ),
    "level = 3\n" + PONG: "FILE, line 1: level must be a section, [level], not 3",
    "program = 3\n": "FILE, line 1: program must be a section, [program], not 3",
    PONG + "[daemon]\nsave_dir = 'x'\n": "FILE, line 3: daemon.save_dir is not a setting; set checkpoint_glob of a program to what it saves there",
    PONG + "[level]\nslot = 1\n": "FILE, line 3: level.slot is not a setting; did you mean slots?",
    PONG + "[stall]\nzzz = 1\n": (
        "FILE, line 3: stall.zzz is not a setting; [stall] has floor_s, coarse_floor_s, factor, live_s, start_s, importing_s, "
        "building_s, building_s_per_env, restoring_s, compiling_s, evaluating_s, saving_s, leaving_s, cap_s, silence_max_s, settle_s, continue_s, "
        "grace_s, slow_ratio, slow_for_s, "
        "slow_restart_s, slow_restart_every_s"
    ),
    PONG + "batch_siz = 32\n": "FILE, line 2: program.Pong.batch_siz is not a setting; did you mean batch_size?",
    PONG + "zzz = 32\n": "FILE, line 2: program.Pong.zzz is not a setting; docs/config.md lists them all",
    X + "autorestart = true\n": (
        'FILE, line 3: program.x.autorestart is not a setting; set restart = "always", "failed" or "never"'
    ),
    "": "FILE: there is no program; add a section such as [program.Pong]",
    "[program]\n": "FILE, line 1: there is no program; add a section such as [program.Pong]",
    # values of the sections
    PONG + "[level]\nslots = true\n": "FILE, line 3: level.slots must be a whole number, not True",
    PONG + f"[level]\nslots = 0x{'F' * 6000}\n": (
        "FILE, line 3: level.slots does not fit into 64 bits; write a smaller number"
    ),
    PONG + "[level]\nname = 'two words'\n": (
        "FILE, line 3: level.name must be one word of up to 32 letters, digits, _ . -, not 'two words'"
    ),
    PONG + f"[level]\nslots = {2**63 - 1}\n": "FILE, line 3: level.slots must be at most 1024, not 9223372036854775807",
    PONG + "[stall]\nfloor_s = 0\n": "FILE, line 3: stall.floor_s must be more than 0",
    PONG + "[stall]\nfloor_s = inf\n": "FILE, line 3: stall.floor_s must be finite, not inf",
    PONG + "[restart]\nmax_delay_s = 0.5\nbase_delay_s = 1\n": (
        "FILE, line 4: restart.base_delay_s, 1, is more than restart.max_delay_s, 0.5; lower the first or raise the second"
    ),
    PONG + "[daemon]\nlog_level = 'verbos'\n": (
        "FILE, line 3: daemon.log_level must be one of debug, info, warning, error, critical, not 'verbos'"
    ),
    PONG + "[daemon]\nsocket_group = 'no-such-group'\n": (
        "FILE, line 3: daemon.socket_group: there is no group 'no-such-group'; create it, or leave it empty"
    ),
    PONG + "[daemon]\nstate_dir = 3\n": "FILE, line 3: daemon.state_dir must be a string, not 3",
    PONG + '[daemon]\nstate_dir = "a\\u0000b"\n': "FILE, line 3: daemon.state_dir must not hold a NUL character",
    # names
    "[program]\nPong = 1\n": "FILE, line 2: program.Pong must be a section, [program.Pong], not 1",
    # built-in games
    "[program.Pongg]\n": (
        "FILE, line 1: program.Pongg: Pongg is not one of the 105 known games; did you mean Pong?; for a built-in game set "
        'game = "NAME", for a program of your own set command = ["python", "train.py"]'
    ),
    PONG + "[level]\nbatch_size = 33\n": (
        "FILE, line 3: batch_size 33 does not divide by 8; the nearest that do are 32 and 40"
    ),
    PONG + "batch_size = 2048\nreplay_size = 1024\n": (
        "FILE, line 2: batch_size 2048 is more than replay_size 1024; learning could never begin"
    ),
    PONG + "num_envs = 512\nreplay_size = 1024\n": (
        "FILE, line 3: replay_size 1024 holds less than 16 steps of 512 environments; at least 8192 is needed"
    ),
    PONG + "device = 'gpu'\n": "FILE, line 2: program.Pong.device must be auto, cpu, cuda or cuda:N, not 'gpu'",
    PONG + "algo = 'dqm'\n": "FILE, line 2: program.Pong.algo must be one of dqn, pqn, ppo, auto, not 'dqm'; did you mean dqn?",
    PONG + "directory = '/tmp'\n": (
        "FILE, line 2: program.Pong.directory is for a program with a command; set command, or remove directory"
    ),
    PONG + "autostart = 1\n": "FILE, line 2: program.Pong.autostart must be true or false, not 1",
    # variables
    PONG + "env = 3\n": 'FILE, line 2: program.Pong.env must be a table of strings, { NAME = "value" }, not 3',
    PONG + "env = { A = 3 }\n": 'FILE, line 2: program.Pong.env.A must be a string without NUL, such as "1", not 3',
    PONG + "env = { API_KEY = 3456 }\n": 'FILE, line 2: program.Pong.env.API_KEY must be a string without NUL, such as "1"',
    PONG + 'env = { "A=B" = "1" }\n': (
        "FILE, line 2: program.Pong.env.\"A=B\": a variable's name is not empty and holds neither = nor NUL"
    ),
    PONG + 'env = { RL_LR = "1" }\n': (
        "FILE, line 2: program.Pong.env.RL_LR: a built-in program takes no RL_* of its own; set lr = ... instead"
    ),
    PONG + 'env = { RL_ZZZ = "1" }\n': (
        "FILE, line 2: program.Pong.env.RL_ZZZ: a built-in program takes no RL_* of its own; set the key of that name instead"
    ),
    PONG + 'env = { EXTRALIFE_TOKEN = "1" }\n': (
        "FILE, line 2: program.Pong.env.EXTRALIFE_TOKEN: EXTRALIFE_TOKEN is set by extralife for each attempt; remove it"
    ),
    # commands
    X + "lr = 1.0\n": "FILE, line 3: program.x.lr is for built-in games and x has a command; remove one of the two",
    "[program.x]\ncommand = \"echo 'a\"\n": (
        "FILE, line 2: program.x.command cannot be split into words: No closing quotation; "
        "close the quotation or give a list of strings"
    ),
    X + "directory = 3\n": "FILE, line 3: program.x.directory must be the path of a directory, a string, not 3",
    X + "progress = 'logs'\n": (
        "FILE, line 3: program.x.progress must be one of auto, beat, notify, figures, log, files, none, not 'logs'; did you mean log?"
    ),
    X + "progress = 'log'\nprogress_glob = '*'\n": (
        "FILE, line 4: program.x.progress_glob has no effect with this source of progress; "
        'set progress = "files" or "auto", or remove it'
    ),
    X + "progress_glob = '../*'\n": (
        "FILE, line 3: program.x.progress_glob must be a pattern inside the directory, such as "
        "\"checkpoints/*.pt\", not '../*'"
    ),
    X + "progress = 'files'\n": (
        'FILE, line 1: program.x.progress_glob is missing: progress = "files" needs a pattern inside the directory, '
        'such as "checkpoints/*.pt"'
    ),
    X + "kind = 'services'\n": (
        "FILE, line 3: program.x.kind must be one of training, service, not 'services'; did you mean service?"
    ),
    X + "restart = true\n": "FILE, line 3: program.x.restart must be one of failed, always, never, not True",
    X + "done_codes = [true]\n": (
        "FILE, line 3: program.x.done_codes must be a list of exit codes, 0 to 255, such as [0], not [True]"
    ),
    X + "group = '-x'\n": "FILE, line 3: program.x.group must be 1 to 64 letters, digits, _ . -, not beginning with . or -, not '-x'",
    X + 'env = { A = "a\\u0000" }\n': (
        "FILE, line 3: program.x.env.A must be a string without NUL, such as \"1\", not 'a\\x00'"
    ),
    X + "done_codes = [256]\n": (
        "FILE, line 3: program.x.done_codes must be a list of exit codes, 0 to 255, such as [0], not [256]"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), MISTAKES.items(), ids=lambda text: plain_id(text[-40:]))
def test_one_sentence(place: Place, text: str, sentence: str) -> None:
    assert place.errors(text) == [sentence]
    assert "\n" not in sentence


ABROAD = [
    (
        {"EXTRALIFE_STATEDIR": "/x"},
        "environment variable EXTRALIFE_STATEDIR: is not a setting; did you mean EXTRALIFE_STATE_DIR?",
    ),
    (
        {"EXTRALIFE_LOG_LEVEL": "loud"},
        (
            "environment variable EXTRALIFE_LOG_LEVEL: "
            "daemon.log_level must be one of debug, info, warning, error, critical, not 'loud'"
        ),
    ),
    ({"EXTRALIFE_SLOTS": "two"}, "environment variable EXTRALIFE_SLOTS: level.slots must be a whole number, not 'two'"),
    (
        {"RL_STEPS": "9" * 400},
        "environment variable RL_STEPS: steps does not fit into 64 bits; write a smaller number; correct it or unset it",
    ),
    ({"RL_A\nB": "1"}, "environment variable RL_A B is not a setting; did you mean RL_GAME?; correct it or unset it"),
    ({"RL_LR": "x"}, "environment variable RL_LR: lr must be a number, not 'x'; correct it or unset it"),
    (
        {"RL_GAME": "Pong"},
        'environment variable RL_GAME: one game for every program makes no sense; set game = "NAME" in [program.NAME]',
    ),
    ({"RL_DEVICE": "::"}, "environment variable RL_DEVICE: device must be auto, cpu, cuda or cuda:N, not '::'"),
    (
        {"RL_BATCH_SIZE": "33"},
        "environment variable RL_BATCH_SIZE: batch_size 33 does not divide by 8; the nearest that do are 32 and 40",
    ),
]


@pytest.mark.parametrize(
    ("environ", "sentence"), ABROAD, ids=lambda each: plain_id("".join(each)) if isinstance(each, dict) else ""
)
def test_mistakes_in_the_environment(place: Place, environ: dict[str, str], sentence: str) -> None:
    assert place.errors(PONG, environ) == [sentence]


def test_other_variables_of_the_prefix_are_not_ours_to_judge(place: Place) -> None:
    others = {
        "EXTRALIFE_TEST_PATIENCE": "5",
        "EXTRALIFE_BOOT_FILES": "/x",
        "EXTRALIFE_LISTEN_FD": "3",
        "EXTRALIFE_TOKEN": "x",
    }
    assert place.errors(PONG, others) == []
    kept = place.load(PONG, others | {"RL_LR": "0.1"}).given.environ
    assert sorted(kept) == ["EXTRALIFE_RUNTIME_DIR", "EXTRALIFE_STATE_DIR", "RL_LR"]


def test_mistakes_in_flags(place: Place) -> None:
    assert place.errors(PONG, slots="0") == ["flag --slots: level.slots must be at least 1, not 0"]
    assert place.errors(PONG, sots="1") == ["flag --sots: is not a setting; did you mean slots?"]
    assert place.errors(PONG, slots=None) == []


def test_each_key_of_a_service_about_progress_is_a_mistake_of_its_own(place: Place) -> None:
    keys = {"progress": "'log'", "progress_glob": "'*'", "stall_timeout_s": "5", "start_timeout_s": "5"}
    text = "".join(f"{key} = {value}\n" for key, value in keys.items())
    assert place.errors(f"{X}kind = 'service'\n{text}") == [
        f"FILE, line {line}: program.x.{key}: a service is not judged by progress; remove it, or the kind"
        for line, key in enumerate(keys, 4)
    ]


def test_all_at_once(place: Place) -> None:
    text = (
        "[progam.x]\n[level]\nslots = 0\nbatch_size = 33\n[training]\nlr = 'x'\n[program.Pongg]\n[program.Qbert]\nlrr = 1\n"
        "[program.Pong]\n[program.y]\ncommand = 1\ndone_codes = 'x'\n"
    )
    errors = place.errors(text, {"RL_GAMMA": "x"}, log_level="loud")
    wanted = (
        "line 1: progam", "line 3: level.slots", "line 4: batch_size 33", "line 6: training.lr", "line 7: program.Pongg",
        "line 9: program.Qbert.lrr", "line 12: program.y.command", "line 13: program.y.done_codes", "RL_GAMMA", "--log-level",
    )  # fmt: skip
    for part in wanted:
        assert sum(part in error for error in errors) == 1, part
    assert len(errors) == len(wanted), "one wrong default of two games is one mistake"


# --- files ---------------------------------------------------------------------------------------------------------------------


def refused(path: str) -> list[str]:
    with pytest.raises(config.ConfigError) as found:
        config.load(path, {})
    return found.value.errors


def test_files_that_are_none(place: Place) -> None:
    missing = str(place.directory / "none.toml")
    assert refused(missing) == [f"{missing}: cannot be read: No such file or directory; name another file with -c"]
    directory = str(place.directory)
    assert refused(directory) == [f"{directory}: cannot be read: a directory, not a regular file; name another file with -c"]
    (null,) = refused("a\0b")  # Python's versions differ in their words
    assert re.fullmatch(r"'a\\x00b': cannot be read: .*embedded null .*; name another file with -c", null)
    (place.directory / "large").write_text(f"[program.Pong]\n#{'x' * ((1 << 20) - 17)}\n")
    assert place.directory.joinpath("large").stat().st_size == 1 << 20
    assert config.load(str(place.directory / "large"), place.environ).settings.programs
    (place.directory / "larger").write_text("#" * ((1 << 20) + 1))
    larger = str(place.directory / "larger")
    assert refused(larger) == [f"{larger}: is larger than 1 MiB and no configuration; name another file with -c"]
    fifo = str(place.directory / "fifo")
    os.mkfifo(fifo)
    assert refused(fifo) == [f"{fifo}: cannot be read: a FIFO, not a regular file; name another file with -c"]
    assert refused("/dev/zero") == [
        "/dev/zero: cannot be read: a special file, not a regular file; name another file with -c"
    ]


def test_a_file_that_is_no_text(place: Place) -> None:
    place.file.write_bytes(b"\xff")
    assert refused(str(place.file)) == [f"{place.file}, line 1: is not UTF-8 text; save the file as UTF-8"]
    place.file.write_bytes(b"[program.Pong]\nx = '\xff'\n")
    assert refused(str(place.file)) == [f"{place.file}, line 2: is not UTF-8 text; save the file as UTF-8"]
