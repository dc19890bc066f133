"""Stories about the record itself: a full disk under the journal, a second daemon on it."""

from dataclasses import replace

import pytest
from test_stories import quiet_world, told, worker
from world import Ending, Odds, Verb, World

from supervisor.model.facts import Snapshot
from supervisor.model.fold import fold_all, replay
from supervisor.model.inputs import FoundationsLooked, SnapshotDue
from supervisor.policy.box.foundations import Finding, Look
from supervisor.ports import JournalMoved


@pytest.mark.fault("disk-full-journal")
def test_the_disk_under_the_journal_is_full_for_ten_minutes():
    """A worker dies, an operator asks; both in vain until there is room. The other worker trains on all the while."""
    world = quiet_world(programs=2)
    world.break_journal(seconds=600.0)
    steps = worker(world, "P1").steps
    world.end(worker(world, "P0").token, Ending(signal=9))
    world.run(60.0)
    world.ask(Verb.STOP, "P1")
    world.run(640.0)
    assert worker(world, "P1").steps > steps + 500 * 100
    assert not world.waiting, "the operator was not left waiting"
    assert told(world) == [
        "0:20:00  box  the journal could not be written for 10m (No space left on device): extralife started nothing meanwhile",
        "0:20:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:20:06  P0   resumed at step 59,175 (last exit: killed), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:20:06  P0   training began 5.9s after its start",
    ]


@pytest.mark.fault("state-away")
def test_the_state_directory_is_away_for_a_minute_and_no_worker_is_started_meanwhile():
    """Its file system is unmounted lazily: the journal's open file still takes facts, and starts have to wait."""
    world = quiet_world()
    away = Finding("state directory", "/state", Look.REPLACED, "it is on another file system", holds_starts=True)
    world.post(FoundationsLooked(0.0, (away,)))
    world.run(5.0)
    world.end(worker(world).token, Ending(signal=9))
    world.run(60.0)
    assert not world.alive()
    world.post(FoundationsLooked(0.0))
    world.run(60.0)
    assert len(world.alive()) == 1
    assert [line for line in told(world) if "state directory" in line] == [
        "0:10:00  box  the state directory /state was replaced (it is on another file system)",
        "0:11:05  box  the state directory /state is in place again, after 1m 5s",
    ]


@pytest.mark.fault("journal-removed")
def test_the_journals_file_is_removed_while_a_worker_dies():
    """The first write notices; the journal is written anew, and the same input is dealt with at once."""
    world = quiet_world()
    world.core.failing, world.core.fails_once = JournalMoved("/state/journal.sqlite", "journal.sqlite was removed"), True
    world.end(worker(world).token, Ending(signal=9))
    world.run(60.0)
    assert told(world)[:2] == [
        "0:10:00  box  the journal was damaged (journal.sqlite was removed): 12 facts were saved, 0 facts are lost; the damaged file is gone",
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
    ]


@pytest.mark.fault("runtime-removed")
def test_a_runtime_directory_that_cannot_be_made_again_holds_up_starts_alone():
    world = quiet_world()
    gone = Finding("runtime directory", "/run/user/1000/x", Look.MISSING, restarts=True, holds_starts=True)
    world.post(FoundationsLooked(0.0, (replace(gone, error="Permission denied"),)))
    world.run(60.0)
    world.end(worker(world).token, Ending(signal=9))
    world.run(60.0)
    assert not world.alive(), "no worker is started without it"
    daemon = world.daemon
    world.post(FoundationsLooked(0.0, (gone,)))  # its parent is there again
    world.run(60.0)
    assert [found.number for found in world.alive()] == [2]
    assert world.daemon == daemon + 1
    assert [line for line in told(world) if "directory" in line] == [
        "0:10:00  box  the runtime directory /run/user/1000/x was removed; restoring it failed (Permission denied) and is tried again",
        "0:12:00  box  extralife restarts itself, which restores: runtime directory",
    ]


@pytest.mark.fault("two-daemons")
def test_a_second_daemon_on_the_same_state_decides_nothing():
    """The lock of the state directory is taken: it leaves before it has looked at the journal."""
    world = quiet_world()
    daemon = world.daemon
    world.start()
    world.end(worker(world).token, Ending(signal=9))
    world.start()
    world.run(60.0)
    assert world.daemon == daemon
    assert told(world) == [
        "0:10:00  P0   killed by SIGKILL, which extralife did not send; +0 s",
        "0:10:06  P0   resumed at step 59,175 (last exit: killed), 294 steps lost (3s, 0.5 % of the attempt)",
        "0:10:06  P0   training began 5.9s after its start",
    ]
    assert [found.number for found in world.alive()] == [2]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_rough_night_with_a_snapshot_every_hour(seed):
    """Every start of a daemon folds the journal anew; the world itself sees to it that both ways give one state."""
    world = World(seed, odds=Odds(crash_s=900.0, daemon_kill_s=1800.0, operator_s=600.0), look_s=20.0).begin()
    for _ in range(8):
        world.run(3600.0)
        if world.daemon:
            world.post(SnapshotDue(0.0, 100))
    snapshots = [item for item in world.core.journal if isinstance(item.fact, Snapshot)]
    assert len(snapshots) > 4
    newest = [item for item in world.core.journal if item.seq >= snapshots[-1].seq]
    assert fold_all(newest) == fold_all(world.core.journal) == replay(world.core.journal)[0]
