"""Work that goes on where no new thread can be started: real threads, of which no more can begin."""

import errno
import threading
from pathlib import Path

import pytest
from tools import no_descriptors

from supervisor import config
from supervisor.adapters import singleton
from supervisor.adapters.host.boot import read_mark
from supervisor.adapters.journal.sqlite import Journal, open_or_salvage
from supervisor.adapters.process import marks
from supervisor.adapters.threads import Lasting, Tasks, begun, failing
from supervisor.lack import is_lack
from supervisor.policy.box.supervision import Failing


@pytest.fixture
def refused(monkeypatch):
    """From `refuse` on no thread can be started, as with EAGAIN; the names of those that were tried."""
    tried = []

    def refuse(thread):
        tried.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return tried


def test_a_pool_has_all_of_its_threads_before_its_first_task(monkeypatch):
    before = set(threading.enumerate())
    pool = begun(3, "keeper")
    new = set(threading.enumerate()) - before
    assert sorted(thread.name for thread in new) == ["keeper_0", "keeper_1", "keeper_2"]
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("no thread can be started any more"))
    together = threading.Barrier(3)
    assert sorted(each.result(60) for each in [pool.submit(together.wait, 60) for _ in range(3)]) == [0, 1, 2]
    pool.shutdown()
    assert not new & set(threading.enumerate())


def test_no_start_of_a_thread_in_the_daemon_can_hang():
    """A thread that ends for lack of memory before it has reported keeps a plain start for ever, and a pool's start holds a lock of all pools."""
    others = {"adapters/threads.py", "image.py", "features/slurm/adapters/node.py"}  # the last two: processes of their own
    root = Path(config.__file__).parents[1]
    sources = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.py") if path.parts[-2] != "ctl"}
    plain = ("threading.Thread(", "ThreadPoolExecutor(", "asyncio.to_thread(", "run_in_executor(None")
    assert not {name for name, text in sources.items() if any(each in text for each in plain)} - others


def test_without_new_threads_one_spare_thread_does_all_in_order_and_ends(request):
    before = set(threading.enumerate())
    tasks = Tasks("spare")
    (spare,) = set(threading.enumerate()) - before
    assert (spare.name, spare.daemon) == ("spare", True)
    refused = request.getfixturevalue("refused")
    told = []
    for number in range(3):
        tasks.begin(f"task {number}", lambda *given: told.append((threading.current_thread().name, given)), number, "x")
    tasks.close()
    spare.join(60)
    assert not spare.is_alive()
    assert told == [("spare", (0, "x")), ("spare", (1, "x")), ("spare", (2, "x"))]
    assert refused == ["task 0", "task 1", "task 2"]


def lacking(failures, then):
    """Errors of so many turns, after which `then` is set."""
    for _ in range(failures):
        yield OSError(errno.EMFILE, "Too many open files", "/proc")
    then.set()


def raising(errors):
    for error in errors:
        raise error


def mine(name):
    return [each for each in failing() if each.name == name]


def test_a_turn_that_fails_is_repeated_and_its_second_failure_is_reported_until_it_succeeds():
    done, over, reported = threading.Event(), threading.Event(), []
    errors = lacking(2, done)

    def turn():
        reported.append(mine("looker"))
        raising(errors)
        over.wait(60)

    thread = Lasting("looker", turn, over.is_set, vital=True)
    thread.start()
    assert done.wait(60)
    (standing,) = reported[2]
    assert reported[:2] == [[], []], "one failure is no trouble"
    assert (standing.error, standing.vital) == ("[Errno 24] Too many open files: '/proc'", True)
    assert standing.for_s is not None
    assert 0.0 < standing.for_s < 60.0
    over.set()
    thread.join(60)
    assert mine("looker") == []


def test_no_error_ends_a_thread_and_one_that_has_ended_is_reported(monkeypatch):
    over, turns = threading.Event(), []

    def turn():
        turns.append(1)
        if len(turns) == 2:
            over.set()
        raise SystemExit

    thread = Lasting("stubborn", turn, over.is_set, vital=True)
    thread.start()
    thread.join(60)
    assert (len(turns), mine("stubborn")) == (2, [])
    monkeypatch.setattr(Lasting, "run", lambda _: None)  # killed as no exception can kill it
    dead = Lasting("dead", turn, lambda: False, vital=True)
    dead.start()
    dead.join(60)
    assert mine("dead") == [Failing("dead", "it has ended", None, vital=True)]


def test_what_a_lack_of_descriptors_hides_is_not_absent(tmp_path):
    """A start that took it for absent would start a second worker, or run on a configuration that is not the newest one."""
    (tmp_path / "extralife.toml").write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n[program.a]\ncommand = ["true"]\n')
    journal = tmp_path / "journal.sqlite"
    Journal(journal).close()
    alive = tmp_path / "alive"
    alive.touch()
    looks = [
        lambda: config.load(str(tmp_path / "extralife.toml"), {}, {}, look=False),
        lambda: config.load(None, {"EXTRALIFE_STATE_DIR": str(tmp_path)}, {}),
        lambda: Journal(journal),
        lambda: open_or_salvage(journal, wall_s=0.0),
        lambda: read_mark(alive),
        lambda: marks.attempts(str(tmp_path)),
        lambda: singleton.claim(str(tmp_path)),
    ]
    with no_descriptors():
        for number, look in enumerate(looks):
            with pytest.raises(OSError, match="Too many open files") as found:
                look()
            assert is_lack(found.value), number
