"""A ladder of three levels for a simulated box that climbs."""

from dataclasses import replace

from supervisor.model.settings import Level, Rung
from supervisor.policy.level.load import CLIMB, LoadSettings

NAMES = ("light", "medium", "heavy")


def climbing(configured, apart=(), **load):
    """These settings on a ladder of 1, 2 and 3 slots; heavy asks for more environments, so that it restarts everyone.

    The programs in `apart` take nothing of the level.
    """
    specs = configured.programs
    heavy = tuple(spec if spec.name in apart else replace(spec, digest=f"{spec.name}-heavy") for spec in specs)
    levels = [Level(name, slots=slots) for slots, name in enumerate(NAMES, 1)]
    ladder = tuple(Rung(level, heavy if level.name == "heavy" else specs) for level in levels)
    ladder = tuple(
        replace(
            rung, programs=tuple(replace(spec, own_digest="" if spec.name in apart else spec.name) for spec in rung.programs)
        )
        for rung in ladder
    )
    return replace(
        configured, level=levels[0], programs=ladder[0].programs, ladder=ladder, load=LoadSettings(mode=CLIMB, **load)
    )  # fmt: skip
