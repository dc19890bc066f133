"""What a worker may leave in its directories to hang, mislead or kill the daemon: none of it does.

Every test runs under a short timeout: a FIFO that is opened the ordinary way waits for ever.
"""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from attempts_kit import REPO, World, python, spec
from fakes import FakeClock
from leaks import open_files

from supervisor import files
from supervisor.adapters import last_config, logs, state_files
from supervisor.adapters import lease as leases
from supervisor.adapters.copies import store
from supervisor.adapters.host import boot, known_mount, starts
from supervisor.adapters.process import cgroups, checkpoints, endings, processes
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.probes import LocalProbes
from supervisor.adapters.summaries import Summaries
from supervisor.api import logfiles
from supervisor.ctl import checks_gpu
from supervisor.model.inputs import Ended, SpawnBroke
from supervisor.model.settings import Paths, Progress
from workers import contract, daemon_side
from workers.contract import UNKNOWN
from workers.daemon_side import ControlWriter
from workers.exit_record import ExitRecord

TOKEN = "ab" * 16


def fifo(path, _precious):
    os.mkfifo(path)


def link(path, precious):
    path.symlink_to(precious)


def dangling(path, precious):
    path.symlink_to(precious.with_name("nothing"))


def loop(path, _precious):
    path.symlink_to(path)


def directory(path, _precious):
    path.mkdir()


def device(path, _precious):
    path.symlink_to("/dev/zero")


KINDS = [fifo, link, dangling, loop, directory, device]


@pytest.fixture(params=KINDS, ids=lambda make: make.__name__)
def hostile(request, tmp_path):
    """Makes something at a path that is no file of ours; what it may lead to stays as it was."""
    precious = tmp_path / "precious"
    precious.write_text("precious " * 1000)
    yield lambda path: (Path(path).parent.mkdir(parents=True, exist_ok=True), request.param(Path(path), precious))
    assert precious.read_text() == "precious " * 1000
    assert not (tmp_path / "nothing").exists()


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.close()


# --- reading ---------------------------------------------------------------------------------------------------------------


ATTEMPT = f"programs/Pong/attempts/1-{TOKEN}"


def logs_of_the_attempt(path):
    """None: those of every program."""
    paths = Paths(str(path.parents[4]), "/nowhere")
    found = endings.logs_of(paths, "Pong", 1, TOKEN)
    return None if found == (paths.log("Pong", "stdout"), paths.log("Pong", "stderr")) else found


def feature(module, read):
    """A reader in a module of a feature."""
    return lambda path: read(import_module(f"supervisor.features.{module}"), path)


def end_notice(module, path):
    try:
        return module.File(str(path), FakeClock()).read()
    except module.Unreadable:
        return None


# Reader: where its file lies, and what it makes of it. A new reader of files gets a row here.
RECORDS = {
    "beat": ("beat", daemon_side.read_beat),
    "configuration in use": ("last-config", last_config.read),
    "lease": ("lease", leases.read),
    "sign of life": ("alive", boot.read_mark),
    "starts of the service": (
        "starts",
        lambda path: not starts.wait_for_turn({"NOTIFY_SOCKET": "/nowhere", "RUNTIME_DIRECTORY": str(path.parent)}),
    ),
    "mount": (
        lambda top: known_mount.record_of(str(top), top),
        lambda path: known_mount.refuse_if_missing(str(path.parent), path.parent),
    ),
    "attempt": (f"{ATTEMPT}/shim.json", lambda path: processes.read_record(str(path))),
    "cgroup": (f"{ATTEMPT}/cgroup.json", lambda path: cgroups.read_note(str(path.parent))),
    "places of logs": (f"{ATTEMPT}/logs.json", logs_of_the_attempt),
    "exit record": (f"{ATTEMPT}/exit.json", lambda path: ExitRecord.from_json(endings.read_bounded(str(path), 1000))),
    "reports": (f"{ATTEMPT}/reports.jsonl", lambda path: endings.read_reports(str(path))),
    "results": ("programs/Pong/results.csv", lambda path: state_files.newest_results(path.parent.parent)),
    "curves": (
        "tensorboard/events.out.tfevents.0000000001.extralife",
        feature("recorder.adapters.events", lambda it, path: list(it.read(path.parent.parent, ("loss",), 0.0, 1e12))),
    ),
    "table by day": ("summaries.json", lambda path: Summaries(path.with_name("journal.sqlite"), writes=False)._read(None)),
    "shim": ("shims/Pong.json", lambda at: checks_gpu._ours(SimpleNamespace(paths=Paths("", str(at.parents[1]))))),
    "backup": ("b1/backup.json", lambda path: store.read(path.parent).programs),
    "lease of the copies": ("offsite/lease.json", feature("offsite.adapters.lease", lambda it, path: it.read(path.parent))),
    "origin of the copies": (
        "offsite/origin.json",
        feature("offsite.adapters.restoring", lambda it, at: it.origin(at.parent)),
    ),
    "watch of a box": ("next-box.watch", feature("next_box.verbs", lambda it, at: it.read_watch(at, "boot") != it.Watch())),
    "log of the next box": ("next-box.jsonl", feature("next_box.verbs", lambda it, path: it.tries(path))),
}
TEXTS = {
    "control record": ("control", ControlWriter),
    "log to clear": ("log", logs.clear),
    "log to rotate": ("log", lambda path: logs.rotate(path, 1, 1)),
    "last lines": ("log", lambda path: endings.last_lines(str(path))),
    "log": ("log", lambda path: logfiles.read_tail(str(path), 100).data),
    "start of a log": ("log", lambda path: logfiles.read_from(str(path), "", 0, 100).data),
    "notice": ("end", feature("notices.adapters.local", end_notice)),
}


def assert_nothing_is_there(read, path):
    before = open_files()
    try:
        found = read(path)
    except (OSError, ValueError):
        found = None
    assert not found or found is leases.UNCLEAR
    assert open_files() <= before


def place(tmp_path, where):
    top = tmp_path / "box"
    path = top / where if isinstance(where, str) else where(top)
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize(("where", "read"), (RECORDS | TEXTS).values(), ids=RECORDS | TEXTS)
def test_no_reader_follows_waits_or_takes_it_for_a_file(tmp_path, hostile, where, read):
    path = place(tmp_path, where)
    hostile(path)
    assert_nothing_is_there(read, path)


CONTENTS = {
    "missing": None, "empty": b"", "no UTF-8": b"\xff\xfe\n" * 100, "zeros": bytes(20_000), "half of a record": b'{"token": "ab',
    "another record": b'[1, null, {"a": true}, 7]', "of no fields": b"{}", "a number": b"7", "nested without end": b"[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize(("where", "read"), RECORDS.values(), ids=RECORDS)
def test_what_has_another_form_is_no_record(tmp_path, where, read, content):
    path = place(tmp_path, where)
    if content is not None:
        path.write_bytes(content)
    assert_nothing_is_there(read, path)


def test_a_rotated_log_that_is_no_file_does_not_hide_the_log(tmp_path, hostile):
    (tmp_path / "ours.log").write_text("ours")
    hostile(tmp_path / "ours.log.1")
    assert logfiles.read_from(str(tmp_path / "ours.log"), "0-0", 0, 100).data == b"ours"


def test_files_of_gigabytes_cost_nothing(tmp_path):
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        pytest.skip("the size of a file has a limit here")
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.seek(1 << 40)  # a hole, which no reader counts
        file.write(b"x" * (2 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.thread_time()  # however busy the machine is
    assert daemon_side.read_beat(huge) is None
    assert len(endings.read_bounded(str(huge), 1000)) == 1000
    assert endings.read_reports(str(huge)) == ()
    endings.last_lines(str(huge))
    assert len(logfiles.read_tail(str(huge), 1 << 41).data) == logfiles.MOST_BYTES
    assert time.thread_time() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "KiB"


def test_reports_of_a_running_attempt(world, hostile):
    look = Looking(world.paths)
    hostile(look.reports)
    assert look.probes.reports() == ()
    look.close()


def test_a_million_reports_are_taken_in_pieces_and_then_no_more(world):
    look = Looking(world.paths)
    look.reports.write_text('{"kind": "loop"}\n' * 1_000_000)
    sizes = [len(look.probes.reports()) for _ in range(20)]
    assert max(sizes) <= 256
    assert 1000 <= sum(sizes) <= 1300
    assert sizes[-1] == 0
    look.close()


class Looking:
    """Probes that watch one attempt of this very process."""

    def __init__(self, paths: Paths) -> None:
        Path(paths.runtime_dir, "shims").mkdir(parents=True, exist_ok=True)
        self.edges = NotifySockets(paths.notify_socket, lambda: None)
        self.probes = LocalProbes(paths, FakeClock(), self.edges)
        self.probes.watch(spec("Pong", ["x"], progress=Progress.BEAT), 1, TOKEN, os.getpid())
        self.reports = Path(paths.attempt_dir("Pong", 1, TOKEN)) / contract.REPORTS_FILE
        self.reports.parent.mkdir(parents=True)

    def close(self) -> None:
        self.edges.close()


# --- writing ---------------------------------------------------------------------------------------------------------------


def test_a_new_file_replaces_what_was_there(tmp_path, hostile):
    hostile(tmp_path / "new")
    os.close(files.create(tmp_path / "new"))
    assert (tmp_path / "new").read_bytes() == b""
    assert not (tmp_path / "new").is_symlink()


def test_a_control_record_that_its_worker_cuts_short_does_not_kill_the_daemon(tmp_path):
    """A store into a mapped page beyond the file's end is SIGBUS."""
    code = f"""
import os, sys
sys.path.insert(0, {str(REPO)!r})
from workers.contract import Control, ControlReader
from workers.contract import UNKNOWN
from workers.daemon_side import ControlWriter
writing = ControlWriter("control")
for size in (0, 1, 40, 5000):
    writing.write(Control("{TOKEN}", 1, 2, size))
    os.truncate("control", size)
    writing.write(Control("{TOKEN}", 3, 4, size + 1))
    assert os.path.getsize("control") >= 40
os.truncate("control", 4096)
print(ControlReader("control", "{TOKEN}").read().save_now)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "5001\n"), done.stderr


def test_a_log_of_the_users_own_that_is_no_file_refuses_the_start_with_a_sentence(world, hostile, tmp_path):
    log = tmp_path / "mine.log"
    hostile(log)
    token = world.token()
    world.launcher.spawn(spec("Pong", ["true"], stdout_log=str(log)), 1, token)
    broke = world.inbox.expect(SpawnBroke, token)
    assert broke.error == f"{log} is a link or no regular file, and a log must be one: remove it"
    assert not broke.permanent


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (os.mkfifo, ("stdout.log", "fence", "fence.tmp", "lock", "attempts")), (os.mkfifo, ("",)), (Path.touch, ("",)),
        (os.mkdir, ("stdout.log", "stderr.log", "fence", "fence.tmp", "lock")),
        (lambda path: loop(path, None), ("stderr.log", "attempts")),
    ],
)  # fmt: skip
def test_what_is_in_the_way_of_extralifes_files_in_a_run_directory_is_put_aside_by_the_next_start(world, make, names):
    run_dir = Path(world.paths.run_dir("Pong"))
    run_dir.parent.mkdir(parents=True)
    for path in (run_dir / name for name in names):
        path.parent.mkdir(exist_ok=True)
        make(path)
    world.run(["true"])
    assert world.inbox.expect(Ended).ending.code == 0
    for path in (run_dir / name for name in names):
        assert os.path.lexists(path.with_name(f"{path.name}.found"))


# --- ending ----------------------------------------------------------------------------------------------------------------


def test_a_wrong_count_of_oom_kills_is_unknown_and_no_more():
    ended = {"ended_ns": 1, "ended_wall_s": 1.0, "user_s": 0.1, "system_s": 0.1, "max_rss_bytes": 1}
    record = ExitRecord(TOKEN, 1, 0, None, core_dumped=False, **ended)
    for pair in ([0], [0, 1, 2], [0, -1], [0, UNKNOWN + 1], [True, 1], "01", 5):
        assert ExitRecord.from_json(json.dumps(asdict(record) | {"oom_kills": pair})) == record


def test_a_worker_that_fouls_its_own_exit_record_still_ends(world):
    """A FIFO at the record's place, and at the place of its temporary name: the ending is told all the same."""
    code = (
        "import os; d = os.path.dirname(os.environ['EXTRALIFE_STACKS']); "
        "os.mkfifo(d + '/exit.json'); os.symlink('/etc/passwd', d + '/reports.jsonl'); os._exit(5)"
    )
    world.run(python(code))
    ending = world.inbox.expect(Ended).ending
    assert ending.code == 5
    assert ending.reports == ()


def test_old_attempts_are_not_removed_through_a_link(world, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for number in range(30):
        (elsewhere / f"{number}-{TOKEN}").mkdir(parents=True)
    attempts = Path(world.paths.run_dir("Pong"), "attempts")
    attempts.parent.mkdir(parents=True)
    attempts.symlink_to(elsewhere)
    world.run(["true"], attempt=100)
    world.inbox.expect(Ended)
    assert sum(1 for _ in elsewhere.iterdir()) >= 30


# --- checkpoints -----------------------------------------------------------------------------------------------------------


def test_a_checkpoint_that_is_a_link_is_set_aside_as_a_link(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "Pong" / "checkpoints").mkdir(parents=True)
    (tmp_path / "Pong" / "checkpoints" / f"ckpt-5.{TOKEN}").symlink_to(elsewhere)
    assert checkpoints.quarantine(tmp_path / "Pong", 5) is not None
    assert elsewhere.is_dir()
