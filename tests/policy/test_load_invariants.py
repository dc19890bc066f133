"""What holds for the load policy whatever happens to the box: streams of reviews, reboots and vetoes by hypothesis."""

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.model.codec import as_text, of_text
from supervisor.policy.level import load
from supervisor.policy.level.load import Cap, LoadSettings, LoadState
from supervisor.policy.level.worth import Costs

S, COSTS, TOP = LoadSettings(), Costs(), 5

reviews = st.tuples(
    st.just("review"), st.floats(0.0, 1200.0), st.one_of(st.none(), st.floats(0.1, 10.0)),
    st.sampled_from([5, 5, 5, 5, 3, 1, 0]),
)  # fmt: skip
reboots = st.tuples(st.just("reboot"), st.floats(0.0, 1200.0), st.sampled_from([0.0, 0.5, 1.0, 1.0]), st.just(5))
runs = st.tuples(st.just("run"), st.integers(1, 12), st.floats(0.5, 3.0), st.just(5))  # reviews in a row, to get somewhere
streams = st.lists(st.one_of(reviews, reboots, runs, runs), max_size=60)


def steps(stream, start):
    """(state before, event, at_s, state after, verdict) for each event of a stream."""
    state, at_s = load.begin(6, start), 0.0
    for kind, number, value, cap in stream:
        if kind == "run":
            for _ in range(number):
                at_s += 600.0
                event = ("review", 600.0, value * (1 + 0.2 * state.level), 5)
                after, verdict = load.reviewed(S, COSTS, state, at_s=at_s, up_s=600.0, reading=event[2], cap=Cap(5))
                yield state, event, at_s, after, verdict
                state = after
            continue
        at_s += number + 210.0 * (kind == "reboot")
        if kind == "review":
            after, verdict = load.reviewed(S, COSTS, state, at_s=at_s, up_s=number, reading=value, cap=Cap(cap, "vetoed"))
        else:
            after, verdict = load.rebooted(S, COSTS, state, at_s=at_s, up_s=number, weight=value)
        yield state, (kind, number, value, cap), at_s, after, verdict
        state = after


@settings(max_examples=40, deadline=None)
@given(streams, st.integers(0, TOP))
def test_the_invariants(stream, start):
    last_blamed_s = -1e9
    for before, (kind, up_s, value, cap), at_s, after, verdict in steps(stream, start):
        assert verdict.why
        assert 0 <= after.level <= TOP
        assert (verdict.level, verdict.trial) == (after.level, after.trial is not None)
        assert after.trial is None or after.trial == after.home + 1
        if kind == "reboot":
            a_reboot(before, value, up_s, at_s, after)
            last_blamed_s = at_s if value else last_blamed_s
        else:
            a_review(before, cap, at_s, after, last_blamed_s)


def a_reboot(before, weight, up_s, at_s, after):
    level = before.level
    assert after.level <= level
    assert all(after.known[k].reboots == before.known[k].reboots for k in range(6) if k != level)
    if weight == 0.0:
        assert (after.home, after.trial) == (before.home, before.trial)
        assert [k.failures for k in after.known] == [k.failures for k in before.known]
        assert [k.next_trial_s for k in after.known] == [k.next_trial_s for k in before.known]
        assert after.known[level].reboots == before.known[level].reboots
        return
    quiet = load.learned(before, at_s=at_s, up_s=up_s, reading=None)
    assert load.rate(after, level) >= load.rate(quiet, level)
    if before.trial is not None:
        assert after.trial is None
        assert after.level < before.trial


def a_review(before, cap, at_s, after, last_blamed_s):
    assert after.level <= cap
    assert [k.failures for k in after.known if k.failures] == [k.failures for k in before.known if k.failures] or (
        sum(k.failures for k in after.known) < sum(k.failures for k in before.known)
    )
    if after.level > before.level:
        assert after.level == before.level + 1
        assert before.known[after.level].next_trial_s <= at_s
        assert at_s - last_blamed_s >= S.climb_s


@settings(max_examples=12, deadline=None)
@given(streams, st.integers(0, TOP))
def test_the_same_events_give_the_same_decisions_also_after_a_restart(stream, start):
    once = [(verdict, after) for *_, after, verdict in steps(stream, start)]
    again = [(verdict, of_text(LoadState, as_text(after))) for *_, after, verdict in steps(stream, start)]
    assert once == again


@settings(max_examples=40, deadline=None)
@given(streams, st.integers(0, TOP), st.integers(0, TOP), st.integers(0, TOP))
def test_more_reboots_at_a_level_never_make_it_more_attractive(stream, start, level, than):
    state = load.begin(6, start)
    for *_, after, _ in steps(stream, start):
        state = after
    known = state.known[level]
    worse = load._with(state, level, known._replace(reboots=known.reboots + 1.0))
    if level != than:
        assert load.advantage(S, COSTS, worse, level, than) <= load.advantage(S, COSTS, state, level, than)


@settings(max_examples=30, deadline=None)
@given(streams)
def test_quiet_time_never_makes_a_level_look_worse(stream):
    for before, (kind, up_s, _, _), at_s, _, _ in steps(stream, 0):
        if kind == "review":
            after = load.learned(before, at_s=at_s, up_s=up_s, reading=None)
            assert load.rate(after, before.level) <= load.rate(before, before.level)


def test_when_all_levels_above_light_turn_bad_a_dozen_reboots_lead_to_light():
    for died_after_min in (2, 8, 18):
        state, at_s = load.begin(6, TOP), 0.0
        for _ in range(3 * 144):
            at_s += 600.0
            state, _ = load.reviewed(S, COSTS, state, at_s=at_s, up_s=600.0, reading=1.0 + 0.3 * state.level, cap=Cap(TOP))
        reboots = 0
        while state.level > 0:
            for _ in range(died_after_min // 10):
                at_s += 600.0
                state, _ = load.reviewed(
                    S, COSTS, state, at_s=at_s, up_s=600.0, reading=1.0 + 0.3 * state.level, cap=Cap(TOP)
                )
            at_s += died_after_min % 10 * 60.0 + 210.0
            state, _ = load.rebooted(S, COSTS, state, at_s=at_s, up_s=died_after_min % 10 * 60.0, weight=1.0)
            reboots += 1
            assert reboots <= 20
