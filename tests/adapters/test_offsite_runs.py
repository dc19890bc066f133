"""How restic is run: a script stands in its place, as a real process, and notes what it is given."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import eventually, gone
from leaks import open_files
from tools import PATIENCE

from supervisor.adapters.offsite import restic as module
from supervisor.adapters.offsite.restic import Restic, ResticError, ResticInterrupted, credentials
from supervisor.adapters.process.share import Share
from supervisor.policy.upkeep.offsite import Lease, OffsiteSettings
from workers.contract import STRIPPED_ENV

INTERRUPTED = "restic was interrupted by a more urgent task, or because the daemon shuts down"
LOCKED = (
    "Fatal: repository is already locked exclusively by PID {} on {} by me (UID 0, GID 0); lock was created at 2026 (2s ago)"
)


class Script:
    """A `restic` that notes its arguments in `asked`, its process in `pid`, and then does what it is told."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.path = directory, directory / "bin" / "restic"
        self.path.parent.mkdir()
        monkeypatch.setenv("PATH", f"{self.path.parent}:{os.environ['PATH']}")
        self.rules = OffsiteSettings(repository="/r", password_file="/none/password")

    def does(self, body: str) -> None:
        head = f'cd -P .\nprintf "%s\\n" "$*" >> {self.directory}/asked\necho $$ > {self.directory}/pid'
        self.path.write_text(f"#!/bin/sh\n{head}\n{body}\n")
        self.path.chmod(0o755)

    def restic(self, **more: object) -> Restic:
        return Restic(self.rules, self.directory / "cache", **more)  # type: ignore[arg-type]

    @property
    def asked(self) -> list[str]:
        path = self.directory / "asked"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def pid(self) -> int:
        path = self.directory / "pid"
        return int(path.read_text() or 0) if path.exists() else 0

    def error(self, restic: Restic | None = None) -> str:
        with pytest.raises(ResticError) as told:
            (restic or self.restic()).check()
        assert not isinstance(told.value, ResticInterrupted)
        return str(told.value)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(tmp_path, monkeypatch)


# --- what the child gets -----------------------------------------------------------------------------------------------------


def test_the_child_s_arguments_input_directory_and_output(script: Script, tmp_path: Path) -> None:
    script.rules = OffsiteSettings(repository="/r", sftp_command="ssh -p 2")
    summary = {"message_type": "summary", "snapshot_id": "abc"}
    script.does(f"pwd > {tmp_path}/where; cat > {tmp_path}/given; echo noise >&2; echo '{json.dumps(summary)}'")
    (tmp_path / "files").mkdir()
    before = open_files()
    restic = script.restic()
    assert restic.copy(tmp_path / "files", host="ada", tags=("a",)) == summary
    assert (tmp_path / "where").read_text() == f"{tmp_path}/files\n"
    assert (tmp_path / "given").read_text() == ""
    restic.write_lease(Lease("t\N{LATIN SMALL LETTER E WITH ACUTE}", 4, "ada"))
    assert (tmp_path / "where").read_text() == "/\n"
    assert (tmp_path / "given").read_text() == '{"token": "t\\u00e9", "generation": 4, "box": "ada"}'
    restic.init()
    option, tags = "-o sftp.command=ssh -p 2", "--tag extralife-lease --tag token=t\xe9 --tag generation=4"
    assert script.asked == [
        f"{option} backup --json --host ada --ignore-ctime --tag a .",
        f"{option} backup --json --stdin --stdin-filename lease.json --host ada {tags}",
        f"{option} init",
    ]
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert open_files() <= before


@pytest.mark.parametrize("shared", [True, False])
def test_the_child_leads_a_group_and_a_session_of_its_own_where_its_share_is_lowered(script: Script, shared: bool) -> None:
    script.does(f"cut -d ' ' -f 5,6 /proc/$$/stat > {script.directory}/ids")
    script.restic(share=Share() if shared else None).check()
    group, session = map(int, (script.directory / "ids").read_text().split())
    assert group == script.pid
    assert session == (script.pid if shared else os.getsid(0))


def test_the_child_s_environment_is_ours_with_what_restic_needs(script: Script, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "env").write_bytes(b"# a comment\n\nAWS_KEY=a=b\nODD=caf\xe9\nPATH=/elsewhere\n1WRONG=x\n")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/notify")
    monkeypatch.setenv("MINE", "kept")
    script.rules = OffsiteSettings(repository="rest:http://h/", password_file="/p", env_file=str(tmp_path / "env"))
    env = script.restic()._environ()
    mark = env.pop("EXTRALIFE_CHILD_OF")
    assert mark.endswith(":tree"), "the next daemon ends all that a killed one has left of it"
    assert env == {key: value for key, value in os.environ.items() if key not in STRIPPED_ENV} | {
        "AWS_KEY": "a=b", "ODD": "caf\N{REPLACEMENT CHARACTER}", "PATH": "/elsewhere", "RESTIC_REPOSITORY": "rest:http://h/",
        "RESTIC_PASSWORD_FILE": "/p", "RESTIC_CACHE_DIR": f"{tmp_path}/cache", "RESTIC_PROGRESS_FPS": "0.1", "LC_ALL": "C",
    }  # fmt: skip
    with pytest.raises(ResticError, match=r"^/none/env cannot be read: No such file or directory$"):
        credentials("/none/env")


@pytest.mark.skipif(os.geteuid() != 0, reason="another user needs root")
def test_root_may_run_it_as_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    user = pwd.getpwnam("nobody")
    answer = """printf '[{"short_id": "%s", "time": "2026-11-23T05:27:57Z", "hostname": "%s", "tags": ["%s"]}]' """
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        directory.chmod(0o755)
        script = Script(directory, monkeypatch)
        script.does("")
        script.path.write_text(f'#!/bin/sh\n{answer} $(id -u) $(id -g) "$(id -G)"\n')
        (found,) = script.restic(user=user).snapshots()
        assert (found.id, found.host) == (str(user.pw_uid), str(user.pw_gid))
        assert {*found.tags[0].split()} == {str(group) for group in os.getgrouplist("nobody", user.pw_gid)}
        cache = (directory / "cache").stat()
        assert (cache.st_uid, cache.st_gid) == (user.pw_uid, user.pw_gid)
    restic = Restic(script.rules, directory, user=pwd.getpwnam("root"))
    assert restic._as_user() == {"user": 0, "group": 0, "extra_groups": os.getgrouplist("root", 0)}
    assert Restic(script.rules, directory)._as_user() == {}


def test_the_tools_that_lower_its_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/bin/{name}")
    assert module.low_priority_prefix() == [
        "setpriv", "--pdeathsig", "INT", "nice", "-n", "19", "ionice", "-c", "2", "-n", "7",
    ]  # fmt: skip
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert module.low_priority_prefix() == []


# --- what goes wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("echo 'Fatal: No such file x' >&2; exit 1", "restic check: No such file x"),
        ("echo odd >&2; exit 127", "restic is not installed: apt-get install restic"),
        ("exit 3", "restic check: ended with status 3 and printed nothing"),
        ("kill -9 $$", "restic check: ended with status -9 and printed nothing"),
        ("printf 'caf\\351' >&2; exit 1", "restic check: caf\N{REPLACEMENT CHARACTER}"),
        ("echo out; exit 1", "restic check: out"), ("echo out; echo err >&2; exit 1", "restic check: err"),
        ("printf 'a\\033b' >&2; exit 1", "restic check: a\\x1bb"),
    ],
)  # fmt: skip
def test_how_a_failed_call_is_told(script: Script, body: str, told: str) -> None:
    script.does(body)
    assert script.error() == told


@pytest.mark.parametrize("tool", ["nice", "setpriv", "ionice"])
def test_without_restic_the_package_is_named_whatever_stands_before_it(tmp_path: Path, monkeypatch, tool: str) -> None:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"no {tool}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ResticError, match=r"^restic is not installed: apt-get install restic$"):
        Restic(OffsiteSettings(repository="/r"), tmp_path / "cache").check()


def test_a_cache_that_cannot_be_made_is_told(script: Script) -> None:
    script.does("")
    (script.directory / "cache").touch()
    assert (
        script.error(Restic(script.rules, script.directory / "cache" / "x")) == "restic cannot be started: Not a directory"
    )
    assert script.asked == []


def test_of_an_endless_output_the_last_part_is_kept(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_BYTES", 5)
    script.does("printf abcdefgh >&2; exit 1")
    assert script.error() == "restic check: defgh"


def test_the_longest_secret_is_hidden_first(script: Script, tmp_path: Path) -> None:
    (tmp_path / "env").write_text("A=123456\nB=1234567\nC=x12345678\n")
    (tmp_path / "password").write_bytes(b" caf\xe9 \n")
    script.rules = OffsiteSettings(repository="/r", password_file=str(tmp_path / "password"), env_file=str(tmp_path / "env"))
    script.does("printf '123456 1234567 x12345678 caf\\351 123' >&2; exit 1")
    assert script.error() == "restic check: *** *** *** *** 123"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"message_type": "verbose_status", "message": "x"}', ""), ('{"message_type": "error", "error": null}', ""),
        ('{"message": "m", "error": "e"}', "m"), ('{"message": "", "error": {"message": ""}}', ""), ('{"error": {}}', ""),
        ('{"error": ["x"]}', "['x']"), ('  {"message": 5}  ', "5"), ("[1]", "[1]"), ("{}", ""), ('{"code": 1}', ""),
    ],
)  # fmt: skip
def test_the_message_in_one_line_of_its_output(script: Script, line: str, told: str) -> None:
    nothing = "ended with status 1 and printed nothing"
    assert script.restic()._error_message("check", 1, line, "") == f"restic check: {told or nothing}"


# --- its time ------------------------------------------------------------------------------------------------------------


def test_the_time_of_a_call_is_the_limit_or_that_of_the_settings(script: Script) -> None:
    before_s = time.monotonic()
    usual, short = script.restic(), script.restic(limit_s=5.0)
    after_s = time.monotonic()
    assert before_s + 3600.0 <= usual.deadline_s <= after_s + 3600.0
    assert before_s + 5.0 <= short.deadline_s <= after_s + 5.0
    assert usual.aside_until_s == 0.0
    assert usual.place == script.rules.place


def in_thread(call: Callable[[], object]) -> Callable[[], BaseException | None]:
    """Begins the call; the result waits for it and says what it has raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> BaseException | None:
        thread.join(30.0 * PATIENCE)
        assert not thread.is_alive()
        return raised[0] if raised else None

    return ended


@pytest.mark.parametrize("heeds", [True, False])
def test_an_interrupted_restic_may_leave_and_is_killed_if_it_does_not(
    script: Script, monkeypatch: pytest.MonkeyPatch, heeds: bool
) -> None:
    monkeypatch.setattr(module, "_LEAVE_S", 30.0 if heeds else 0.1)
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    trap = f"trap 'sleep 0.1; echo left >> {script.directory}/asked; exit 0' INT" if heeds else "trap '' INT"
    script.does(f"{trap}; sleep 300 & echo $! > {script.directory}/child; wait; wait; sleep 300")
    try:
        before = open_files()
        ended = in_thread(script.restic(interrupt_fd=fd).check)
        child = script.directory / "child"
        assert eventually(lambda: child.exists() and child.read_text().strip())
        os.eventfd_write(fd, 1)
        error = ended()
        assert (type(error), str(error)) == (ResticInterrupted, INTERRUPTED)
        assert script.asked == ["check --read-data-subset=5%", *["left"] * heeds]
        assert gone(script.pid)
        assert eventually(lambda: gone(int(child.read_text()))), "its children are ended too"
        assert open_files() <= before
    finally:
        os.close(fd)


def test_what_ends_in_time_is_not_interrupted_by_what_nobody_wrote(script: Script) -> None:
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        script.does("echo '[]'")
        assert script.restic(interrupt_fd=fd).snapshots() == []
    finally:
        os.close(fd)


def test_a_time_limit_that_has_passed_ends_it_at_once(script: Script) -> None:
    script.does("sleep 300")
    assert script.error(script.restic(limit_s=-1.0)) == "restic did not end within its time limit"


class Noted(Share):
    """Notes the changes instead of making them."""

    def __init__(self, given_back: Path) -> None:
        super().__init__()
        self.given_back, self.changes = given_back, []  # type: ignore[var-annotated]

    def lower(self, pid: int) -> None:
        self.changes.append(("lower", pid))

    def restore(self, pid: int) -> None:
        self.changes.append(("restore", pid))
        self.given_back.touch()


@pytest.mark.parametrize(
    ("for_s", "limit_s", "changes"),
    [(600.0, 600.0, ["lower"]), (0.0, 600.0, []), (0.1, 600.0, ["lower", "restore"]), (600.0, 0.1, ["lower", "restore", "restore"])],
)  # fmt: skip
def test_it_leaves_the_processors_to_the_programs_until_its_time_for_that_is_over(
    script: Script, monkeypatch: pytest.MonkeyPatch, for_s: float, limit_s: float, changes: list[str]
) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 500.0))  # only its waiting takes time
    given_back = script.directory / "back"
    share = Noted(given_back)
    waits = f"until [ -e {given_back} ]; do sleep 0.01; done" if changes == ["lower", "restore"] else ""
    script.does("sleep 300" if limit_s < 1.0 else waits)
    restic = script.restic(share=share, limit_s=limit_s)
    restic.aside_until_s = 500.0 + for_s
    if limit_s < 1.0:
        assert script.error(restic) == "restic did not end within its time limit"
    else:
        restic.check()
        assert {pid for _, pid in share.changes} <= {script.pid}
    assert [change for change, _ in share.changes] == changes


# --- locks ---------------------------------------------------------------------------------------------------------------


def told_locked(script: Script, times: int, *, held: bool) -> str:
    """It is locked that many times, by us or by nobody any more; the error that it prints."""
    message = LOCKED.format(os.getpid() if held else 2**22 + 1, socket.gethostname())
    count = f"$(grep -c check {script.directory}/asked)"
    script.does(f"case $1 in check) [ {count} -le {times} ] && {{ echo '{message}' >&2; exit 1; }};; esac; exit 0")
    return f"restic check: {message.removeprefix('Fatal: ')}"


CHECK = "check --read-data-subset=5%"


@pytest.mark.parametrize(
    ("times", "held", "asked"),
    [
        (0, False, [CHECK]), (1, False, [CHECK, "unlock", CHECK]), (2, False, [CHECK, "unlock", CHECK, "unlock", CHECK]),
        (2, True, [CHECK, CHECK, CHECK]),
    ],
)  # fmt: skip
def test_a_lock_is_removed_if_nobody_holds_it_and_waited_for_if_somebody_does(
    script: Script, monkeypatch: pytest.MonkeyPatch, times: int, held: bool, asked: list[str]
) -> None:
    monkeypatch.setattr(module, "_LOCK_LOOK_S", 0.01)
    told_locked(script, times, held=held)
    script.restic().check()
    assert script.asked == asked


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("wait_s", "limit_s"), [(0.0, 60.0), (1000.0, 4.9)])
def test_a_lock_that_stays_is_an_error_with_how_long_it_was_waited_for(
    script: Script, monkeypatch: pytest.MonkeyPatch, held: bool, wait_s: float, limit_s: float
) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_S", wait_s)
    message = told_locked(script, 1000, held=held)
    told, _, waited = script.error(script.restic(limit_s=limit_s)).rpartition("; waited ")
    assert told == message
    assert re.fullmatch(r"\d{1,2} s for it", waited)
    assert script.asked == ([CHECK] if held else [CHECK, "unlock", CHECK])


@pytest.mark.parametrize(
    ("age", "lives"),
    [
        (" (2.5s ago)", True), (" (350.1ms ago)", True), (" (12µs ago)", True), ("", True), (" (29m59.9s ago)", True),
        (" (30m0s ago)", False), (" (59m1s ago)", False), (" (1h0m2s ago)", False), (" (1h2s ago)", False), (" (12h0m2s ago)", False),
    ],
)  # fmt: skip
def test_a_lock_of_a_live_process_counts_until_it_is_old(age: str, lives: bool) -> None:
    told = "repository is already locked by PID {} on {} by me (UID 0, GID 0){}"
    here = socket.gethostname()
    assert module._holder_lives(told.format(os.getpid(), here, age)) is lives
    assert not module._holder_lives(told.format(2**22 + 1, here, age))
    assert not module._holder_lives(told.format(os.getpid(), f"{here}x", age))


def test_another_error_is_not_tried_again(script: Script) -> None:
    script.does("echo Fatal: wrong password >&2; exit 1")
    assert script.error() == "restic check: wrong password"
    assert script.asked == [CHECK]


def test_waiting_for_a_lock_ends_for_something_more_urgent(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_LOOK_S", 300.0)
    monkeypatch.setattr(module, "_LOCK_WAIT_S", 3000.0)
    told_locked(script, 1000, held=True)
    fd = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        ended = in_thread(script.restic(interrupt_fd=fd).check)
        assert eventually(lambda: script.pid and gone(script.pid))
        os.eventfd_write(fd, 1)
        error = ended()
        assert (type(error), str(error)) == (ResticInterrupted, INTERRUPTED)
        assert script.asked == [CHECK]
    finally:
        os.close(fd)
