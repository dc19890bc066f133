"""Stories of the climb: a box that dies at heavy, pins, a clock that is stepped, a host that is suspended in a trial."""

import itertools

from ladder import climbing
from world import CALM, Ending, Phase, Verb, World

from supervisor.model import facts, level_memory
from supervisor.model.inputs import Asked, ClockMoved

DIES_S = 1020.0  # 17 minutes of heavy


def box(seed=1, scripts=0, apart=(), **load):
    """Four programs on a ladder of 1, 2 and 3 slots; heavy asks for more environments, so that it restarts everyone.

    The last `scripts` are silent scripts of a user's own. Those in `apart` take nothing of the level.
    """
    world = World(seed, programs=4, slots=1, odds=CALM, look_s=10.0, scripts=scripts)
    world.configured = climbing(world.configured, apart, **load)
    return world.begin()


def level(world):
    return world.core.state.level


def changes(world):
    """When which level was put in force; the end of a trial is no change."""
    chosen = [(item.at_s, item.fact) for item in world.core.journal if isinstance(item.fact, facts.LevelChosen)]
    return [(at_s, fact.level) for at_s, fact in chosen if fact.level != fact.before]


def told(world, kind):
    return [item.fact for item in world.core.journal if isinstance(item.fact, kind)]


def live(world, hours, dies_at="heavy"):
    """So many hours on a box that goes down after 17 minutes at that level."""
    for _ in range(round(hours * 60)):
        world.run(60.0)
        since_s = world.core.state.climb.level_since_s
        if level(world) == dies_at and world.core.loop.clock.now_s() - since_s >= DIES_S and world.daemon:
            world.reboot(down_s=180.0)
    return world


def until(world, wanted, hours=6):
    for _ in range(round(hours * 60)):
        if level(world) == wanted:
            return world
        world.run(60.0)
    raise AssertionError(f"still at {level(world)}: {world.core.state.climb.said}")


def test_a_box_that_dies_at_heavy_is_kept_at_what_holds_and_tries_again_ever_less_often():
    world = live(box(), 16)
    tried = [at_s for at_s, name in changes(world) if name == "heavy"]
    judged = told(world, facts.RebootJudged)
    assert len(tried) == len(judged)
    assert 3 <= len(tried) <= 5
    gaps = [later - sooner for sooner, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps), "it rests twice as long after each"
    assert gaps[0] >= 7200.0
    assert all((fact.level, fact.weight) == ("heavy", 1.0) for fact in judged)
    assert level(world) in {"medium", "heavy"}
    assert level_memory.known(world.core.state).home == 1
    assert all(program.restarts == 0 for program in world.core.state.programs.values())
    assert "failed its trial after 1" in judged[-1].why


def test_a_box_that_bears_all_stays_at_the_top():
    world = live(box(), 6, dies_at="")
    assert level(world) == "heavy"
    assert not world.core.state.climb.trial
    assert [name for _, name in changes(world)][:3] == ["light", "medium", "heavy"]


def test_a_pin_holds_against_the_rule_through_kills_and_reboots():
    world = until(box(), "medium")
    world.requests += 1
    world.waiting[world.requests] = world.daemon
    world.post(Asked(0.0, Verb.PIN, world.requests, ("medium",), by="alice", for_s=6 * 3600.0))
    world.run(3600.0)
    world.kill_daemon()
    world.run(3600.0)
    world.reboot(down_s=180.0)
    world.run(3.5 * 3600.0)
    assert level(world) == "medium"
    assert world.core.state.climb.pin is not None
    until(world, "heavy", hours=2)
    assert told(world, facts.LevelUnpinned)[0].by == "the clock"


def test_a_clock_that_is_stepped_changes_no_trial():
    plain, stepped = until(box(), "medium"), until(box(), "medium")
    stepped.core.wall_offset_s += 3600.0
    stepped.post(ClockMoved(0.0, 3600.0))
    plain.run(900.0)
    stepped.run(900.0)
    stepped.core.wall_offset_s -= 7200.0
    stepped.post(ClockMoved(0.0, -7200.0))
    plain.run(3 * 3600.0)
    stepped.run(3 * 3600.0)
    assert [name for _, name in changes(plain)] == [name for _, name in changes(stepped)]
    for (at_s, _), (other_s, _) in zip(changes(plain), changes(stepped), strict=True):
        assert abs(at_s - other_s) <= 30.0


def test_no_trial_is_passed_by_a_host_that_sleeps():
    world = until(box(), "medium")
    world.run(300.0)
    world.suspend_host(2 * 3600.0)
    world.run(120.0)
    assert level(world) == "medium"
    assert world.core.state.climb.trial, "five minutes of training are none the more for two hours of sleep"
    reviewed = [fact for fact in told(world, facts.Reviewed) if fact.level == "medium"]
    assert sum(fact.up_s for fact in reviewed) < 900.0


def test_a_finished_game_hands_its_slot_on_at_once():
    world = until(box(), "medium")
    world.run(120.0)
    (first, *_) = sorted(name for name, program in world.core.state.live.items() if program.phase is Phase.RUNNING)
    token = world.core.state.programs[first].attempt.token
    waiting = {name for name, program in world.core.state.programs.items() if program.phase is Phase.QUEUED}
    world.end(token, Ending(code=0))
    world.run(2.0)
    assert world.core.state.programs[first].phase is Phase.DONE
    assert waiting & world.core.state.live.keys()


def stops(world, name):
    return [fact.reason for fact in told(world, facts.StopIntended) if fact.program == name]


def test_a_script_moves_with_the_levels_through_reboots_and_one_that_takes_nothing_of_them_is_left_alone():
    world = live(box(scripts=2, apart=("P2",)), 2)
    assert [name for _, name in changes(world)][:4] == ["light", "medium", "heavy", "medium"]
    assert [fact.weight for fact in told(world, facts.RebootJudged)] == [1.0]
    assert "level" in stops(world, "P0"), "it takes the level's values, so it is asked to save and leave"
    assert "level" not in stops(world, "P2")
    assert sum(fact.program == "P2" for fact in told(world, facts.SpawnIntended)) == 2, "once, and after the reboot"
    assert all(program.restarts == 0 for program in world.core.state.programs.values())


def test_scripts_that_take_nothing_of_the_level_prove_none_and_no_reboot_is_charged():
    names = ("P0", "P1", "P2", "P3")
    world = box(scripts=4, apart=names)
    world.run(3600.0)
    world.reboot(down_s=180.0)
    world.run(600.0)
    assert [name for _, name in changes(world)] == ["light"]
    assert not told(world, facts.Reviewed)
    assert [(fact.weight, fact.up_s) for fact in told(world, facts.RebootJudged)] == [(0.0, 0.0)]
    assert level_memory.known(world.core.state).known[0].up_s == 0.0
