"""What `supervisorctl config` shows of a program and of a cluster, whole, and digests that an upgrade must not change."""

from __future__ import annotations

import pytest
from config_kit import Place

from supervisor import config
from supervisor.policy.cluster.launcher import JobResources, LauncherSettings

TWO_THREADS = "[level]\nthreads = 2\n"


def rows_of(loaded: config.Loaded, prefix: str) -> dict[str, tuple[object, str]]:
    """What is shown of the keys that begin so, without those at their plain default."""
    rows = {key: (value, str(origin)) for key, value, origin in config.explain(loaded) if key.startswith(prefix)}
    return {key: row for key, row in rows.items() if row[1] != "default"}


COMMAND = """
[levels.light]
slots = 2
threads = 2
[levels.heavy]
num_envs = 64
[program.it]
command = ["sleep", "{num_envs}", ["--resume", "{resume}"], "{seed}"]
seed = 4
directory = "/"
env = { A = "{name}", B = "https://me:secret@host/", C = "me@host" }
progress = "files"
progress_glob = "*.pt"
umask = "022"
log_regex = "(?P<step>a)"
fallback_batch = 16
checkpoint_glob = "*.ckpt"
done_codes = [3, 0]
group = "g"
game = "Pong"
"""


def test_what_is_shown_of_a_command(place: Place) -> None:
    loaded = place.load(COMMAND)
    at = {line.split(" ")[0]: f"{place.file}:{number}" for number, line in enumerate(COMMAND.split("\n"), 1)}
    assert rows_of(loaded, "program.") == {
        "program.it.checkpoint_glob": ("*.ckpt", at["checkpoint_glob"]),
        "program.it.command": (["sleep", "{num_envs}", "--resume", "{resume}", "{seed}"], at["command"]),
        "program.it.directory": ("/", at["directory"]),
        "program.it.done_codes": ([0, 3], at["done_codes"]),
        "program.it.env.A": ("{name}", at["env"]),
        "program.it.env.B": ("***", at["env"]),
        "program.it.env.C": ("me@host", at["env"]),
        "program.it.fallback_batch": (16, at["fallback_batch"]),
        "program.it.game": ("Pong", at["game"]),
        "program.it.group": ("g", at["group"]),
        "program.it.log_regex": (["(?P<step>a)"], at["log_regex"]),
        "program.it.num_envs": (32, "default of levels.light.num_envs"),
        "program.it.progress": ("files", at["progress"]),
        "program.it.progress_glob": ("*.pt", at["progress_glob"]),
        "program.it.seed": (4, at["seed"]),
        "program.it.umask": ("022", at["umask"]),
    }
    plain = {key: loaded.values[f"program.it.{key}"] for key in ("kind", "restart", "shell", "level_values", "health")}
    assert plain == {"kind": "training", "restart": "failed", "shell": False, "level_values": [], "health": None}
    assert not [key for key in loaded.values if key.endswith((".json_lines", ".csv_glob", ".events_glob", ".target_steps"))]
    assert loaded.warnings == tuple(
        f"{at[key].replace(':', ', line ')}: program.it.{key}: only a script that reads EXTRALIFE_{variable} takes it, because "
        f"{{{variable.lower()}}} is not used in command, env or directory"
        for key, variable in (("game", "GAME"), ("fallback_batch", "BATCH_SIZE"))
    )


def test_a_whole_section_of_a_cluster(place: Place) -> None:
    text = """
[launcher]
kind = "slurm"
partition = "a100,h100"
account = "lab-x"
qos = "standby"
constraint = "a100&nvlink"
gres = "gpu:a100:1"
cpus = 14
memory_mb = 60_000
time_limit_s = 14_400
signal_lead_s = 300
setup = "module load conda"
options = '''
--reservation=night

  --nice
'''
poll_s = 0.5
settle_s = 9
node_faults = 1
node_exclude_s = 60
[levels.light]
[levels.light.launcher]
gpus = 2
[levels.wide]
slots = 3
[levels.wide.launcher]
partition = "h100"
time_limit_s = 600
[program.Pong]
"""
    loaded = place.load(text)
    assert loaded.settings.launcher == LauncherSettings(
        kind="slurm", partition="a100,h100", account="lab-x", qos="standby", constraint="a100&nvlink", gres="gpu:a100:1",
        cpus=14, memory_mb=60_000, time_limit_s=14_400.0, signal_lead_s=300.0, setup="module load conda",
        options="--reservation=night\n\n  --nice\n", poll_s=0.5, settle_s=9.0, node_faults=1, node_exclude_s=60.0,
    )  # fmt: skip
    assert [rung.programs[0].job for rung in loaded.settings.ladder] == [
        JobResources(gpus=2), JobResources(gpus=2, partition="h100", time_limit_s=600.0),
    ]  # fmt: skip
    shown = rows_of(loaded, "levels.") | rows_of(loaded, "program.Pong.threads")
    assert {key: row for key, row in shown.items() if "launcher" in key + row[1]} == {
        "levels.light.launcher.gpus": (2, f"{place.file}:25"),
        "levels.wide.launcher.gpus": (2, "as in the level before"),
        "levels.wide.launcher.partition": ("h100", f"{place.file}:29"),
        "levels.wide.launcher.time_limit_s": (600.0, f"{place.file}:30"),
        "program.Pong.threads": (14, "launcher.cpus"),
    }
    own = place.load(text.replace("gpus = 2", "cpus = 3"))
    assert rows_of(own, "program.Pong.threads") == {"program.Pong.threads": (3, "levels.light.launcher.cpus")}


# --- digests -----------------------------------------------------------------------------------------------------------------

CLUSTER = '[launcher]\nkind = "slurm"\n[levels.light]\n[levels.light.launcher]\ncpus = 2\n'


@pytest.mark.parametrize(
    ("text", "digests"),
    [
        (
            f"{TWO_THREADS}[program.it]\ngame = 'Pong'\nlr = 0.5\nenv = {{ A = 'b' }}\n",
            ("53ad0d168727bec7", "a1d3069bbca909ab"),
        ),
        ("[program.it]\ngame = 'Pong'\n", ("3fff46e3e5ce8d67", "e81a910df4b8101b")),
        (f"{CLUSTER}[program.it]\ngame = 'Pong'\n", ("27083048deb3126c", "e81a910df4b8101b")),
        (f"{CLUSTER}[program.it]\ncommand = 'sleep 1'\n", ("b667552c467ff21c", "a5d6f8bc8561bd73")),
        ("[program.it]\ncommand = 'sleep {num_envs} {seed} {name}'\nseed = 1\n", ("c3bb0fbbe64d8ec4", "52f595f96ef5a7e3")),
        ("[program.it]\ncommand = ['sleep', ['{resume}', '1']]\ndirectory = '/r/{name}'\n", ("743ae338567e1a89", "")),
        (
            "[program.it]\ncommand = 'sleep 1'\nkind = 'service'\nhealth = { tcp = 'h:1' }\numask = '022'\n",
            ("6bf58f99e46207e3", ""),
        ),
        (
            "[program.it]\ncommand = 'sleep 1'\ngpu = 1\nprogress = 'files'\nprogress_glob = 'a'\nstderr_log = '/x'\n",
            ("2cd824ebb61fd927", ""),
        ),
    ],
    ids=range(8),
)
def test_an_upgrade_computes_the_same_digests(place: Place, text: str, digests: tuple[str, str]) -> None:
    """Other digests would restart every program of this kind after an upgrade, although nothing of it has changed."""
    spec = place.program("it", text)
    assert (spec.digest, spec.own_digest) == digests
