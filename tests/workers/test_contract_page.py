"""docs/contract.md is true: its tables are the code's, and its scripts run."""

import os
import re
import socket
import struct
import subprocess
import sys
import threading

from supervised import PATIENCE_S, TOKEN, environment
from tools import ROOT, needs

from workers import contract
from workers.contract import FIGURES, WorkerPhase
from workers.daemon_side import read_beat

DOCUMENT = (ROOT / "docs" / "contract.md").read_text()


def rows(heading):
    """Cells of the first table below a heading of the document."""
    section = DOCUMENT[DOCUMENT.index(f"\n## {heading}\n") :]
    lines = section[section.index("\n|") :].strip().split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def layout(*parts):
    """(offset, type, name) of each named field in a row of packed structs; "" is padding."""
    names = {"H": "u16", "I": "u32", "Q": "u64", "d": "f64", "8s": "8 bytes", "16s": "16 bytes"}
    at, out = 0, []
    for packed, fields_of in parts:
        codes = re.findall(r"\d*s|[A-Za-z]", packed.format)
        codes = [code for item in codes for code in ([item] if item.endswith("s") else list(item))]
        for code, name in zip(codes, fields_of, strict=True):
            if name:
                out.append([str(at), names[code], name])
            at += struct.calcsize("<" + code)
    return out


HEADER = (contract._HEADER, ("magic", "sequence", "live_ns", "crc32", "length"))


def test_the_documents_beat_record_is_the_codes():
    who = (contract._FIXED, ("version", "", "attempt", "pid", "boot_id", "token", "start_ticks"))
    told = [row[:3] for row in rows("The beat record")]
    assert told == layout(HEADER, who, (contract._MOVING, contract._MOVING_NAMES))
    more = layout((contract._EXTRA_HEADER, ("crc32", "length")), (contract._EXTRA, contract._MEASURED))
    told = [row[:3] for row in rows("Beyond the beat's body")]
    assert told == [[str(int(at) + contract._EXTRA_AT), kind, name] for at, kind, name in more]
    assert f"| of what follows: {contract._EXTRA.size} |" in DOCUMENT


def test_the_documents_figures_are_the_codes():
    told = [row[2:] for heading in ("The beat record", "Beyond the beat's body") for row in rows(heading)]
    assert [row for row in told if row[0] in FIGURES] == [[name, row.unit, row.help] for name, row in FIGURES.items()]


def test_the_documents_control_record_is_the_codes():
    control = (contract._CONTROL, ("version", "", "save_now", "token", "interval_ms", "offset_ms", "leave_by_ns"))
    assert [row[:3] for row in rows("The control record")] == layout(HEADER, control)


def test_the_documents_names_are_the_codes():
    told = {row[0] for row in rows("The environment")}
    assert told == {value for name, value in vars(contract).items() if name.startswith("ENV_")}
    assert {(row[0], row[1]) for row in rows("Phases")} == {(str(phase.value), phase.name) for phase in WorkerPhase}
    codes = {str(value) for name, value in vars(contract).items() if name.startswith("EXIT_") and isinstance(value, int)}
    assert codes <= {row[0] for row in rows("Exit codes")}
    for name in contract.STRIPPED_ENV:
        assert f"`{name}`" in DOCUMENT


def test_the_documents_python_runs(tmp_path):
    """Supervised (the records are there afterwards) and unsupervised."""
    script = tmp_path / "train.py"
    script.write_text((ROOT / "docs" / "recipes" / "counts.py").read_text())
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    plain = subprocess.run([sys.executable, script], cwd=tmp_path, env=env, timeout=60, check=False, capture_output=True)
    assert plain.returncode == 0, plain.stderr.decode()
    for item in tmp_path.iterdir():
        if item != script:
            item.unlink()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / contract.FENCE_FILE).write_text(TOKEN)
    env |= environment(tmp_path)
    done = subprocess.run([sys.executable, script], cwd=tmp_path, env=env, timeout=60, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    beat = read_beat(tmp_path / "beat")
    assert beat is not None
    assert beat.env_steps > 0
    assert beat.ckpt_count > 0


def test_the_documents_shell_notifies(tmp_path):
    needs("systemd-notify")
    script = tmp_path / "train.sh"
    script.write_text((ROOT / "docs" / "recipes" / "epochs.sh").read_text())
    heard = []

    def listen(sock):
        while "the end" not in heard:  # the last one in the queue: whoever reads late has read all before it
            message, passed, _, _ = socket.recv_fds(sock, 4096, 4)
            heard.append(message.decode())
            for fd in passed:
                os.close(fd)

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        thread = threading.Thread(target=listen, args=(sock,), daemon=True)
        thread.start()
        env = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "EPOCHS": "2", "EPOCH_S": "0"}
        done = subprocess.run(["sh", script], cwd=tmp_path, env=env, timeout=60, check=False, capture_output=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"the end", str(tmp_path / "notify"))
        thread.join(PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()
    said = "\n".join(heard)
    for expected in ("READY=1", "X_EXTRALIFE_STEPS=", "X_EXTRALIFE_CHECKPOINT=", "STOPPING=1"):
        assert expected in said
