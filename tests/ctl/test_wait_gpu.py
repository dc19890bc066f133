"""`wait-gpu` as the shell runs it, on a simulated NVML: what it becomes, and with which code it gives up."""

import os
import re
import subprocess
import sys

import pytest
from simulated_nvml import MB, SimulatedNvml
from tools import ROOT

from supervisor.ctl.outcome import Failed, Options
from supervisor.ctl.session import Session
from supervisor.ctl.wait_gpu import wait_gpu

SHOW = (
    sys.executable, "-c",
    "import os; print([os.environ.get(k) for k in ('CUDA_VISIBLE_DEVICES', 'EXTRALIFE_BATCH_SIZE')])",
)  # fmt: skip


@pytest.fixture
def nvml(tmp_path):
    return SimulatedNvml(tmp_path)


def begin(nvml, *args, **more):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": "/nonexistent", **nvml.environment(), **more}
    env.pop("EXTRALIFE_CONFIG", None)
    return subprocess.Popen(
        [sys.executable, "-m", "supervisor.ctl", "wait-gpu", *args], cwd=nvml.scenario.parent, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(nvml, *args, **more):
    process = begin(nvml, *args, **more)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_with_room_it_becomes_the_command(nvml):
    nvml.plays("gpus 2", f"set 0 free {9 * MB}")
    assert run(nvml, "--min-free-mb", "1000", "--gpu", "1", "--", *SHOW) == (0, "['1', None]\n", "")
    assert run(nvml, "--min-free-mb", "9", "--", sys.executable, "-c", "raise SystemExit(42)")[0] == 42


def test_it_waits_until_there_is_room_and_keeps_its_pid(nvml):
    nvml.plays("gpus 1", f"set 0 free {9 * MB}")
    process = begin(
        nvml, "--min-free-mb", "1000", "--poll", "1", "--", sys.executable, "-c", "import os; print(os.getpid())"
    )
    told = process.stderr.readline()
    assert told.startswith("wait-gpu: waits for 1,000 MiB on GPU 0 (as configured); 9 MiB are free (")
    assert told.endswith(" of 10m)\n")
    assert process.poll() is None
    nvml.plays("gpus 1")
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, f"{process.pid}\n")


def test_after_its_time_it_gives_up_or_takes_the_fallback_batch(nvml):
    nvml.plays("gpus 1", f"set 0 free {9 * MB}")
    code, out, _ = run(nvml, "--min-free-mb", "1000", "--timeout", "0.5", "--", *SHOW)
    assert code == 75
    assert out.startswith("wait-gpu: waited 500ms for 1,000 MiB on GPU 0 (as configured)")
    code, out, _ = run(nvml, "--min-free-mb", "1000", "--timeout", "0.5", "--fallback-batch", "256", "--", *SHOW)
    assert (code, out) == (0, "[None, '256']\n")


@pytest.mark.parametrize(
    ("lines", "args", "code", "said"),
    [
        (["gpus 2"], ["--gpu", "2"], 2, "gpu = 2, but this box has 2 GPUs, 0 to 1"),
        (["gpus 0"], [], 69, "the GPUs cannot be read: this box has none"),
        (["init_error 9"], [], 69, "the GPUs cannot be read: NVML: Driver Not Loaded"),
        (["hang nvmlInitWithFlags"], [], 69, r"nvmlInit has not answered for (?:[5-9](?:\.\d)?|[1-9]\d)s;"),  # measured
        (["gpus 1", "set 0 total 5"], [], 2, "GPU 0 has 0 MiB in all"),
    ],
)
def test_why_it_does_not_start(nvml, lines, args, code, said):
    nvml.plays(*lines)
    got, out, _ = run(nvml, "--min-free-mb", "1000", *args, "--", *SHOW)
    assert got == code
    assert re.search(said, out)
    assert len(out.splitlines()) == 1


def test_it_waits_for_the_gpu_that_the_command_will_see(nvml):
    nvml.plays("gpus 2", f"set 0 free {9 * MB}")
    run_it = ("--min-free-mb", "1000", "--timeout", "0", "--", *SHOW)
    assert run(nvml, *run_it, CUDA_VISIBLE_DEVICES="1")[1] == "['1', None]\n"
    code, out, _ = run(nvml, *run_it, CUDA_VISIBLE_DEVICES="")
    told = "wait-gpu: the GPUs cannot be read: CUDA_VISIBLE_DEVICES names no GPU that NVML shows"
    assert (code, out) == (69, f"{told}; --if-no-gpu run starts the command anyway\n")


def test_without_a_gpu_it_starts_if_that_is_asked_for(nvml):
    code, out, err = run(nvml, "--min-free-mb", "1000", "--if-no-gpu", "run", "--", *SHOW)
    assert (code, out) == (0, "[None, None]\n")
    assert err == "wait-gpu: the GPUs cannot be read: this box has none; the command starts anyway\n"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["true", "--", "true"], 2, "needs a command after --"),
        (["--", "true"], 2, "how much memory? Use --min-free-mb N"),
        (["--min-free-mb", "9", "--timeout", "soon", "--", "true"], 2, "--timeout must be a number of seconds, not 'soon'"),
        (["--min-free-mb", "9", "--timeout", "nan", "--", "true"], 2, "--timeout must be a number of seconds, not 'nan'"),
        (["--min-free-mb", "9", "--if-no-gpu", "cry", "--", "true"], 2, "--if-no-gpu is fail or run, not 'cry'"),
        (["--min-free-mb", "9", "--", "no-such-command"], 127, "no-such-command is not found, or not executable"),
    ],
)
def test_what_it_cannot_make_sense_of(args, code, said):
    with pytest.raises(Failed, match=re.escape(said)) as failed:
        wait_gpu(Session(Options()), args)
    assert failed.value.code == code


def test_the_gate_of_the_configuration_counts_for_what_is_not_said(nvml):
    nvml.plays("gpus 1", f"set 0 free {9 * MB}")
    config = nvml.scenario.with_name("extralife.toml")
    config.write_text("[gate]\nmin_free_mb = 1000\ntimeout_s = 0.5\n[program.Pong]\n")
    code, out, _ = run(nvml, "--", *SHOW)
    assert code == 75, out
    assert run(nvml, "--min-free-mb", "9", "--", "true")[0] == 0
