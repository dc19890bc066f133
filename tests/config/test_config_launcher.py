"""[launcher]: what a batch script is made of is checked before any is submitted."""

import subprocess
import sys

import pytest

from supervisor import config
from supervisor.config import ConfigError

PROGRAM = "[program.Pong]\n"


def load(tmp_path, text, program=PROGRAM):
    file = tmp_path / "extralife.toml"
    file.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\nruntime_dir = "{tmp_path}/run"\n{text}\n{program}')
    return config.load(str(file), {})


def errors(tmp_path, text):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text)
    return raised.value.errors


WHOLE = """
[launcher]
kind = "slurm"
partition = "a100,h100"
account = "lab-x"
qos = "standby"
constraint = "a100&nvlink"
gpus = 1
cpus = 14
memory_mb = 60_000
time_limit_s = 14400
signal_lead_s = 300
setup = '''
module load conda
conda activate rl
'''
options = '''
--reservation=night
--nice=100
'''
"""


def test_a_whole_section(tmp_path):
    made = load(tmp_path, WHOLE).settings
    assert (made.launcher.kind, made.launcher.partition, made.launcher.gpus) == ("slurm", "a100,h100", 1)
    assert made.launcher.remote
    assert made.programs[0].num_envs


def test_the_threads_of_a_built_in_program_are_the_processors_of_its_job(tmp_path):
    argv = load(tmp_path, WHOLE).settings.programs[0].argv
    assert "14" in argv[argv.index("--threads") + 1 :][:1] or "--threads=14" in argv


def test_without_the_section_no_page_names_its_keys(tmp_path):
    loaded = load(tmp_path, "")
    assert not any(key.startswith("launcher.") for key in (*loaded.origins, *loaded.values))
    assert not loaded.settings.launcher.remote


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('partition = "a b"', "launcher.partition must be the name of a partition"),
        ('account = "x;y"', "launcher.account must be the name of an account"),
        ('qos = "a,b"', "launcher.qos must be"),
        ('constraint = "a b"', "launcher.constraint must be"),
        ('gres = "gpu 1"', "launcher.gres must be"),
        ('gres = "gpu:a100:1"\ngpus = 1', "both ask for GPUs"),
        ("time_limit_s = 100\nsignal_lead_s = 90", "leaves less than half"),
        ("signal_lead_s = 20000", "launcher.signal_lead_s"),
        ("time_limit_s = 5", "launcher.time_limit_s"),
        ('options = "--time=3"', "--time is set by extralife itself; leave it out"),
        ('options = "--partition=x"', "--partition is set by extralife itself; set launcher.partition"),
        ('options = "-p x"', "must have one option of sbatch a line"),
        ("options = \"--comment='x y'\"", "must have one option of sbatch a line"),
        ("partitions = 1", "did you mean partition?"),
        ('kind = "pbs"', "launcher.kind"),
    ],
)
def test_each_mistake_is_one_sentence_with_its_line(tmp_path, line, word):
    kind = "" if line.startswith("kind") else 'kind = "slurm"\n'
    found = errors(tmp_path, f"[launcher]\n{kind}{line}")
    assert any(word in sentence and "line" in sentence for sentence in found), found


def test_a_daemon_without_a_cluster_imports_nothing_of_one():
    code = "import sys, supervisor.shell.daemon; print([name for name in sys.modules if 'adapters.slurm' in name])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_settings_of_a_cluster_without_its_kind_are_a_mistake(tmp_path):
    assert "add kind" in errors(tmp_path, '[launcher]\npartition = "gpu"')[0]
    assert "carriage return" in errors(tmp_path, '[launcher]\nkind = "slurm"\nsetup = "module load x\\r\\n"')[0]
    assert not load(tmp_path, '[launcher]\nkind = "local"').settings.launcher.remote
