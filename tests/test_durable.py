"""Every durable writer tells the disk things in an order that a power cut cannot tear: written, synced, renamed, synced.

Real processes; `recorded.py` has the rule. Each of these writers once passed all other tests with a sync taken out.
"""

from __future__ import annotations

import shutil

import pytest
import recorded

CHECKPOINTS = """
import sys
sys.path.insert(0, str(Path('tests/adapters').resolve()))
from checkpoints_kit import commit
for step in (100, 200):
    commit(here / 'programs' / 'Pong', step)
(here / 'programs' / 'Pong' / 'results.csv').write_text('titles')
os.sync()
"""
BACKUPS = """
from supervisor.adapters.copies import store as backups
from supervisor.adapters.process import checkpoints
if {copy}:
    backups._link = backups._clone = lambda source, target: ''
dirs = {{'Pong': here / 'programs' / 'Pong'}}
def make(name, **more):
    return backups.make(here / 'backups', name, dirs, label='', cause='operator', wall_s=1e9, task=backups.Task(), **more)
"""
# name: (what is there before, what is recorded)
WRITERS = {
    "sign of life": (
        "",
        (
            "from supervisor.adapters.host.boot import AliveMark, AliveWriter\n"
            "mark = AliveMark('ab' * 16, 5, 1.0, 2.0, 3.0, 'light', {'Pong': 7}, 9, {})\n"
            "writer = AliveWriter(here / 'alive', lambda: mark, 1.0, print)\n"
            "for _ in range(3): writer.write()\n"
        ),
    ),
    "alert log": (
        "",
        "from supervisor.adapters.host import reboot_log as alerts\nfor _ in range(2): alerts.append(here / 'a.log', 'x')\n",
    ),
    "exit record": (
        "",
        "from supervisor import shim\nshim._write_aside(str(here / 'exit.json'), '{}', sync=True, sync_dir=True)\n",
    ),
    "results": (
        "",
        (
            "from workers import results\n"
            "for score in (1.0, 2.0): results.write(here / 'results.csv', [results.Row('p', 'Pong', 1, 0, score)])\n"
        ),
    ),
    "last configuration": (
        "",
        (
            "from supervisor.adapters import last_config\n"
            "for text in ('a', 'b'): last_config._write(here / 'kept.toml', text, keep_before=True)\n"
        ),
    ),
    "backup": (CHECKPOINTS, BACKUPS.format(copy=False) + "make('b1')\n"),
    "backup by copying": (CHECKPOINTS, BACKUPS.format(copy=True) + "make('b1', every=True)\n"),
    "backup removed": (
        CHECKPOINTS + BACKUPS.format(copy=True) + "make('b1')\n",
        "from supervisor.adapters.copies import store as backups\nbackups.remove(here / 'backups', 'b1')\n",
    ),
    "rollback": (
        CHECKPOINTS + BACKUPS.format(copy=True) + "make('b1')\n"
        "commit(here / 'programs' / 'Pong', 300)\n"
        "import shutil\n"
        "for path in (here / 'programs' / 'Pong' / 'checkpoints').glob('ckpt-[12]*'): shutil.rmtree(path)\n",
        BACKUPS.format(copy=True) + "info = backups.find(here / 'backups', 'b1')\n"
        "backups.restore(info, dirs, lambda: make('kept', every=True), backups.Task())\n",
    ),
    "checkpoint set aside": (
        CHECKPOINTS,
        (
            "from supervisor.adapters.process import checkpoints\n"
            "for info in checkpoints.survey(here / 'programs' / 'Pong'): checkpoints.set_aside(info.path)\n"
        ),
    ),
    "journal put back": (
        "from supervisor.adapters.journal.sqlite import Journal\nJournal(here / 'journal.sqlite').close()\nos.sync()\n",
        (
            "import sys\nsys.path.insert(0, 'deploy')\nimport health\n"
            "health.keep_journal(here / 'journal.sqlite', here / 'copy')\n"
            "health.put_back(here / 'journal.sqlite', here / 'copy')\n"
        ),
    ),
    "journal archived": (
        (
            "from supervisor.adapters.journal.sqlite import Journal\n"
            "from supervisor.model.facts import Finished\n"
            "journal = Journal(here / 'journal.sqlite')\n"
            "journal.append([Finished('w', 'p')] * 30, at_s=0.0, wall_s=0.0, boot_id='b')\n"
            "journal.close()\n"
        ),
        (
            "import contextlib\n"
            "from supervisor.adapters.journal import archive as journal_archive\n"
            "from supervisor.adapters.journal.sqlite import connect\n"
            "with contextlib.closing(connect(here / 'journal.sqlite')) as db:\n"
            "    journal_archive._write(here / 'journal.sqlite', db, 1, 20)\n"
        ),
    ),
}
# SQLite's index of its log is made anew after a crash, and its log is synced by every commit, its name by the first one.
SQLITE = ("-shm", "-wal", "-journal", ".building")


@pytest.mark.parametrize(("before", "code"), WRITERS.values(), ids=WRITERS)
def test_what_is_written_is_on_the_disk_before_it_has_its_name_and_the_name_before_it_is_done(tmp_path, before, code):
    here = tmp_path / "here"
    here.mkdir()
    recorded.run(before or "pass", here)
    calls = recorded.run(code, here)
    kinds = [kind for kind, _, _ in calls]
    assert kinds.count("S") >= 1, "the recorder sees what it does"
    assert recorded.complaints(calls, here, (".tmp", ".new", *SQLITE)) == []
    shutil.rmtree(here)


def test_the_recorder_complains_of_each_omission(tmp_path):
    """Written, synced, renamed, directory synced: without any of the syncs, it is told which."""
    steps = {
        "data": "os.fsync(fd)",
        "rename": "os.rename(here / 'x.tmp', here / 'x')",
        "directory": "os.fsync(os.open(here, os.O_RDONLY))",
    }
    begin = "fd = os.open(here / 'x.tmp', os.O_WRONLY | os.O_CREAT)\nos.write(fd, b'1')\n"
    for left_out, complaint in (
        ("", []),
        ("data", ["x.tmp is not synced when x gets its name", "x is not synced at the end"]),
        ("directory", [". is not synced at the end"]),
    ):
        here = tmp_path / (left_out or "whole")
        here.mkdir()
        code = begin + "\n".join(text for name, text in steps.items() if name != left_out)
        assert recorded.complaints(recorded.run(code, here), here) == complaint
