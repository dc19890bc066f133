"""How restic is run: a script stands in its place, as a real process, and notes what it is given."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attempts_kit import eventually, gone
from leaks import open_files
from tools import PATIENCE

from supervisor.adapters.copies.thread import Interrupted
from supervisor.features.offsite.adapters import restic as module
from supervisor.features.offsite.adapters import restoring
from supervisor.features.offsite.adapters.restic import Restic, ResticError, ResticSnapshot, credentials
from supervisor.features.offsite.adapters.restoring import NotRestored
from supervisor.features.offsite.messages import Lease
from supervisor.features.offsite.settings import OffsiteSettings
from workers.contract import STRIPPED_ENV


class Script:
    """A `restic` that notes its arguments in `asked`, its process in `pid`, and then does what it is told."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.path = directory, directory / "bin" / "restic"
        self.path.parent.mkdir()
        monkeypatch.setenv("PATH", f"{self.path.parent}:{os.environ['PATH']}")
        self.rules = OffsiteSettings(repository="/r", password_file="/none/password")

    def does(self, body: str) -> None:
        head = f'[ "$1" = version ] && exec echo restic 0.16.4\ncd -P .\nprintf "%s\\n" "$*" >> {self.directory}/asked\necho $$ > {self.directory}/pid'
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
        return str(told.value)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(tmp_path, monkeypatch)


# --- what the child gets -----------------------------------------------------------------------------------------------------


def test_the_users_own_command_for_sftp_is_named(script: Script) -> None:
    script.rules = OffsiteSettings(repository="/r", sftp_command="ssh -p 2")
    script.does("exit 0")
    script.restic().init()
    assert script.asked == ["-o sftp.command=ssh -p 2 init"]


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


# --- what goes wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("kill -9 $$", "restic check: ended with status -9 and printed nothing"),
        ("echo out; printf 'caf\\351' >&2; exit 1", "restic check: caf\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_how_a_failed_call_is_reported(script: Script, body: str, told: str) -> None:
    script.does(body)
    assert script.error() == told


@pytest.mark.parametrize("tool", ["setpriv", "ionice"])
def test_without_restic_the_package_is_named_whatever_stands_before_it(tmp_path: Path, monkeypatch, tool: str) -> None:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"no {tool}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ResticError, match=r"^restic is not installed: apt-get install restic$"):
        Restic(OffsiteSettings(repository="/r"), tmp_path / "cache").check()


def test_a_cache_that_cannot_be_made_is_reported(script: Script) -> None:
    script.does("")
    (script.directory / "cache").touch()
    assert (
        script.error(Restic(script.rules, script.directory / "cache" / "x")) == "restic cannot be started: Not a directory"
    )
    assert script.asked == []


# --- its time ------------------------------------------------------------------------------------------------------------


def in_thread(call: Callable[[], object]) -> Callable[[], BaseException | None]:
    """Begins the call; the result waits for it and says what it has raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except (Interrupted, ResticError) as error:
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
    over = threading.Event()
    trap = f"trap 'sleep 0.1; echo left >> {script.directory}/asked; exit 0' INT" if heeds else "trap '' INT"
    script.does(f"{trap}; sleep 300 & echo $! > {script.directory}/child; wait; wait; sleep 300")
    before = open_files()
    ended = in_thread(script.restic(over=over).check)
    child = script.directory / "child"
    assert eventually(lambda: child.exists() and child.read_text().strip())
    over.set()
    assert type(ended()) is Interrupted
    assert script.asked == ["check --read-data-subset=5%", *["left"] * heeds]
    assert gone(script.pid)
    assert eventually(lambda: gone(int(child.read_text()))), "its children are ended too"
    assert open_files() <= before


def test_a_time_limit_that_has_passed_ends_it_at_once(script: Script) -> None:
    script.does("sleep 300")
    assert script.error(script.restic(limit_s=-1.0)) == "restic did not end within its time limit"


# --- locks ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[int]:
    """A living process that is named restic."""
    shutil.copy(shutil.which("sleep") or "", tmp_path / "restic")
    process = subprocess.Popen([tmp_path / "restic", "300"])
    yield process.pid
    process.kill()
    process.wait()


def locked(script: Script, times: int, pid: int, *, host: str = "") -> None:
    """It is locked that many times by this process."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "123Z")
    lock = json.dumps({"time": now, "exclusive": True, "hostname": host or socket.gethostname(), "pid": pid})
    still = f"[ $(grep -c check {script.directory}/asked) -le {times} ]"
    script.does(f"""case "$*" in
        "list locks"*) {still} && echo {"a" * 64};;
        "cat lock"*) echo '{lock}';;
        check*) {still} && {{ echo 'Fatal: unable to create lock in backend' >&2; exit 1; }};;
    esac; exit 0""")


CHECK = "check --read-data-subset=5%"
LOOK = ["list locks --no-lock", f"cat lock {'a' * 64} --no-lock"]
UNLOCK = "unlock --remove-all"


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("who", ["lives", "gone", "not restic", "a lost box", "a box that may live"])
def test_an_abandoned_lock_is_removed_and_any_other_is_waited_for(
    script: Script, monkeypatch: pytest.MonkeyPatch, holder: int, who: str, times: int
) -> None:
    monkeypatch.setattr(module, "_LOCK_LOOK_S", 0.01)
    pid = {"gone": 2**22 + 1, "not restic": os.getpid()}.get(who, holder)
    locked(script, times, pid, host="ada" if "box" in who else "")
    restic = script.restic()
    restic.gone = frozenset({"ada"} if who == "a lost box" else {"bob"})
    restic.check()
    removes = who not in {"lives", "a box that may live"}
    looks = [CHECK, *LOOK] * times
    assert script.asked == [*looks[:3], *[UNLOCK] * removes, *looks[3:], CHECK], "it is removed once, then waited for"


@pytest.mark.parametrize("box", ["this", "another"])
@pytest.mark.parametrize(("wait_s", "limit_s"), [(0.0, 60.0), (1000.0, 4.9)])
def test_a_lock_that_stays_is_an_error_that_names_its_holder(
    script: Script, monkeypatch: pytest.MonkeyPatch, holder: int, box: str, wait_s: float, limit_s: float
) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_S", wait_s)
    host = socket.gethostname() if box == "this" else "ada"
    locked(script, 1000, holder, host=host)
    told, _, waited = script.error(script.restic(limit_s=limit_s)).rpartition("; waited ")
    remedy = "; if nothing runs there any more, `extralifectl offsite take-over` removes the lock"
    assert told == f"restic check: the repository is locked by process {holder} of box {host}{remedy * (box != 'this')}"
    assert re.fullmatch(r"[\d.]+m?s for it", waited)
    assert script.asked == [CHECK, *LOOK]


def test_an_error_of_a_lock_that_nobody_has_ends_too(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_WAIT_S", 0.0)
    script.does("case $1 in check) echo 'unable to create lock: disk full' >&2; exit 1;; esac")
    assert script.error().startswith("restic check: unable to create lock: disk full; waited ")


def test_waiting_for_a_lock_ends_for_something_more_urgent(
    script: Script, monkeypatch: pytest.MonkeyPatch, holder: int
) -> None:
    monkeypatch.setattr(module, "_LOCK_LOOK_S", 300.0)
    monkeypatch.setattr(module, "_LOCK_WAIT_S", 3000.0)
    locked(script, 1000, holder)
    over = threading.Event()
    ended = in_thread(script.restic(over=over).check)
    assert eventually(lambda: script.asked[-1:] == LOOK[-1:] and gone(script.pid))
    over.set()
    assert type(ended()) is Interrupted
    assert script.asked == [CHECK, *LOOK]


def test_a_backup_without_some_files_is_a_copy_that_names_them(script: Script, tmp_path: Path) -> None:
    summary = {"message_type": "summary", "snapshot_id": "abc"}
    (tmp_path / "files").mkdir()
    errors = [
        {"message_type": "error", "error": {}, "during": "scan", "item": f"{tmp_path}/files/d"},
        {"message_type": "error", "error": {"Op": "open", "Err": 13}, "during": "archival", "item": f"{tmp_path}/files/b"},
        {"message_type": "error", "error": {"message": "lost"}, "during": "archival", "item": "e/f"},
    ]
    lines = "\n".join(json.dumps(each) for each in errors)
    script.does(f"echo '{lines}' >&2; echo Warning >&2; echo '{json.dumps(summary)}'; exit 3")
    unread = script.restic().copy(tmp_path / "files", host="ada", tags=())[1]
    assert unread == {"d": "cannot be read", "b": "Permission denied", "e/f": "lost"}


def test_an_old_restic_is_named_when_it_fails(script: Script) -> None:
    script.does("exit 1")
    script.path.write_text("#!/bin/sh\n[ $1 = version ] && exec echo restic 0.12.1 compiled with go1.18\nexit 1\n")
    assert script.error() == "restic 0.12 is too old: install 0.14 or newer (`restic self-update`, or restic.net)"
    script.path.write_text("#!/bin/sh\nexit 1\n")
    assert script.error() == "restic check: ended with status 1 and printed nothing", "a version that it does not say"


SUMMARY = {"message_type": "summary", "snapshot_id": "abcdef0123", "data_added": 7}


class Asked(Restic):
    """Notes each call, and answers with the output that it was given."""

    def __init__(self, output: str = "", **rules: object) -> None:
        super().__init__(OffsiteSettings(repository="/r", password_file="/none/password", **rules), Path("/none/cache"))
        self.calls: list[tuple[object, ...]] = []
        self.output = output

    def _run(self, *args: str, cwd: Path | None = None, given: str = "") -> str:
        self.calls.append((args, cwd, given))
        return self.output


def snapshot(id_: str, wall_s: float, *tags: str) -> ResticSnapshot:
    return ResticSnapshot(id_, wall_s, "ada", tags)


# --- questions -----------------------------------------------------------------------------------------------------------


def test_what_is_forgotten():
    """Copies 2 and 3 are of a box whose clock was ahead, copy 4 is the true newest one; leases are ordered in the same way."""
    rows = [
        {"short_id": id_, "time": f"20{year}-01-01T00:00:00Z", "hostname": "ada", "tags": tags}
        for id_, year, tags in [
            ("c1", 20, ["extralife", "number=1", "step=Pong:900"]), ("c2", 50, ["extralife", "number=2", "step=Qbert:"]),
            ("c3", 50, ["extralife", "number=3"]), ("c4", 26, ["extralife", "number=4", "step=Pong:7"]),
            *[(f"l{n}", 50 - n, ["extralife-lease", "token=t", f"generation={n}"]) for n in range(7)],
        ]
    ]  # fmt: skip
    restic = Asked()
    surplus = [{"remove": [{"short_id": f"c{n}"} for n in range(1, 5)]}, {"remove": None}]
    answers = {"snapshots": json.dumps(rows), "--dry-run": json.dumps(surplus)}
    calls = []

    def run(*args: str, **_: object) -> str:
        calls.append(args)
        return next((answer for word, answer in answers.items() if word in args), "")

    restic._run = run
    restic.forget(["Pong", "Never"])
    assert calls[-1] == ("forget", "c2", "c3", "l0", "l1", "--prune")
    (surplus_of,) = (" ".join(args) for args in calls if "--dry-run" in args)
    assert "--keep-last 8 --keep-hourly 24 --keep-daily 14" in surplus_of
    restic.forget(["Qbert"])
    assert calls[-1] == ("forget", "c1", "c3", "l0", "l1", "--prune")
    answers["--dry-run"] = "{"
    with pytest.raises(ResticError, match=r"^restic forget: the answer cannot be parsed \(JSONDecodeError\)$"):
        restic.forget([])


def test_a_limit_of_uploads_and_the_share_that_is_checked_are_named_where_they_are_set():
    for rules, limit, share in (
        ({"upload_kib_s": 50}, ("--limit-upload", "50"), ("--read-data-subset=5%",)),
        ({"check_percent": 0}, (), ()),
    ):
        restic = Asked(json.dumps(SUMMARY), **rules)
        restic.copy(Path("/files"), host="ada", tags=("a",))
        restic.check()
        assert [args for args, _, _ in restic.calls] == [
            ("backup", "--json", "--host", "ada", "--ignore-ctime", *limit, "--tag", "a", "."), ("check", *share),
        ]  # fmt: skip


# --- answers -------------------------------------------------------------------------------------------------------------


def test_snapshots_are_in_the_order_of_their_time():
    rows = [
        {"short_id": "b", "time": "2026-11-23T05:27:57.428391114Z", "hostname": "ada", "tags": ["extralife"]},
        {"short_id": "c", "time": "2026-11-23T06:27:56.5+01:00", "hostname": None},
        {"short_id": "a", "time": "2026-11-23T05:27:56.5Z", "tags": None},
    ]
    restic = Asked(json.dumps(rows))
    at_s = 1_795_411_676.5
    assert restic.snapshots() == [
        ResticSnapshot("a", at_s, "", ()),
        ResticSnapshot("c", at_s, "", ()),
        ResticSnapshot("b", 1_795_411_677.428391, "ada", ("extralife",)),
    ]
    assert Asked("null").snapshots() == []


@pytest.mark.parametrize(
    ("output", "error"), [("{", "JSONDecodeError"), ('[{"short_id": "a"}]', "KeyError"), ("5", "TypeError")]
)
def test_a_list_that_is_none_is_reported(output, error):
    with pytest.raises(ResticError) as told:
        Asked(output).snapshots()
    assert str(told.value) == f"restic snapshots: the answer cannot be parsed ({error})"


@pytest.mark.parametrize("output", ["", "no json", "[]", '{"message_type": "summary", "snapshot_id": ""}'])
def test_a_copy_without_a_summary_is_not_believed(output):
    with pytest.raises(ResticError) as told:
        Asked(output).copy(Path("/files"), host="ada", tags=())
    assert str(told.value) == "restic backup: it ended without a summary, so nothing is known of the copy"


def test_the_summary_is_the_last_of_the_lines():
    lines = [json.dumps({**SUMMARY, "snapshot_id": "first"}), json.dumps(SUMMARY), '{"message_type": "status"}', "bye"]
    assert Asked("\n".join(lines)).copy(Path("/files"), host="ada", tags=()) == (SUMMARY, {})


@pytest.mark.parametrize(
    ("err", "out", "told"),
    [
        ("Fatal: Warning: one\n  two \ntwo\n", "x", "restic check: one; two"),
        ("", "error: of the output\n", "restic check: of the output"),
        ("\n", "", "restic check: ended with status 3 and printed nothing"),
        ("a\x1bb", "", "restic check: a\\x1bb"),
        ('{"message_type": "exit_error", "message": "Fatal: no key"}', "", "restic check: no key"),
        (
            '{"message_type": "exit_error", "message": "already locked\\nthe `unlock` command can"}',
            "",
            "restic check: already locked",
        ),
        ('{"message_type": "error", "error": {"message": "in it"}}', "", "restic check: in it"),
        ('{"message_type": "error", "error": "as text"}', "", "restic check: as text"),
        ('{"message_type": "status", "message": "x"}\n{"message_type": "summary"}\nend', "", "restic check: end"),
        ("{no json", "", "restic check: {no json"),
        ("x" * 700, "", "restic check: " + "x" * 600),
    ],
)
def test_restic_s_own_reason_in_one_line(err, out, told):
    assert Asked()._error_message("check", 3, err, out) == told


def test_no_secret_is_shown_and_what_is_too_short_for_one_is_left(tmp_path):
    (tmp_path / "env").write_text("A=123456\nB=54321\nC=x1234567\n")
    (tmp_path / "password").write_text("pw3\n")
    restic = Restic(
        OffsiteSettings(repository="/r", password_file=str(tmp_path / "password"), env_file=str(tmp_path / "env")), tmp_path
    )
    told = restic._error_message("init", 1, "123456 x1234567 54321 pw3 rest:https://me:secret@host/", "")
    assert told == "restic init: *** *** 54321 *** rest:https://me:***@host/", "the longest first"
    (tmp_path / "password").write_text("ab\n")
    assert restic._error_message("init", 1, "table", "") == "restic init: table"


def test_a_lease_is_in_the_tags_of_its_snapshot():
    tags = ("extralife-lease", "token=t=1", "generation=4")
    assert snapshot("a", 5.0, *tags).lease == Lease("t=1", 4, "ada", 5.0, "a")
    assert snapshot("a", 5.0, *tags[1:]).lease is None, "a copy"
    for odd in (tags[:2], (tags[0], tags[2]), (*tags[:2], "generation=x")):
        assert snapshot("a", 5.0, *odd).lease is None


# --- the way back --------------------------------------------------------------------------------------------------------


def test_the_newest_copy_of_the_newest_generation_or_the_one_that_is_named():
    first = snapshot("aa1", 9.0, "extralife", "generation=1")
    taken = snapshot("ab2", 5.0, "extralife", "generation=2")
    older = snapshot("ab3", 4.0, "extralife", "generation=2")
    counted = snapshot("ae6", 1.0, "extralife", "generation=2", "number=1")
    lease = snapshot("ac4", 99.0, "extralife-lease", "generation=9")
    odd = snapshot("ad5", 99.0, "extralife", "generation=x")
    known = [first, taken, older, lease, odd]
    assert restoring.choose(known) == taken
    assert restoring.choose([counted, *known]) == counted, "its box's clock was behind, or those of the others ahead"
    assert restoring.choose(known, "aa") == first
    for wanted, count in (("ab", 2), ("ac4", 0)):
        with pytest.raises(NotRestored) as told:
            restoring.choose(known, wanted)
        assert str(told.value) == f"the repository has {count} copies with the id '{wanted}'; `offsite list` shows them"
    with pytest.raises(NotRestored, match=r"^the repository has no copy of extralife yet$"):
        restoring.choose([lease])
