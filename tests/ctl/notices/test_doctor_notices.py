"""`doctor` on notices of the end, and what `status` says of them."""

from __future__ import annotations

from pathlib import Path

from supervisor.ctl.checks import Installation
from supervisor.features.notices import checks as checks_notices
from supervisor.features.notices.lines import lines
from supervisor.features.notices.settings import NoticeSettings
from supervisor.model.settings import Paths, Settings


def look(rules):
    found = checks_notices.notices(Installation(Settings(Paths("/s", "/r"), notice=rules)))
    return [(each.level, each.what) for each in found]


def test_every_source_is_asked_once_and_the_program_for_this_box_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("EXTRALIFE_BOOT_FILES", str(tmp_path))
    assert look(NoticeSettings()) == [
        ("ok", "no source of notices is configured: this box ends without notice (docs/offsite.md)")
    ]
    (tmp_path / "sys_vendor").write_text("Amazon EC2")
    (found,) = checks_notices.notices(Installation(Settings(Paths("/s", "/r"))))
    assert (found.level, found.what) == ("warn", "this box is of aws, and nothing asks aws for notices of its end")
    program = Path(__file__).parents[3] / "deploy" / "notices" / "aws"
    assert found.do == f'[notice] command = "{program}"'
    (tmp_path / "end").write_text("30 gone")
    assert look(NoticeSettings(command="/nowhere", file=str(tmp_path / "end"))) == [
        ("bad", "command: /nowhere cannot be started (No such file or directory)"),
        ("bad", "file: THIS BOX ENDS: gone"),
    ]


def test_status_counts_down():
    each = {"source": "aws", "kind": "end", "what": "spot\x1b terminate", "left_s": 120.0, "leaves_s": 60.0}
    risk = {**each, "kind": "risk", "left_s": None, "leaves_s": None}
    found = {"standing": [each, {**risk, "kind": "end"}, risk], "errors": {"aws": "silent"}}
    assert lines({"notices": found}) == [
        "THIS BOX ENDS in 2m; aws announced: spot\\x1b terminate; the programs leave in 1m",
        "THIS BOX ENDS; aws announced: spot\\x1b terminate",
        "this box MAY END; aws announced: spot\\x1b terminate; all is saved and copied, and training goes on",
        "notices of aws cannot be read: silent",
    ]
