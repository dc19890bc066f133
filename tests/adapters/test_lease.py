"""One daemon for a state directory that several hosts share."""

import contextlib

import pytest
from structlog.testing import capture_logs
from tools import no_descriptors

from supervisor.adapters import lease as leases
from supervisor.adapters.lease import DaemonLease
from supervisor.adapters.singleton import Taken


def on(tmp_path, host, wait=lambda _: None):
    made = DaemonLease(str(tmp_path), f"boot-of-{host}", wait)
    made._mine = leases.replace(made._mine, host=host)
    return made


def test_a_second_host_refuses_while_the_first_one_renews(tmp_path):
    first = on(tmp_path, "login1")
    first.take()
    with pytest.raises(
        Taken,
        match=(r"^another supervisord \(pid \d+ on login1\) runs on \S+: stop that one first, or choose another state_dir$"),
    ):
        on(tmp_path, "login2", lambda _: first.renew()).take()
    assert first.renew()


def test_a_lease_that_does_not_move_is_taken_over_and_its_owner_is_fenced(tmp_path):
    first, waited = on(tmp_path, "login1"), []
    first.take()
    with capture_logs() as logged:
        on(tmp_path, "login2", waited.append).take()
    assert sum(waited) >= leases.DEAD_S
    assert logged == [
        {"event": "lease_taken_over", "owner": first._mine, "unmoved_s": logged[0]["unmoved_s"], "log_level": "warning"}
    ]  # fmt: skip
    assert leases.DEAD_S <= logged[0]["unmoved_s"] < leases.DEAD_S + 60.0
    taken = leases.read(tmp_path / "slurm" / "lease")
    with capture_logs() as logged:
        assert not first.renew()
    assert logged == [{"event": "lease_lost", "to": "login2", "pid": taken.pid, "log_level": "critical"}]
    first.release()  # it is not its own any more
    assert leases.read(tmp_path / "slurm" / "lease").host == "login2"


def test_the_same_host_waits_for_nobody(tmp_path):
    """There the lock decides, and it did."""
    on(tmp_path, "login1").take()
    waited = []
    on(tmp_path, "login1", waited.append).take()
    assert sum(waited) < leases.DEAD_S


def test_an_orderly_end_leaves_nothing_to_wait_for(tmp_path):
    first = on(tmp_path, "login1")
    first.take()
    first.release()
    waited = []
    on(tmp_path, "login2", waited.append).take()
    assert sum(waited) < leases.DEAD_S


def test_of_two_that_start_at_once_one_refuses(tmp_path):
    first, second = on(tmp_path, "login1"), on(tmp_path, "login2")
    first._wait = lambda _: second.take()
    with pytest.raises(Taken, match="login2"):
        first.take()
    assert second.renew()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 1}', '{"host":1,"boot_id":"","pid":1,"token":"","count":0}'])
def test_a_lease_that_stays_unreadable_is_taken_over_like_one_that_does_not_move(tmp_path, text):
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "lease").write_text(text)
    waited = []
    mine = on(tmp_path, "login1", waited.append)
    mine.take()
    assert sum(waited) >= leases.DEAD_S, "a daemon that lives would have written it anew by then"
    (tmp_path / "slurm" / "lease").write_text(text)  # somebody damages it
    assert mine.renew()
    assert leases.read(tmp_path / "slurm" / "lease") is leases.UNCLEAR, "another daemon may be writing it at this moment"
    assert mine.renew()
    assert leases.read(tmp_path / "slurm" / "lease").host == "login1"


@pytest.mark.parametrize(
    ("first_look", "clear_at", "looks"), [("clear", 7, 7), ("clear", 14, 14), ("unclear", 1, 2), ("unclear", 14, 15)]
)
def test_a_file_system_that_fails_for_a_moment_does_not_end_the_watch(tmp_path, first_look, clear_at, looks):
    """The owner lives, and the watcher can read its lease at few of its looks: one shows whose it is, a later one that it moves."""
    first, lease, seen = on(tmp_path, "login1"), tmp_path / "slurm" / "lease", []
    first.take()
    if first_look == "unclear":
        lease.write_text("{")

    def wait(_):
        seen.append(1)
        first._mine = leases.replace(first._mine, count=len(seen))
        first._write()
        if len(seen) not in {clear_at, clear_at + 1}:
            lease.write_bytes(lease.read_bytes()[:20])

    with pytest.raises(Taken, match="login1"):
        on(tmp_path, "login2", wait).take()
    assert len(seen) == looks


def test_a_daemon_that_lacks_descriptors_for_a_minute_keeps_it(tmp_path):
    first, seen = on(tmp_path, "login1"), []
    first.take()

    def renew_in_vain(wait_s):
        seen.append(wait_s)
        if len(seen) % round(leases.RENEW_S / wait_s):
            return
        with no_descriptors():
            assert first.renew()

    with pytest.raises(Taken, match="login1"):
        on(tmp_path, "login2", renew_in_vain).take()


def test_losing_it_is_reported_once(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    first, told = on(tmp_path, "login1"), leases.threading.Event()
    first.take()
    first.keep(told.set)
    for _ in range(60):
        with contextlib.suppress(Taken):  # a renewal that had looked before has written over this one's
            on(tmp_path, "login1").take()
        if told.wait(1.0):
            break
    assert told.is_set()


@pytest.mark.parametrize("change", [{"host": "login3"}, {"boot_id": "another"}])
def test_a_daemon_of_another_boot_is_watched(tmp_path, change):
    first, waited = on(tmp_path, "login1"), []
    first._mine = leases.replace(first._mine, **change)
    first.take()
    on(tmp_path, "login1", waited.append).take()
    assert sum(waited) >= leases.DEAD_S
