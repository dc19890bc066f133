"""The table of features: a feature that is not configured takes no part in a turn, and each reason not to start is shown."""

from core_kit import Core, settings

from supervisor.deciding.context import DecisionContext
from supervisor.deciding.features import FEATURES
from supervisor.model.inputs import FoundationsLooked
from supervisor.policy.box.foundations import Finding, Look

HOOKS = ("held", "order", "verdict", "ended", "follows", "pursue", "conclude", "holds_end")


def test_a_feature_that_is_not_configured_takes_no_part_in_a_turn():
    core = Core(settings("Pong"))
    core.begin()
    context = DecisionContext(core.settings, core.state, core.memory, core.now_s, 0.0, "boot-1", FEATURES)
    parts = [hook.__module__ for name in HOOKS for hook in context.hooks(name)]
    assert set(parts) <= {"supervisor.features.alerts.decide"}, "any fact may raise an alert"


def test_each_reason_not_to_start_is_remembered_once():
    core = Core(settings("Pong"))
    core.begin()
    dead = Finding("state directory", "/state", Look.REPLACED, "it is on another file system", holds_starts=True)
    core.give(FoundationsLooked(core.now_s + 1.0, (dead,)))
    (held,) = core.memory.held
    assert (held.by, held.programs, held.until_s) == ("foundations", None, None)
    core.give(FoundationsLooked(core.now_s + 1.0, ()))
    assert core.memory.held == ()


def test_a_section_without_a_repository_makes_no_copies():
    from supervisor.features.offsite.settings import OffsiteSettings

    core = Core(settings("Pong", offsite=OffsiteSettings(every_s=60.0)))
    core.begin()
    context = DecisionContext(core.settings, core.state, core.memory, core.now_s, 0.0, "boot-1", FEATURES)
    assert context.copies is None
