"""A real daemon on a box whose provider announces its end."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from pathlib import Path

import pytest
from box import Box, until
from cheap_restic import section

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "adapters/notices"))
from notices_kit import Metadata

pytestmark = pytest.mark.skipif(shutil.which("restic") is None, reason="restic is not installed: apt-get install restic")


@pytest.mark.timeout(240)
@pytest.mark.long
def test_an_announced_end_is_saved_copied_and_called_preempted(box: Box, tmp_path: Path) -> None:
    ec2 = Metadata("aws", ticks=True)
    try:
        program = shlex.quote(str(Path(__file__).parents[3] / "deploy" / "notices" / "aws"))
        notice = f'[notice]\ncommand = "env EXTRALIFE_METADATA={ec2.endpoint} {program}"\nevery_s = 1.0\ntimeout_s = 10.0'
        script = 'while sleep 0.2; do date +%s; [ ! -e "$EXTRALIFE_LEAVE_BY" ] || cp "$EXTRALIFE_LEAVE_BY" heard; done'
        mine = f'[program.mine]\ncommand = ["sh", "-c", {json.dumps(script)}]\n'
        box.config(box.trainer("a") + mine, extra=f"{section(tmp_path, 600.0)}\n{notice}")
        assert box.ctl("offsite", "init", timeout_s=60).returncode == 0
        box.start()
        box.wait_phase("a", "RUNNING")
        box.wait_phase("mine", "RUNNING")
        ec2.instance_action("terminate", 40.0)
        told = box.wait_fact("EndAnnounced", timeout_s=30)
        assert told["why"].endswith("spot terminate")
        assert "THIS BOX ENDS in" in box.ctl("status").stdout
        heard = box.state / "programs" / "mine" / "heard"
        # One and the same reading: the script writes its copy again and again, and each time it is empty for a moment.
        said = until(
            lambda: heard.exists() and "aws: spot terminate" in (text := heard.read_text()) and text, 30,
            "the script to hear of the end",
        )  # fmt: skip
        assert abs(int(said.split()[0]) - time.time() - 40.0) < 60.0
        copied = box.wait_fact("OffsiteCopied", timeout_s=60)
        assert copied["cause"] == "notice"
        assert copied["took_s"] < 60.0
        box.wait_fact("StopIntended", "a", timeout_s=90)
        until(lambda: not box.pids(), 60, "every program to have left")
        box.wait_fact("Exited", "a", timeout_s=60)  # a daemon that dies before this record knows only the last beat
        assert [each["cause"] for each in box.facts("OffsiteCopied")][:1] == ["notice"]
        box.power_cut()
        del ec2.answers["spot/instance-action"]
        box.start()
        box.wait_phase("a", "RUNNING")
        back = box.wait_fact("HostRebooted")
        assert (back["cause"], "command had announced" in back["why"]) == ("preempted", True)
        assert box.wait_fact("Resumed", "a", count=2)["lost_steps"] == 0
        assert not Path(box.runtime / "beats").joinpath("mine.2.leave-by").exists()
    finally:
        ec2.close()
