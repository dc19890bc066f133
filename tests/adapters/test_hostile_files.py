"""What a worker may leave in its directories to hang, mislead or kill the daemon: none of it does.

Every test runs under a short timeout: a FIFO that is opened the ordinary way waits for ever.
"""

import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from attempts_kit import REPO, World, python, spec
from fakes import FakeClock
from leaks import open_files

from supervisor import files
from supervisor.adapters import last_config, logs, state_files
from supervisor.adapters import lease as leases
from supervisor.adapters.process import checkpoints, endings
from supervisor.adapters.process.notify_sockets import NotifySockets
from supervisor.adapters.process.probes import LocalProbes
from supervisor.api import logfiles
from supervisor.features.notices.adapters.local import File, Unreadable
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


@pytest.mark.parametrize(
    "read",
    [
        daemon_side.read_beat, ControlWriter, last_config.read, leases.read, logs.clear,
        lambda path: logs.rotate(path, 1, 1),
        lambda path: endings.read_bounded(str(path), 1000),
        lambda path: endings.last_lines(str(path)),
        lambda path: endings.read_reports(str(path)),
        lambda path: logfiles.read_tail(str(path), 100).data,
        lambda path: File(str(path), FakeClock()).read(),
        lambda path: state_files.newest_results(path.parent.parent),
    ],
    ids=[
        "beat", "control record", "configuration in use", "lease", "log to clear", "log to rotate", "exit record", "last lines",
        "reports", "log", "notice", "results",
    ],
)  # fmt: skip
def test_no_reader_follows_waits_or_takes_it_for_a_file(tmp_path, hostile, read):
    hostile(path := tmp_path / "runs" / "Pong" / "results.csv")
    before = open_files()
    try:
        found = read(path)
    except (OSError, ValueError, Unreadable):
        found = None
    assert not found or found is leases.UNCLEAR
    assert open_files() <= before


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


def test_a_worker_gets_its_log_for_appending_and_blocking(world):
    world.run(python("import fcntl, os; print(fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK))"))
    world.inbox.expect(Ended)
    assert int(world.stdout()) == os.O_APPEND


# --- ending ----------------------------------------------------------------------------------------------------------------


RECORD = ExitRecord(
    TOKEN, 1, 0, None, core_dumped=False, ended_ns=1, ended_wall_s=1.0, user_s=0.1, system_s=0.1, max_rss_bytes=1
)
WRONG = "a field has a value that it cannot have"
NEITHER = "it needs a code or a signal"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"code": "1"}, WRONG), ({"code": 1e300}, WRONG), ({"code": True}, WRONG), ({"code": -1}, WRONG), ({"code": 256}, WRONG),
        ({"code": None, "signal": "SIGKILL"}, WRONG), ({"signal": 0}, WRONG), ({"code": None, "signal": 129}, WRONG),
        ({"pid": None}, WRONG), ({"max_rss_bytes": "much"}, WRONG), ({"max_rss_bytes": 10**40}, WRONG),
        ({"user_s": float("nan")}, WRONG), ({"token": 5}, WRONG), ({"core_dumped": "yes"}, WRONG),
        ({"spawn_error": ["x"]}, WRONG), ({"leftovers": 5}, "'int' object is not iterable"), ({"ended_ns": -1}, WRONG),
        ({"ended_wall_s": None}, WRONG), ({"code": None}, NEITHER), ({"signal": 9}, NEITHER),
    ],
    ids=str,
)  # fmt: skip
def test_an_exit_record_whose_fields_are_not_what_they_should_be_is_none(change, told):
    assert ExitRecord.from_json(json.dumps(asdict(RECORD))) == RECORD
    with pytest.raises(ValueError, match=f"^not an exit record: {told}$"):
        ExitRecord.from_json(json.dumps(asdict(RECORD) | change))


def test_a_wrong_count_of_oom_kills_is_unknown_and_no_more():
    for pair in ([0], [0, 1, 2], [0, -1], [0, UNKNOWN + 1], [True, 1], "01", 5):
        assert ExitRecord.from_json(json.dumps(asdict(RECORD) | {"oom_kills": pair})) == RECORD
    known = replace(RECORD, code=None, signal=128, ended_ns=UNKNOWN, oom_kills=(0, UNKNOWN), leftovers=("sh",))
    assert ExitRecord.from_json(json.dumps(asdict(known))) == known


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
    assert checkpoints.quarantine_newest(tmp_path / "Pong", 5) is not None
    assert elsewhere.is_dir()
