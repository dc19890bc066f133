"""[launcher]: what a batch script is made of is checked before any is submitted."""

import pytest

from supervisor import config
from supervisor.config import ConfigError

PROGRAM = "[program.Pong]\n"


def load(tmp_path, text, program=PROGRAM):
    file = tmp_path / "extralife.toml"
    file.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n{text}\n{program}')
    return config.load(str(file), {})


def errors(tmp_path, text, program=PROGRAM):
    """Every error of a text, without the file's path."""
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text, program)
    return [sentence.removeprefix(f"{tmp_path}/extralife.toml, ") for sentence in raised.value.errors]


def test_without_the_section_no_page_names_its_keys(tmp_path):
    loaded = load(tmp_path, "")
    assert not any(key.startswith("launcher.") for key in (*loaded.origins, *loaded.values))
    assert not loaded.settings.remote


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            'partition = "a b"',
            "line 6: launcher.partition must be the name of a partition, or several with commas between them, not 'a b'",
        ),
        ('account = "x;y"', "line 6: launcher.account must be the name of an account, not 'x;y'"),
        ('constraint = "a b"', "line 6: launcher.constraint must be features such as a100&nvlink, not 'a b'"),
        ('gres = "gpu 1"', "line 6: launcher.gres must be generic resources such as gpu:a100:1, not 'gpu 1'"),
        (
            'gres = "gpu:a100:1"\ngpus = 1',
            "line 6: launcher.gres and launcher.gpus both ask for GPUs; leave one of them out",
        ),
        (
            "time_limit_s = 100\nsignal_lead_s = 51",
            "line 7: launcher.signal_lead_s, 51, leaves less than half of launcher.time_limit_s, 100, for training; lower the first or raise the second",
        ),
        ('options = "--time=3"', "line 6: launcher.options: --time is set by extralife itself; leave it out"),
        (
            'options = "--time-min=10"',
            "line 6: launcher.options: --time-min is refused, because a job that Slurm makes shorter does not know when its time is over; leave it out",
        ),
        (
            'options = "--clusters=other"',
            "line 6: launcher.options: --clusters is refused, because the daemon does not find jobs of another cluster; leave it out",
        ),
        (
            'options = "--array=1-3"',
            "line 6: launcher.options: --array is set by extralife itself; give a program seeds = [1, 2, 3]",
        ),
        (
            'options = "--partition=x"',
            "line 6: launcher.options: --partition is set by extralife itself; set launcher.partition",
        ),
        (
            "options = '--x y'",
            "line 6: launcher.options must have one option of sbatch a line, as --NAME=VALUE, not '--x y'",
        ),
    ],
)
def test_each_mistake_is_one_sentence_with_its_line(tmp_path, line, told):
    assert errors(tmp_path, f'[launcher]\nkind = "slurm"\n{line}') == [told]


def test_settings_of_a_cluster_without_its_kind_are_a_mistake(tmp_path):
    told = 'line 4: [launcher] has settings of a cluster; add kind = "slurm", or remove them'
    assert errors(tmp_path, '[launcher]\npartition = "gpu"') == [told]
    assert errors(tmp_path, '[launcher]\nkind = "local"\npartition = "gpu"') == [told]
    assert not load(tmp_path, '[launcher]\nkind = "local"').settings.remote


@pytest.mark.parametrize(
    ("end", "fault"),
    [("\\r\\n", "has a carriage return; write plain lines of shell"), ("\\u0000", "must not hold a NUL character")],
)
def test_the_lines_before_a_program_are_plain(tmp_path, end, fault):
    told = f"line 6: launcher.setup {fault}"
    assert errors(tmp_path, f'[launcher]\nkind = "slurm"\nsetup = "module load x{end}"') == [told]


def test_a_job_may_leave_half_of_its_time_before_its_limit(tmp_path):
    made = load(tmp_path, '[launcher]\nkind = "slurm"\ntime_limit_s = 100\nsignal_lead_s = 50').settings.launcher
    assert (made.time_limit_s, made.signal_lead_s) == (100.0, 50.0)
    level = load(tmp_path, f"{LADDER}time_limit_s = 600\n").settings.ladder[2].programs[0].job.resources
    assert level.time_limit_s == 600.0


# --- resources of a level -------------------------------------------------------------------------------------------------

LADDER = """
[launcher]
kind = "slurm"
gpus = 1
cpus = 4
signal_lead_s = 300

[levels.light]
slots = 2

[levels.wide]
slots = 4

[levels.wide.launcher]
partition = "h100"
cpus = 16

[levels.heavy]
num_envs = 64

[levels.heavy.launcher]
gres = "gpu:h100:2"
"""
SCRIPTS = '[program.Plain]\ncommand = "./train"\n[program.Tensorboard]\ncommand = "./board"\nkind = "service"\n'


def at_levels(tmp_path, program=PROGRAM):
    settings = load(tmp_path, LADDER, program).settings
    return {rung.level.name: rung for rung in settings.ladder}


def test_a_level_has_resources_of_its_own_and_those_of_the_level_before(tmp_path):
    base = load(tmp_path, LADDER).settings.launcher
    asked = {name: rung.programs[0].job.resources.over(base) for name, rung in at_levels(tmp_path).items()}
    assert [(each.partition, each.cpus, each.gpus, each.gres) for each in asked.values()] == [
        ("", 4, 1, ""), ("h100", 16, 1, ""), ("h100", 16, 0, "gpu:h100:2"),
    ]  # fmt: skip
    found = load(tmp_path, LADDER)
    assert found.values["levels.heavy.launcher.cpus"] == 16
    assert str(found.origins["levels.heavy.launcher.cpus"]) == "as in the level before"


def test_a_change_of_resources_moves_each_training_and_no_service(tmp_path):
    resumes = SCRIPTS.replace('"./train"', '"./train"\ncheckpoint_glob = "*.pt"')
    for program in (PROGRAM, resumes):
        light, wide = (at_levels(tmp_path, program)[name].programs[0] for name in ("light", "wide"))
        assert light.digest != wide.digest
        assert light.own_digest == wide.own_digest != ""
    light, wide = (at_levels(tmp_path, resumes)[name].programs[1] for name in ("light", "wide"))
    assert (light.digest, light.own_digest, light.job) == (wide.digest, "", wide.job)


def test_a_script_that_names_no_way_to_resume_keeps_the_job_of_the_start(tmp_path):
    light, wide = (at_levels(tmp_path, SCRIPTS)[name].programs[0] for name in ("light", "wide"))
    assert light == wide
    assert (light.own_digest, light.job.resources.cpus) == ("", None)


def test_levels_that_differ_in_resources_alone_are_two_levels(tmp_path):
    text = LADDER.replace("slots = 4\n", "slots = 2\n")
    assert [rung.level.shape for rung in load(tmp_path, text).settings.ladder][:2] == [
        "2 x 32, batch 512", "2 x 32, batch 512, partition h100, cpus 16",
    ]  # fmt: skip


def test_the_threads_of_a_level_are_the_processors_of_its_jobs(tmp_path):
    argv = at_levels(tmp_path)["wide"].programs[0].argv
    assert argv[argv.index("--threads") + 1] == "16"


def test_a_level_that_asks_for_gpus_by_number_drops_the_words_of_the_section(tmp_path):
    text = LADDER.replace("gpus = 1", 'gres = "gpu:a100:1"').replace('gres = "gpu:h100:2"', "gpus = 2")
    settings = load(tmp_path, text).settings
    made = settings.ladder[2].programs[0].job.resources.over(settings.launcher)
    assert (made.gres, made.gpus) == ("", 2)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "poll_s = 3",
            "line 26: levels.heavy.launcher.poll_s is not a setting; it is the same at all levels: set it in [launcher]",
        ),
        (
            "zzz = 1",
            (
                "line 26: levels.heavy.launcher.zzz is not a setting; a level may have its own partition, account, qos, "
                "constraint, gres, gpus, cpus, memory_mb, time_limit_s"
            ),
        ),
        (
            'partition = "a b"',
            "line 26: levels.heavy.launcher.partition must be the name of a partition, or several with commas between them, not 'a b'",
        ),
        (
            "gpus = 2",
            "line 25: levels.heavy.launcher.gres and levels.heavy.launcher.gpus both ask for GPUs; leave one of them out",
        ),
        (
            "time_limit_s = 400",
            "line 26: launcher.signal_lead_s, 300, leaves less than half of levels.heavy.launcher.time_limit_s, 400, for training; lower the first or raise the second",
        ),
    ],
)
def test_each_mistake_of_a_level_is_one_sentence_with_its_line(tmp_path, line, told):
    assert errors(tmp_path, f"{LADDER}{line}\n") == [told]


def test_a_level_has_resources_on_a_cluster_alone(tmp_path):
    local = LADDER.replace('kind = "slurm"\ngpus = 1\ncpus = 4\nsignal_lead_s = 300', 'kind = "local"')
    assert errors(tmp_path, local) == [
        f'line {line}: levels.{name}.launcher is for jobs of a cluster; add [launcher] kind = "slurm", or remove it'
        for line, name in ((14, "wide"), (21, "heavy"))
    ]
    odd = LADDER.replace('[levels.heavy.launcher]\ngres = "gpu:h100:2"', "launcher = 3")
    assert errors(tmp_path, odd) == ["line 24: levels.heavy.launcher must be a section, [levels.heavy.launcher], not 3"]
    fixed = '[launcher]\nkind = "slurm"\n[level]\nlauncher = { cpus = 2 }\n'
    assert errors(tmp_path, fixed) == [
        "line 7: level.launcher is not a setting; [level] has name, slots, num_envs, batch_size, threads, memory_mb"
    ]


def test_cores_and_memory_of_the_daemons_host_limit_no_job(tmp_path, monkeypatch):
    monkeypatch.setattr("supervisor.config.ladder.usable_memory_mb", lambda: 1000)
    monkeypatch.setattr("supervisor.config.ladder.usable_cores", lambda: 2)
    climb = '[launcher]\nkind = "slurm"\n[load]\nmode = "climb"\n'
    settings = load(tmp_path, climb, "".join(f"[program.{each}]\n" for each in GAMES)).settings
    assert [rung.veto for rung in settings.ladder] == [""] * 6
    loaded = load(tmp_path, '[launcher]\nkind = "slurm"\n[level]\nmemory_mb = 900\nslots = 4\n')
    assert not any("memory_mb" in sentence for sentence in loaded.warnings)


GAMES = ("Pong", "Breakout", "Qbert", "Seaquest", "Enduro", "Freeway", "BeamRider", "Asteroids")


# --- patience --------------------------------------------------------------------------------------------------------------


def test_a_limit_on_progress_is_longer_than_the_way_of_a_beat(tmp_path):
    text = '[launcher]\nkind = "slurm"\n[stall]\nfloor_s = 2\n'
    why = "their beats come through the shared file system, some seconds late, and training jobs would be called stalled"
    assert errors(tmp_path, text, "[program.Pong]\nstall_timeout_s = 9.5\n") == [
        f"line 7: stall.floor_s must be at least 10 for jobs of a cluster, not 2: {why}",
        f"line 10: program.Pong.stall_timeout_s must be at least 10 for jobs of a cluster, not 9.5: {why}",
    ]
    assert load(tmp_path, '[launcher]\nkind = "slurm"\n', "[program.Pong]\nstall_timeout_s = 10\n").settings.remote
    assert load(tmp_path, "[stall]\nfloor_s = 2\n").settings.stall.floor_s == 2
    assert load(tmp_path, text.replace("= 2", "= 10")).settings.stall.floor_s == 10
    assert errors(tmp_path, '[launcher]\nkind = "slurm"\n', "[program.Pong]\nstall_timeout_s = 0\n") == [
        "line 8: program.Pong.stall_timeout_s must be more than 0"
    ], "one mistake is told once"
    assert errors(tmp_path, '[launcher]\nkind = "slurm"\n', '[program.Pong]\nstall_timeout_s = "9"\n') == [
        "line 8: program.Pong.stall_timeout_s must be a number, not '9'"
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('user = "nobody"', "line 8: program.mine.user: a job runs as the user who submits it; remove it"),
        (
            "stdin = true",
            "line 8: program.mine.stdin: a job has no standard input that the daemon could write to; remove it",
        ),
        (
            'kind = "service"\nhealth = { tcp = "127.0.0.1:6006" }',
            "line 9: program.mine.health: a service runs on the node of its job, where the daemon cannot ask it; remove it",
        ),
        (
            "gpu = 0",
            "line 8: program.mine.gpu: Slurm chooses the GPUs of a job; set launcher.gpus or launcher.gres, and remove it",
        ),
        ("min_free_mb = 0", "line 8: program.mine.min_free_mb: no job waits for the memory of this host's GPUs; remove it"),
        (
            "cpu_weight = 50",
            "line 8: program.mine.cpu_weight: Slurm gives each job its processors; set launcher.cpus, and remove it",
        ),
        (
            'progress = "notify"',
            'line 8: program.mine.progress: notifications do not leave the node of a job; remove it, or set progress to "beat", "figures", "log" or "files"',
        ),
    ],
)
def test_what_a_job_cannot_have_is_refused_and_on_one_machine_it_is_not(tmp_path, lines, told):
    program = f'[program.mine]\ncommand = ["sleep", "1"]\n{lines}\n'
    assert errors(tmp_path, '[launcher]\nkind = "slurm"', program) == [told]
    load(tmp_path, "", program)


def test_the_end_of_the_daemons_host_ends_no_job(tmp_path):
    assert errors(tmp_path, '[launcher]\nkind = "slurm"\n[notice]\nevery_s = 2.0') == [
        "line 6: [notice] is about the end of this host, which ends no job; remove it"
    ]
    assert load(tmp_path, '[launcher]\nkind = "local"\n[notice]\nevery_s = 2.0').settings.notice.every_s == 2.0
