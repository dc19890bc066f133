"""extralifectl against a real daemon: verbs, exit codes, updates, the dead daemon."""

from __future__ import annotations

import json
import os
import signal
import uuid

from box import PATIENCE, Box, until


def test_stop_start_restart_and_what_is_stopped_stays_stopped(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    box.start()
    first = box.wait_phase("a", "RUNNING")
    box.wait_phase("b", "RUNNING")
    assert box.ctl("status").returncode == 0
    stopped = box.ctl("stop", "a")
    assert (stopped.stdout, stopped.returncode) == ("a: stopped\n", 0)
    assert box.facts("Exited", "a")[-1]["code"] == 75, "it saved and exited"
    assert box.ctl("status").returncode == 3
    assert "not running" in box.ctl("stop", "a").stdout
    box.kill_daemon()
    box.start()
    assert box.program("a")["phase"] == "STOPPED"
    assert box.ctl("start", "a").returncode == 0
    second = box.wait_phase("a", "RUNNING")
    assert second["pid"] != first["pid"]
    assert "already started" in box.ctl("start", "a").stdout
    assert box.ctl("restart", "a").returncode == 0
    until(lambda: (p := box.program("a"))["phase"] == "RUNNING" and p["pid"] != second["pid"], 20, "a restarted")
    unknown = box.ctl("start", "nobody")
    assert "no such process" in unknown.stdout
    assert unknown.returncode == 1
    asked = box.facts("OperatorAsked")
    assert asked
    assert all(fact["uid"] == os.getuid() for fact in asked)

    assert box.ctl("pid").stdout.strip() == str(box.daemon.pid if box.daemon else 0)
    assert box.ctl("pid", "a").stdout.strip() == str(box.program("a")["pid"])
    until(lambda: "begins at step " in box.ctl("tail", "a").stdout, 20, "its first line: it is RUNNING before it prints")
    assert box.ctl("version").stdout.strip()
    assert box.ctl("avail").stdout.startswith("a ")
    began = len(box.facts("BecameReady", "a"))
    assert box.ctl("signal", "TERM", "a").stdout == "a: signalled\n"
    box.wait_fact("BecameReady", "a", count=began + 1)
    assert box.facts("Exited", "a")[-1]["cause"] == "left"
    assert box.ctl("signal", "NONSENSE", "a").returncode == 1
    assert "it saved and exited" in box.ctl("history", "a").stdout
    rows = [json.loads(line) for line in box.ctl("journal").stdout.splitlines()]
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    assert all(row["why"] for row in rows)
    assert "DaemonStarted" in box.ctl("maintail", "-100000").stdout


def test_update_touches_only_what_changed(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    box.start()
    before = {name: box.wait_phase(name, "RUNNING")["pid"] for name in "ab"}
    assert "No config updates" in box.ctl("reread").stdout
    box.config(box.trainer("a") + box.trainer("b", "none", "--after", "7") + box.trainer("c"))
    told = box.ctl("reread").stdout
    assert "b: changed" in told
    assert "c: available" in told
    assert box.program("b")["pid"] == before["b"], "reread only looks"
    box.ctl("update", "--dry-run")
    assert box.program("b")["pid"] == before["b"]
    assert box.ctl("update").returncode == 0
    box.wait_phase("c", "RUNNING")
    until(lambda: (p := box.program("b"))["phase"] == "RUNNING" and p["pid"] != before["b"], 20, "b restarted")
    assert box.program("a")["pid"] == before["a"]
    box.config(box.trainer("a"))
    assert box.ctl("update").returncode == 0
    until(lambda: [p["name"] for p in box.status()["programs"]] == ["a"], 20, "b and c to be gone")
    assert box.program("a")["pid"] == before["a"]


def test_a_bad_edit_leaves_the_running_one_alone(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    pid = box.wait_phase("a", "RUNNING")["pid"]
    box.config("[program.Pongg]\nbatch_siz = 3\n")
    told = box.ctl("update")
    assert told.returncode != 0
    assert "Pong" in told.stdout + told.stderr
    assert "batch_size" in told.stdout + told.stderr
    assert box.program("a")["pid"] == pid
    box.kill_daemon()


def test_a_dead_daemon_is_said_to_be_dead_and_the_journal_speaks(box: Box) -> None:
    box.config(box.trainer("a"))
    box.start()
    box.wait_phase("a", "RUNNING")
    box.kill_daemon()
    told = box.ctl("status")
    assert told.returncode == 4
    assert "not running" in told.stdout + told.stderr
    assert "a" in told.stdout
    assert box.ctl("history").returncode == 0
    assert box.program("a")["phase"] == "RUNNING", "it trains on without a daemon"
    os.kill(box.program("a")["pid"], signal.SIGKILL)
    until(lambda: box.program("a")["phase"] == "GONE", 10, "a killed worker to be told as gone")
    box.set_boot(uuid.uuid4())
    (gone,) = box.status()["programs"]
    assert (gone["phase"], gone["pid"]) == ("GONE", None)


def test_slots_are_few_and_a_finished_program_hands_its_slot_on(box: Box) -> None:
    box.config(
        box.trainer("a", "finish", "--after", "1", keys="priority = 1") + box.trainer("b", keys="priority = 2"), slots=1
    )
    box.start()
    box.wait_phase("a", "RUNNING")
    assert box.program("b")["phase"] == "QUEUED"
    (box.state / "programs" / "a" / "finish").touch()
    box.wait_phase("b", "RUNNING")
    assert box.program("a")["phase"] == "DONE"


def test_shutdown_lets_every_worker_save_and_leave(box: Box) -> None:
    box.config(box.trainer("a") + box.trainer("b"))
    box.start()
    for name in "ab":
        box.wait_phase(name, "RUNNING")
    assert box.ctl("shutdown").returncode == 0
    assert box.daemon is not None
    assert box.daemon.wait(30 * PATIENCE) == 0
    assert not box.pids()
    assert box.facts()[-1]["kind"] == "DaemonStopped"
    assert {fact["code"] for fact in box.facts("Exited")} == {75}
    box.start()
    for name in "ab":
        box.wait_phase(name, "RUNNING")
    assert box.facts("DaemonStarted")[-1]["clean"] is True
