"""Turn the figures of a beat into recorded illnesses and their actions (`policy/worker/health.py`)."""

from __future__ import annotations

from supervisor.deciding.attempts import stop
from supervisor.deciding.context import DecisionContext
from supervisor.formats import span
from supervisor.model import facts
from supervisor.model.inputs import Sample
from supervisor.model.memory import IllnessSpell, Observation
from supervisor.model.state import Attempt
from supervisor.policy.worker import health
from supervisor.policy.worker.health import HealthSettings, Returns
from supervisor.records import replace


def note(context: DecisionContext, name: str) -> None:
    """Begin, record or end an episode of each illness, by a sample with new progress."""
    watch = context.memory.watches[name]
    if watch.sample.phase != "training":
        return
    for illness in health.ILLNESSES:
        sick = judge(context.settings.health, illness, watch.sample)
        if sick is False:
            watch, (_, attempt) = context.memory.watches[name], context.present(name)
            spells = {key: spell for key, spell in watch.spells.items() if key != illness}
            well_at = watch.well_at if watch.sample.steps is None else {**watch.well_at, illness: watch.sample.steps}
            context.keep_observation(name, replace(watch, spells=spells, well_at=well_at))
            if illness in attempt.illnesses:
                context.record(
                    facts.Healed(f"healthy again ({illness}): {figures(watch.sample)}", name, attempt.token, illness)
                )
        else:
            _goes_on(context, name, illness, began=sick is True)


def judge(settings: HealthSettings, illness: str, sample: Sample) -> bool | None:
    """Apply one rule to one sample. Returns True: sick, False: well, None: neither, or unknown."""
    figure = sample.figures.get
    returns = Returns(figure("mean_return"), figure("best_return"), figure("first_return"), figure("best_spread"))
    if illness == health.EXPLODING:
        return health.exploding(settings, q_max_abs=figure("q_max_abs"), bound=figure("q_bound"))
    if illness == health.COLLAPSED:
        return health.collapsed(settings, returns, share=figure("entropy_share"))
    return health.falling(settings, returns)


def _goes_on(context: DecisionContext, name: str, illness: str, *, began: bool) -> None:
    watch, (_, attempt) = context.memory.watches[name], context.present(name)
    spell = watch.spells.get(illness)
    if spell is None:
        if began:
            spell = IllnessSpell(context.now_s, watch.sample.episodes)
            context.keep_observation(name, replace(watch, spells={**watch.spells, illness: spell}))
        return
    if illness in attempt.illnesses or attempt.stop is not None:
        return
    played = watch.sample.episodes
    games = None if played is None or spell.episodes is None else played - spell.episodes
    for_s = context.now_s - spell.since_s
    if not health.lasted(context.settings.health, illness, for_s=for_s, games=games):
        return
    spec = context.settings.program(name)
    action = health.action(context.settings.health, illness, None if spec is None else spec.on_sick)
    how_long = f"for {span(for_s)}" if games is None else f"for {span(for_s)} and {games:,} games"
    why = f"{health.WORDS[illness]} {how_long}: {figures(watch.sample)}; {_ACTION_WORDS[action]}"
    evidence = {key: f"{value:.6g}" for key, value in _numbers(watch.sample).items() if value is not None}
    fine_step = watch.well_at.get(illness, attempt.resumed_step)
    context.record(facts.Sickened(why, name, attempt.token, illness, action, fine_step, evidence))
    if action != health.TELL:
        grace_s = 0.0 if action == health.ROLLBACK else None
        stop(context, *context.present(name), reason="sick", by="extralife", why=why, grace_s=grace_s)


_ACTION_WORDS = {
    health.TELL: "it trains on",
    health.ROLLBACK: "it is killed and rolled back",
    health.NEW_SEED: "it saves and restarts with another random seed",
    health.GIVE_UP: "it saves and is given up",
}


def _numbers(sample: Sample) -> dict[str, float | None]:
    return {words: sample.figures.get(name) for words, name in _EVIDENCE.items()}


_EVIDENCE = {
    "largest |Q|": "q_max_abs", "possible |Q|": "q_bound", "entropy share": "entropy_share", "mean return": "mean_return",
    "best return": "best_return", "first return": "first_return", "gradient norm": "grad_norm", "loss": "loss",
}  # fmt: skip


def figures(sample: Sample) -> str:
    """The known figures in one line: `largest |Q| 1200, possible |Q| 100, mean return 3`."""
    shown = ("largest |Q|", "possible |Q|", "entropy share", "mean return", "best return")
    numbers = _numbers(sample)
    return ", ".join(f"{key} {numbers[key]:.4g}" for key in shown if numbers[key] is not None) or "no figures known"


def is_well(watch: Observation, attempt: Attempt) -> bool:
    """Whether a checkpoint saved now counts as healthy: no illness, the newest loss finite, Q within its bound."""
    q, bound = (watch.sample.figures.get(name) for name in ("q_max_abs", "q_bound"))
    fine = not (watch.spells or attempt.illnesses or watch.losses.bad)
    return fine and (q is None or bound is None or q <= bound)
