"""What the state keeps of facts that come again and again: the newest ones, so that a snapshot stays small."""

import pytest
import removable
from core_kit import WALL_S

from supervisor.model import facts
from supervisor.model.facts import Stamped
from supervisor.model.fold import fold_all


def alert(number, program="Pong"):
    return facts.AlertRaised("why", f"a{number}", "fatal", "critical", program, ("command",), 1.0)


def rebooted(number, level="light"):
    return facts.HostRebooted("why", "a", "b", "unclean", "", 60.0, float(number), level, (), {})


BEGUN = (facts.ProgramConfigured("new", "Pong", "d"), facts.SpawnIntended("s", "Pong", "t", 1, "d", "light"))
KEPT = {  # what: (how many, the facts about number n, what is left of them in the state)
    "deliveries of alerts": (
        20, lambda n: (alert(n), facts.AlertDelivered("why", f"a{n}", "command")),
        lambda state: [int(each.id[1:]) for each in state.alerts.deliveries],
    ),
    "programs that alerts were about": (
        500, lambda n: (alert(n, f"P{n}"), facts.AlertDelivered("why", f"a{n}", "command")),
        lambda state: [int(key.rpartition("P")[2]) for key in state.alerts.gone.last_s],
    ),
    "ends of backups": (
        20, lambda n: (facts.BackupFailed("why", f"b{n}", "EIO"),), lambda state: [int(end.name[1:]) for end in state.backups.ends],
    ),
    "reboots": (200, lambda n: (rebooted(n),), lambda state: [int(each.up_s) for each in state.reboots]),
    "uptimes of a level": (50, lambda n: (rebooted(n),), lambda state: [int(each) for each in state.levels["light"].uptimes_s]),
    "costs of changes of level": (
        20, lambda n: (facts.LevelSettled("why", "light", 1.0, float(n)),), lambda state: [int(each) for each in state.climb.costs_s],
    ),
    "boxes before this one": (
        10, lambda n: (facts.BoxIdentified("why", f"box{n}", {"machine": str(n)}, another=True),),
        lambda state: [int(each.hostname[3:] or -1) + 1 for each in state.former_boxes],
    ),
    "damaged checkpoints": (
        20, lambda n: (*(BEGUN if n == 0 else ()), facts.CheckpointBad("why", "Pong", "t", str(n), "torn")),
        lambda state: [int(each) for each in state.programs["Pong"].ckpt.bad],
    ),
}  # fmt: skip


OF = {"deliveries of alerts": "alerts", "programs that alerts were about": "alerts", "ends of backups": "backups"}


@pytest.mark.parametrize("what", KEPT)
def test_the_newest_are_kept_and_no_more(what):
    if what in OF:
        removable.need(OF[what])
    most, facts_about, left = KEPT[what]
    stamped = [Stamped(0, float(n), WALL_S + n, "boot", fact) for n in range(most + 3) for fact in facts_about(n)]
    assert left(fold_all(stamped)) == [*range(3, most + 3)]


def test_clocks_that_were_set_are_kept_for_the_newest_boots():
    stamped = [Stamped(0, float(n), WALL_S + n, f"boot-{n}", facts.ClockSet("why", float(n))) for n in range(53)]
    assert fold_all(stamped).clock_steps == {f"boot-{n}": float(n) for n in range(3, 53)}
