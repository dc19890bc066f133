"""One daemon for a state directory that several hosts share."""

import pytest

from supervisor.adapters.singleton import Taken
from supervisor.adapters.slurm import lease as leases
from supervisor.adapters.slurm.lease import DaemonLease


def on(tmp_path, host, wait=lambda _: None):
    made = DaemonLease(str(tmp_path), f"boot-of-{host}", wait)
    made._mine = leases.replace(made._mine, host=host)
    return made


def test_a_second_host_refuses_while_the_first_one_renews(tmp_path):
    first = on(tmp_path, "login1")
    first.take()
    with pytest.raises(Taken, match=r"another supervisord \(pid \d+ on login1\) runs on .*stop that one first"):
        on(tmp_path, "login2", lambda _: first.renew()).take()
    assert first.renew()


def test_a_lease_that_does_not_move_is_taken_over_and_its_owner_is_fenced(tmp_path):
    first, waited = on(tmp_path, "login1"), []
    first.take()
    on(tmp_path, "login2", waited.append).take()
    assert sum(waited) >= leases.DEAD_S
    assert not first.renew()
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


def test_one_that_leaves_while_it_is_watched_makes_room(tmp_path):
    first = on(tmp_path, "login1")
    first.take()
    on(tmp_path, "login2", lambda _: first.release()).take()
    assert leases.read(tmp_path / "slurm" / "lease").host == "login2"


def test_of_two_that_start_at_once_one_refuses(tmp_path):
    first, second = on(tmp_path, "login1"), on(tmp_path, "login2")
    first._wait = lambda _: second.take()
    with pytest.raises(Taken, match="login2"):
        first.take()
    assert second.renew()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 1}', '{"host":1,"boot_id":"","pid":1,"token":"","count":0}'])
def test_what_is_no_lease_stops_nobody(tmp_path, text):
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "lease").write_text(text)
    mine = on(tmp_path, "login1")
    mine.take()
    (tmp_path / "slurm" / "lease").write_text(text)  # somebody damages it
    assert mine.renew()
    assert leases.read(tmp_path / "slurm" / "lease").host == "login1"


def test_losing_it_is_told_once(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "RENEW_S", 0.01)
    first, told = on(tmp_path, "login1"), leases.threading.Event()
    first.take()
    first.keep(told.set)
    on(tmp_path, "login1").take()
    assert told.wait(30.0)
