"""Copies in a real repository of restic: what is in them, what goes wrong, who may go on with them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from offsite_kit import PASSWORD, WALL_S, Box, needs_restic, new_repository, whys
from tools import PATIENCE

from supervisor.adapters import leftovers
from supervisor.adapters.process import checkpoints
from supervisor.features.offsite.adapters import lease as leases
from supervisor.features.offsite.adapters import restic, restoring
from supervisor.features.offsite.adapters.restic import COPY_TAG, ResticError
from supervisor.features.offsite.messages import Claim, OffsiteTakeOver, OffsiteTend

pytestmark = needs_restic


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    return new_repository(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def repository(empty, tmp_path):
    shutil.copytree(empty, tmp_path / "off")
    return tmp_path / "off"


@pytest.fixture
def box(tmp_path, repository):
    made = Box(tmp_path / "ada", repository)
    yield made
    made.close()


def restore(box, target, *, take_over=False, name="bob", snapshot=None):
    restic = box.restic()
    chosen = snapshot or restoring.choose(restic.snapshots())
    return restoring.restore(restic, chosen, target, take_over=take_over, box=name, wall_s=WALL_S + 1e6)


# --- a copy, and the way back --------------------------------------------------------------------------------------------


def test_a_copy_has_everything_and_comes_back_whole(box, tmp_path):
    pong = box.run_dir("Pong")
    (pong / "mine").mkdir()
    (pong / "mine" / "model.pt").write_bytes(b"mine")
    for name in ("lock", "stdout.log.1", "half.tmp"):
        (pong / name).touch()
    (pong / "away").symlink_to("/etc/passwd")
    done, (claimed,) = box.copies("operator")
    assert (done.error, done.steps, done.missed) == ("", {"Pong": 100, "Qbert": 7}, {})
    assert (done.what, done.cause, done.as_of_s) == ("copy", "operator", 77.0)
    assert claimed.claim is Claim.HELD
    assert (claimed.lease.generation, claimed.lease.box) == (1, "ada")
    assert not list((box.state / "offsite" / "work").iterdir()) or not (box.state / "offsite/work/copy").exists()

    box.tell("written later")
    made = restore(box, tmp_path / "new")
    assert (made.box, made.steps, made.wall_s) == ("ada", {"Pong": 100, "Qbert": 7}, WALL_S)
    new = tmp_path / "new"
    assert [each for each in whys(new / "journal.sqlite") if "written later" in each] == []
    assert any('"first"' in each for each in whys(new / "journal.sqlite"))
    assert checkpoints.newest_good(new / "programs" / "Pong").env_steps == 100
    assert (new / "programs" / "Pong" / "tensorboard" / "events.1").read_bytes() == b"curve"
    assert (new / "programs" / "Pong" / "mine" / "model.pt").read_bytes() == b"mine"
    assert sorted(os.listdir(new / "programs" / "Pong")) == ["checkpoints", "mine", "tensorboard"]
    assert (new / "alive").exists()
    assert made.config.read_text() == "[program.Pong]\n"
    assert not (new / restoring.ASIDE).exists()
    with pytest.raises(restoring.NotRestored, match="holds a journal already"):
        restore(box, new)


def test_an_unchanged_checkpoint_is_not_sent_again(box):
    box.commit("Pong", 200, size=2_000_000)
    first, _ = box.copies()
    again, _ = box.copies()
    assert first.sent_bytes > 2_000_000
    assert again.sent_bytes < 100_000
    assert again.snapshot != first.snapshot


def test_neither_arguments_nor_errors_show_a_secret(box, tmp_path, monkeypatch):
    log, env_file = tmp_path / "argv", tmp_path / "env"
    instead(
        tmp_path, monkeypatch,
        f'printf "%s\\n" "$*" >> {log}\necho "Fatal: {PASSWORD} s3cretkey rest:http://u:pw9@h/" >&2\nexit 1',
    )  # fmt: skip
    env_file.write_text("AWS_SECRET_ACCESS_KEY=s3cretkey\n")
    box.rules = replace(box.rules, env_file=str(env_file))
    done, _ = box.copies()
    assert done.error == "restic snapshots: *** *** rest:http://u:***@h/"
    argv = log.read_text()
    assert "snapshots --json" in argv
    assert not any(secret in argv for secret in (PASSWORD, "s3cretkey", box.rules.repository))


def test_the_child_has_the_threads_priority_and_ends_with_its_parent(box, tmp_path, monkeypatch):
    nice = "cut -d ' ' -f 19 /proc/$$/stat"
    instead(tmp_path, monkeypatch, f"{nice} > {tmp_path}/nice\necho $$ > {tmp_path}/pid\nexec sleep 300")
    pid = os.fork()
    if pid == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, 10)
            box.restic().snapshots()
        finally:
            os._exit(0)
    child = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    assert int((tmp_path / "nice").read_text()) == 10
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for(lambda: not alive(child))


def instead(tmp_path, patch, body):
    """This script is run in the place of restic."""
    wrapper = tmp_path / "bin" / "restic"
    wrapper.parent.mkdir()
    wrapper.write_text(f"#!/bin/sh\n{body}\n")
    wrapper.chmod(0o755)
    patch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")


def wait_for(look, timeout_s=20.0 * PATIENCE):
    until_s = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    return found


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


# --- what goes wrong -----------------------------------------------------------------------------------------------------


def test_each_failure_is_told_in_restic_s_own_words(box, tmp_path):
    (tmp_path / "wrong").write_text("not it\n")
    good = box.rules
    box.rules = replace(good, password_file=str(tmp_path / "wrong"))
    assert box.copies()[0].error == "restic snapshots: wrong password or no key found"
    box.rules = replace(good, repository="/nowhere/repo")
    assert "unable to open config file" in box.copies()[0].error
    assert "/nowhere/repo" in box.copies()[0].error
    box.rules = replace(good, repository="rest:http://127.0.0.1:1/x")
    assert "connection refused" in box.copies(limit_s=10.0)[0].error


def test_a_slow_repository_costs_no_more_than_its_time(box, tmp_path, monkeypatch):
    instead(tmp_path, monkeypatch, "exec sleep 300")
    assert "time limit" in box.copies(limit_s=0.5)[0].error


def test_a_lock_in_use_is_left_alone_and_one_left_by_a_kill_is_removed(box, tmp_path, monkeypatch):
    monkeypatch.setattr(restic, "_LOCK_WAIT_S", 0.3)
    box.copies()
    locks, holder = Path(box.rules.repository) / "locks", stopped_with_its_lock(box, tmp_path)
    try:
        told = box.copies()[0].error
        assert re.search(rf" is locked by process {holder.pid} of box \S+; waited [\d.]+m?s for it$", told)
        assert finished(locks), "the lock of a process that lives stays"
    finally:
        holder.kill()
        holder.wait()
    assert not box.copies()[0].error
    assert not finished(locks)


def test_a_box_that_died_within_prune_does_not_keep_its_successor_waiting(box, tmp_path, monkeypatch):
    box.copies()
    holder = stopped_with_its_lock(box, tmp_path)
    holder.kill()
    holder.wait()
    locks = Path(box.rules.repository) / "locks"
    monkeypatch.setattr(restic.socket, "gethostname", lambda: "another box")
    restore(box, tmp_path / "look")
    assert finished(locks), "a restore needs no lock"
    monkeypatch.setattr(restic, "_LOCK_WAIT_S", 0.0)
    restore(box, tmp_path / "bob", take_over=True)
    assert not finished(locks)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_box_killed_at_any_moment_of_a_prune_is_followed_and_the_next_prune_ends_it(box, tmp_path, monkeypatch, share):
    for step in (200, 300):
        box.commit("Pong", step)
        assert not box.copies()[0].error
    for each in [each for each in box.restic().snapshots() if COPY_TAG in each.tags][:-1]:
        box.restic().remove(each.id)
    where = {"RESTIC_PASSWORD_FILE": box.rules.password_file, "RESTIC_CACHE_DIR": str(tmp_path / "cache")}
    shutil.copytree(box.rules.repository, tmp_path / "measured")
    began_s = time.monotonic()
    subprocess.run(["restic", "--repo", tmp_path / "measured", "prune"], env={**os.environ, **where}, check=True)
    length_s = time.monotonic() - began_s
    prune = subprocess.Popen(["restic", "--repo", box.rules.repository, "prune"], env={**os.environ, **where})
    with contextlib.suppress(subprocess.TimeoutExpired):
        prune.wait(share * length_s)  # the moment itself is what is tried
    prune.kill()
    prune.wait()
    monkeypatch.setattr(restic.socket, "gethostname", lambda: "another box")
    monkeypatch.setattr(restic, "_LOCK_WAIT_S", 0.0)
    assert restore(box, tmp_path / "bob", take_over=True).steps["Pong"] == 300
    box.restic().forget(["Pong"])
    box.restic()._run("prune")
    assert box.restic().check(100) == 100


def finished(locks):
    return [name for name in os.listdir(locks) if "-tmp-" not in name]


def stopped_with_its_lock(box, tmp_path):
    """A restic that prunes, stopped by SIGSTOP while it holds its exclusive lock."""
    locks = Path(box.rules.repository) / "locks"
    env = {
        **os.environ, "RESTIC_REPOSITORY": box.rules.repository, "RESTIC_PASSWORD_FILE": box.rules.password_file,
        "RESTIC_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    for _ in range(20):
        prune = subprocess.Popen(["restic", "prune"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while prune.poll() is None and not finished(locks):
            time.sleep(0.002)
        if prune.poll() is None:
            prune.send_signal(signal.SIGSTOP)
            os.waitid(
                os.P_PID, prune.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT
            )  # until then it may still give the lock back
            if prune.poll() is None and finished(locks):
                return prune
        prune.kill()
        prune.wait()
    raise AssertionError("prune was never caught with its lock")


def test_old_copies_go_and_the_repository_is_checked(box):
    box.rules = replace(
        box.rules, keep_last=1, keep_hourly=0, keep_daily=0, keep_weekly=0, keep_monthly=0, check_percent=100
    )
    box.copies()
    newest, _ = box.copies()
    assert box.does(OffsiteTend("forget", 5.0))[0].error == ""
    kept = [each for each in box.restic().snapshots() if each.lease is None]
    assert [each.id for each in kept] == [newest.snapshot]
    assert leases.in_repository(box.restic()).generation == 1, "the lease stays"
    checked, _ = box.does(OffsiteTend("check", 6.0))
    assert (checked.what, checked.error, checked.due_wall_s) == ("check", "", 6.0)
    flip(next(path for path in sorted((Path(box.rules.repository) / "data").rglob("*")) if path.is_file()))
    assert "restic check: " in box.does(OffsiteTend("check"))[0].error


def test_a_clock_that_was_ahead_makes_no_copy_that_stays_the_newest(box, tmp_path, monkeypatch):
    real = shutil.which("restic")
    ahead_of_all = f"""case $1 in backup) shift; exec {real} backup --time '2040-01-01 00:00:00' "$@";; esac"""
    with monkeypatch.context() as patch:
        instead(tmp_path, patch, f'{ahead_of_all}\nexec {real} "$@"')
        ahead, _ = box.copies()
    box.commit("Pong", 200)
    newest, _ = box.copies()
    assert restoring.choose(box.restic().snapshots()).id == newest.snapshot
    assert restore(box, tmp_path / "new").steps["Pong"] == 200
    box.rules = replace(box.rules, keep_last=1, keep_hourly=0, keep_daily=0, keep_weekly=0, keep_monthly=0)
    assert box.does(OffsiteTend("forget"))[0].error == ""
    kept = [each.id for each in box.restic().snapshots() if each.lease is None]
    assert kept == [ahead.snapshot, newest.snapshot], "restic counts the other one as the last"


def flip(path):
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_copy_is_refused_and_nothing_is_put_into_place(box, tmp_path):
    box.commit("Pong", 300, size=300_000)
    box.copies()
    for path in (Path(box.rules.repository) / "data").rglob("*"):
        if path.is_file() and path.stat().st_size > 200_000:
            flip(path)
    with pytest.raises((ResticError, restoring.NotRestored)):
        restore(box, tmp_path / "new")
    assert not (tmp_path / "new" / "journal.sqlite").exists()


def test_a_full_repository_is_reported_and_the_next_copy_is_whole(box, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False).returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        shutil.copytree(Path(box.rules.repository), small / "repo")
        box.rules = replace(box.rules, repository=str(small / "repo"))
        box.commit("Pong", 400, size=4_000_000)
        assert "no space left on device" in box.copies()[0].error
        subprocess.run(["mount", "-o", "remount,size=64m", small], check=True)
        done, _ = box.copies()
        assert (done.error, done.steps["Pong"]) == ("", 400)
    finally:
        subprocess.run(["umount", small], check=True)


# --- the lease -----------------------------------------------------------------------------------------------------------


def test_a_box_that_comes_back_finds_that_another_has_taken_over(box, repository, tmp_path):
    box.copies()
    made = restore(box, tmp_path / "bob" / "state", take_over=True)
    assert made.steps["Pong"] == 100
    done, (claimed,) = box.copies()
    assert claimed.claim is Claim.LOST
    assert (claimed.lease.box, claimed.lease.generation) == ("bob", 2)
    assert "belongs to box bob" in done.error
    assert leases.read(tmp_path / "bob" / "state" / "offsite").generation == 2

    back, (again,) = box.does(OffsiteTakeOver())
    assert (back.error, again.claim, again.lease.generation, again.lease.box) == ("", Claim.HELD, 3, "ada")
    assert box.copies()[0].error == ""


@pytest.mark.parametrize("copied_since", [True, False])
def test_of_a_cloned_disk_only_one_goes_on(box, repository, tmp_path, copied_since):
    """The clone has the same token. What tells them apart is its other hardware, and who has copied since."""
    first, (held,) = box.copies()
    clone = Box(tmp_path / "clone", repository, "clone")
    of_disk = {"moved_with": first.snapshot, "token": held.lease.token, "generation": 1, "place": held.lease.place}
    try:
        shutil.copytree(Path(box.paths.offsite), Path(clone.paths.offsite))
        if copied_since:
            box.copies()
        done, (claimed,) = clone.copies(**of_disk)
        if copied_since:
            assert (claimed.claim, claimed.lease.box) == (Claim.LOST, "ada")
            assert clone.copies(**of_disk)[1][0].claim is Claim.LOST, "and it stays so"
            assert box.copies()[0].error == ""
        else:
            assert (claimed.claim, claimed.lease.box, claimed.lease.generation) == (Claim.HELD, "clone", 2)
            assert done.error == ""
            assert clone.copies()[0].error == ""
            assert box.copies()[1][0].claim is Claim.LOST
    finally:
        clone.close()


def test_doctor_s_small_file_goes_there_and_back(box, tmp_path):
    for name in ("probe", "another"):
        (tmp_path / name).mkdir()
    assert restoring.try_out(box.restic(), tmp_path / "probe", box="ada") == ""
    assert box.restic().snapshots() == []
    box.rules = replace(box.rules, repository="/nowhere/repo")
    assert restoring.try_out(box.restic(), tmp_path / "another", box="ada").startswith("restic backup: ")


# --- killed in the middle -------------------------------------------------------------------------------------------------


def test_a_copy_killed_at_any_moment_leaves_a_repository_that_takes_the_next_one(box):
    box.commit("Pong", 600, size=3_000_000)
    for wait_s in (0.05, 0.4, 0.7, 0.9):
        pid = os.fork()
        if pid == 0:
            try:
                from supervisor.adapters.copies.thread import Task
                from supervisor.features.offsite.adapters import staging

                leftovers.end()
                found = staging.collect(box.paths, ("Pong", "Qbert"), {}, wall_s=WALL_S, with_replay=False, task=Task())
                box.restic().copy(found.directory, host="ada", tags=("extralife", "generation=1"))
            finally:
                os._exit(0)
        time.sleep(wait_s)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    leftovers.end()  # as the next daemon does
    done, _ = box.copies()
    assert (done.error, done.steps["Pong"]) == ("", 600)
    box.rules = replace(box.rules, check_percent=100)
    assert box.does(OffsiteTend("check"))[0].error == "", "a lock that a killed restic left is no obstacle"
