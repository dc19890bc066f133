"""A daemon of root, a script of another user with the client: it saves and resumes by itself, and extralife sees it from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from box import LONG_S, Box, until

CLIENT = Path(__file__).resolve().parents[2] / "client"
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")  # one that another user may execute
SCRIPT = """
import os, time
import extralife
run = extralife.init(10**6, {"net": 1}, 3.0)
found = run.restore()
step = found.step if found else 0
while step < run.total and not run.should_stop():
    step += 1
    run.step(step, loss=1 / step)
    print(f"step={step}", flush=True)
    if run.should_save():
        with run.checkpoint(step) as directory:
            (directory / "state").write_text(str(os.getuid()))
    time.sleep(0.01)
run.leave()
"""

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as somebody else"),
    pytest.mark.skipif(PYTHON is None, reason="no interpreter that another user may execute"),
]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of the user nobody: pytest's own are closed to it."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        shutil.copytree(CLIENT / "extralife", made / "extralife", ignore=shutil.ignore_patterns("__pycache__"))
        (made / "train.py").write_text(SCRIPT)
        shutil.chown(made, "nobody")
        yield made
    finally:
        shutil.rmtree(made)


def test_a_script_of_another_user_saves_by_itself_and_its_losses_are_known(place: Path, box: Box) -> None:
    box.config(
        f"""
[program.theirs]
command = {json.dumps([PYTHON, "train.py"])}
directory = "{place}"
user = "nobody"
log_regex = 'step=(?P<step>\\d+)'
checkpoint_glob = "extralife-run/checkpoints/ckpt-*"
checkpoint_step = 'ckpt-(\\d+)'
stop_grace_s = {LONG_S}
"""
    )
    box.start()
    shown = until(
        lambda: (p := box.program("theirs")).get("ckpt_step") and (p["steps"] or 0) > p["ckpt_step"] + 20 and p, 60,
        "steps beyond",
    )  # fmt: skip
    saves = (place / "extralife-run" / "checkpoints").glob("ckpt-*/state")
    with next(path for path in saves if path.parent.suffix != ".tmp").open() as saved:  # one that is complete
        assert os.fstat(saved.fileno()).st_uid == int(saved.read()) != 0
    os.kill(shown["pid"], signal.SIGKILL)
    resumed = box.wait_fact("Resumed", "theirs", timeout_s=60)
    assert resumed["step"] > 0
    assert resumed["lost_steps"] is not None
    box.ctl("stop", "theirs")
    box.wait_phase("theirs", "STOPPED")
    box.kill_daemon()
    box.start()
    box.ctl("start", "theirs")
    resumed = box.wait_fact("Resumed", "theirs", count=2, timeout_s=60)
    assert resumed["lost_steps"] == 0, "it saved as it was stopped, although another daemon starts it again"


ATTACKS = """
import os, sys, time
vault = sys.argv[1]
if not os.path.exists("attacked"):
    os.mkdir("runs/ck1")
    for step in range(1, 4):
        open("runs/ck1/state.json", "w").write('{"step": %d}' % step)
        print(f"step={step}", flush=True)
        time.sleep(4.0)
    os.rename("runs", "real")
    os.symlink(vault, "runs")
    open("attacked", "w").close()
for step in range(10**6):
    print(f"step={step}", flush=True)
    time.sleep(0.1)
"""


def test_a_worker_of_another_user_leads_no_hand_of_root_with_its_links(place: Path, box: Box) -> None:
    """Its directory of checkpoints and of its log becomes a link to root's own directory, with files of the same names."""
    (place / "attack.py").write_text(ATTACKS)
    with tempfile.TemporaryDirectory(dir="/tmp") as found:
        vault = Path(found)
        (vault / "ck1").mkdir()
        (vault / "ck1" / "state.json").write_text('{"step": 30303}')
        (vault / "run.log").write_text("a secret of root's\n" * 500)
        before = {path: path.lstat()[:9:2] for path in (vault, *vault.rglob("*"))}
        box.config(
            f"""
[program.theirs]
command = {json.dumps([PYTHON, "attack.py", found])}
log_max_bytes = 4096
directory = "{place}"
user = "nobody"
log_regex = 'step=(?P<step>\\d+)'
csv_glob = "runs/*.csv"
checkpoint_glob = "runs/ck*"
checkpoint_step = "state.json:step"
checkpoint_check = ["/bin/sh", "-c", "id -u >> who; id -u >> runs/who; cat $0/state.json >> who"]
stdout_log = "{place}/runs/run.log"
stop_grace_s = {LONG_S}
"""
        )
        (place / "runs").mkdir()  # it must be there when its log is opened
        shutil.chown(place / "runs", "nobody")
        box.start()
        until((place / "attacked").exists, 90, "the attack")
        os.kill(box.program("theirs")["pid"], signal.SIGKILL)
        refused = until(lambda: box.program("theirs")["spawn_error"], 90, "the next start")
        assert refused.startswith(
            f"cannot open the log {place}/runs/run.log as user id 65534, because others than root decide"
        )
        assert "secret" not in box.ctl("tail", "theirs").stdout
        box.ctl("clear", "theirs")
        box.ctl("stop", "theirs")
        shown = json.dumps(box.program("theirs"))
        assert not any(secret in shown for secret in ("30303", "secret"))
        assert {path: path.lstat()[:9:2] for path in (vault, *vault.rglob("*"))} == before
    said = (place / "who").read_text()
    assert "65534" in said
    assert not any(wrong in said.split() for wrong in ("0", "30303"))
