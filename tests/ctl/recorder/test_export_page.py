"""`export` as people run it: CSV, Parquet, many pages of rows, a sheet that is not there."""

import csv
import io
import os
from pathlib import Path

import pytest
from running import ctl

from supervisor.ctl.actions import run
from supervisor.ctl.outcome import Options
from supervisor.ctl.session import Session
from supervisor.features.recorder import verbs_export as export
from supervisor.features.recorder.rules.recording import GPUS, PROGRAMS, Row, as_places
from supervisor.policy.box.readings import Spread


@pytest.fixture
def recorded(backend):
    backend.rows = [
        Row(10.0 * moment, 1_800_000_000.0 + 10.0 * moment, (name, "t1"), ("RUNNING", "training", "light"), {
            "env_steps": 100.0 * moment, "loss": Spread(1.0, 2.0, 3.0), "entropy": None,
        })
        for moment in range(1, 4)
        for name in ("Pong", "Qbert")
    ]  # fmt: skip
    return backend


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("rows", [1, 2, 3, 6, 7])
def test_rows_that_come_in_many_answers_come_once(api, recorded, monkeypatch, capsys, rows):
    monkeypatch.setattr(export, "_ROWS", rows)
    options = Options()
    options.socket = str(api)
    assert run(Session(options), ["export"]) == 0
    found = table(capsys.readouterr().out)
    assert [(row["at_s"], row["program"]) for row in found] == [(str(row.at_s), row.keys[0]) for row in recorded.rows]


def test_a_file_as_a_whole(api, recorded, tmp_path):
    file = tmp_path / "night.csv"
    file.write_text("an old one")
    done = ctl("export", "programs", "--period", "60", "--out", str(file), socket=api)
    assert (done.returncode, done.stdout) == (0, f"{file}: 6 rows\n"), done.stderr
    assert len(table(file.read_text())) == 6
    assert [each.name for each in tmp_path.iterdir() if each.suffix == ".csv" or each.name.startswith(".extra")] == [
        "night.csv"
    ]
    assert file.stat().st_mode & 0o777 == 0o644


def test_nothing_recorded_is_a_table_without_rows(api, backend):
    done = ctl("export", "gpus", socket=api)
    assert done.returncode == 0
    assert done.stdout.startswith("at_s,wall_s,readings,gpu,worker_phase,reasons,used_bytes,")
    assert len(done.stdout.splitlines()) == 1
    assert len(done.stdout.split(",")) == 3 + len(GPUS.keys) + len(GPUS.words) + 3 * len(GPUS.series)


def test_figures_of_other_names_are_a_row_each(api, backend, tmp_path):
    backend.rows = [as_places(10.0, 1_800_000_000.0, "Pong", "t1", 64, {"success_rate": 0.25, "kl": 0.5})]
    done = ctl("export", "figures", socket=api)
    assert done.stdout.splitlines() == [
        "at_s,wall_s,readings,program,token,figure,env_steps,value",
        "10.0,1800000000.0,1,Pong,t1,kl,64,0.5", "10.0,1800000000.0,1,Pong,t1,success_rate,64,0.25",
    ]  # fmt: skip
    parquet = pytest.importorskip("pyarrow.parquet")
    assert ctl("export", "figures", "--out", str(tmp_path / "own.parquet"), socket=api).returncode == 0
    assert parquet.read_table(tmp_path / "own.parquet").column("figure").to_pylist() == ["kl", "success_rate"]


def test_parquet_holds_the_same(api, recorded, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "night.parquet"
    done = ctl("export", "--out", str(file), socket=api)
    assert (done.returncode, done.stdout) == (0, f"{file}: 6 rows\n"), done.stderr
    found = parquet.read_table(file)
    assert found.column("env_steps").to_pylist() == [100.0, 100.0, 200.0, 200.0, 300.0, 300.0]
    assert found.column("entropy").to_pylist() == [None] * 6
    assert {str(found.schema.field(name).type) for name in (*PROGRAMS.keys, *PROGRAMS.words)} == {"string"}


def test_without_pyarrow_it_says_what_to_do(api, recorded, tmp_path):
    (tmp_path / "pyarrow.py").write_text("raise ImportError")
    done = ctl("export", "--out", str(tmp_path / "x.parquet"), socket=api, PYTHONPATH=f"{tmp_path}:{Path.cwd()}")
    assert done.returncode == 1
    assert "Parquet needs pyarrow: pip install 'extralife[parquet]'" in done.stdout + done.stderr
    assert not (tmp_path / "x.parquet").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--period", "30"), "period_s must be one of 10, 60, 600, 3600, 21600, 86400, not '30'"),
        (("programs", "host"), "export takes one sheet: programs, figures, host or gpus"),
        (("--out", "/nowhere/at/all.csv"), "/nowhere/at/all.csv cannot be written: No such file or directory"),
    ],
)
def test_what_makes_no_sense(api, recorded, args, said):
    done = ctl("export", *args, socket=api)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


def test_a_device_or_a_pipe_gets_the_bytes_and_a_link_stays(api, recorded, tmp_path):
    """`-o /dev/null` or `--out /dev/stdout` by root put a regular file in the device's place, for the whole box."""
    pipe, link, real = tmp_path / "pipe", tmp_path / "link.csv", tmp_path / "real.csv"
    os.mkfifo(pipe)
    link.symlink_to(real)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
        done = ctl("export", "--out", str(pipe), socket=api)
        assert done.returncode == 0, done.stderr
        assert pipe.is_fifo()
        assert len(table(reader.read())) == 6
    for _ in range(2):
        assert ctl("export", "--out", str(link), socket=api).returncode == 0
    assert link.is_symlink()
    assert len(table(real.read_text())) == 6
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []
    done = ctl("export", "--out", str(tmp_path), socket=api)
    assert (done.returncode, done.stdout) == (1, f"Error: {tmp_path} cannot be written: Is a directory\n")
