"""doctor on [launcher]: what a cluster's support would ask for first, with Slurm's commands played from real answers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from patients import levels, make, told

from supervisor.features.slurm import checks as checks_slurm

PLAYED = Path(__file__).parents[2] / "slurm"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Slurm's commands on the path: one partition, `main`, without a limit."""
    where = tmp_path / "bin"
    where.mkdir()
    (where / "RECORDED").write_text(str(PLAYED / "recorded" / "24.11"))
    for each in ("sbatch", "squeue", "sinfo", "scontrol", "sacct"):
        shutil.copy(PLAYED / "played.sh", where / each)
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    return where


def a_job(tmp_path: Path, rows: str = "") -> object:
    return make(tmp_path, f"[launcher]\nkind = 'slurm'\n{rows}")


def test_one_machine_is_asked_nothing(tmp_path: Path, slurm: Path) -> None:
    for check in (checks_slurm.cluster, checks_slurm.setup, checks_slurm.shared_files, checks_slurm.quota):
        assert not list(check(make(tmp_path)))
    assert not (slurm / "CALLS").exists()


def test_a_cluster_that_would_take_the_jobs_and_nothing_is_submitted(tmp_path: Path, slurm: Path) -> None:
    found = list(checks_slurm.cluster(a_job(tmp_path, "partition = 'main'")))
    assert levels(found) == ["ok", "ok", "ok"], found
    assert "24.11 answers" in found[0].what
    assert [call for call in (slurm / "CALLS").read_text().splitlines() if call.startswith("sbatch")] == [
        "sbatch --test-only"
    ]


def test_no_slurm_and_a_controller_that_is_down(tmp_path: Path, slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (slurm / "BEHAVE").write_text("down")
    (found,) = checks_slurm.cluster(a_job(tmp_path))
    assert (found.level, "Unable to contact slurm controller" in found.what) == ("unknown", True)
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = checks_slurm.cluster(a_job(tmp_path))
    assert (found.level, found.do) == ("bad", "run doctor where sbatch works: on a login node")


@pytest.mark.parametrize(
    ("rows", "partition", "level", "words"),
    [
        ("partition = 'nope'", "main*", "bad", "there is no partition nope"),
        ("", "main", "bad", "no default one"),
        ("time_limit_s = 7200", "main*", "bad", "a time limit of 2h; partition main allows 1h: such jobs never start"),
        ("time_limit_s = 3600", "main*", "ok", "main allows jobs of up to 1h"),
    ],
)
def test_the_partition_is_there_and_allows_the_time_limit(
    tmp_path: Path, slurm: Path, rows: str, partition: str, level: str, words: str
) -> None:
    recorded = tmp_path / "recorded"
    shutil.copytree(PLAYED / "recorded" / "24.11", recorded)
    (recorded / "partitions.txt").write_text(f"{partition}\x1fup\x1f1:00:00\x1f2\n")
    (slurm / "RECORDED").write_text(str(recorded))
    found = [each for each in checks_slurm.cluster(a_job(tmp_path, rows)) if each.name == "partition"]
    assert levels(found) == [level]
    assert words in found[0].what


def test_what_slurm_refuses_is_told_in_its_own_words_with_what_the_user_may_use(tmp_path: Path, slurm: Path) -> None:
    (slurm / "sbatch").write_text(
        "#!/bin/sh\ncat >/dev/null\necho 'sbatch: error: allocation failure: Invalid account or account/partition "
        "combination specified' >&2\nexit 1\n"
    )
    (slurm / "sacctmgr").write_text("#!/bin/sh\necho 'lab|a100|normal,standby'\n")
    (slurm / "sacctmgr").chmod(0o755)
    found = [each for each in checks_slurm.cluster(a_job(tmp_path, "account = 'wrong'")) if each.name == "job"]
    assert levels(found) == ["bad"]
    assert "Invalid account or account/partition combination specified" in found[0].what
    assert found[0].do == "you may use: account lab, partition a100, qos normal,standby"


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        ("", []),
        ("source ~/miniconda3/etc/profile.d/conda.sh\nconda activate rl", []),
        ('eval "$(conda shell.bash hook)"\nconda activate rl', []),
        ("conda activate rl", ["bad"]),
        ("module load anaconda/2024.02-py311\nconda activate rl", ["warn"]),
        ("module load cuda/12.4", []),
    ],
)
def test_conda_is_initialised_directly(tmp_path: Path, setup: str, expected: list[str]) -> None:
    assert levels(checks_slurm.setup(a_job(tmp_path, f"setup = '''{setup}'''"))) == expected


def test_a_shared_file_system_is_tried_and_leaves_nothing_behind(tmp_path: Path) -> None:
    installation = a_job(tmp_path)
    (tmp_path / "root/proc/self/mounts").write_text("server:/home / nfs4 rw 0 0\n")
    found = list(checks_slurm.shared_files(installation))
    assert levels(found) == ["ok", "ok"], found
    assert not list((tmp_path / "state").glob(".doctor*"))
    (tmp_path / "root/proc/self/mounts").write_text("/dev/sda / ext4 rw 0 0\n")
    assert "which other hosts do not see" in told(checks_slurm.shared_files(installation))


def test_a_file_system_without_hard_links_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    installation = a_job(tmp_path)
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    found = [each for each in checks_slurm.shared_files(installation) if each.level == "bad"]
    assert "Operation not supported" in found[0].what


def test_a_clock_that_is_off_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_slurm, "_tried", lambda _: (0.01, -40.0))
    found = [each for each in checks_slurm.shared_files(a_job(tmp_path)) if each.name == "clocks"]
    assert (levels(found), "this host, 40s behind" in found[0].what) == (["warn"], True)


QUOTA = """Disk quotas for user me (uid 1000):
     Filesystem   blocks   quota   limit   grace   files   quota   limit   grace
     nas:/home  {used}  26214400 26214400       0   5000       0       0       0
"""


@pytest.mark.parametrize(
    ("used", "level"), [("1048576", "ok"), ("22000000", "warn"), ("26000000", "bad"), ("26214401*", "bad")]
)
def test_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: str, level: str) -> None:
    monkeypatch.setattr(checks_slurm, "output_of", lambda *_: QUOTA.format(used=used))
    (found,) = checks_slurm.quota(a_job(tmp_path))
    assert found.level == level
    monkeypatch.setattr(checks_slurm, "output_of", lambda *_: "")
    (found,) = checks_slurm.quota(a_job(tmp_path))
    assert found.level == "unknown"
