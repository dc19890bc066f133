"""Presets: one word that sets the load and the effort of PPO, from a laptop to a large GPU.

| preset | environments | steps of a rollout | batch | epochs, at most |
|---|---|---|---|---|
| fast | 16 | 256 | 2,048 | 15 |
| heavy | 32 | 256 | 4,096 | 20 |
| beast | 64 | 512 | 8,192 | 30 |

A preset gives defaults: explicit settings win. So many epochs over one rollout would move a pixel policy far away from
the policy that played it. Therefore each preset ends a rollout's epochs once the policy has moved by a KL of 0.02.
Worked example: preset = "heavy" and epochs = 4: 32 environments x 256 steps, batch 4,096, 4 epochs.

Standard library only, like the table of options beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PRESET_ALGORITHM: Final = "ppo"
_TARGET_KL: Final = 0.02

PRESETS: Final[dict[str, dict[str, int | float]]] = {
    "fast": {"num_envs": 16, "n_steps": 256, "batch_size": 2048, "epochs": 15, "target_kl": _TARGET_KL},
    "heavy": {"num_envs": 32, "n_steps": 256, "batch_size": 4096, "epochs": 20, "target_kl": _TARGET_KL},
    "beast": {"num_envs": 64, "n_steps": 512, "batch_size": 8192, "epochs": 30, "target_kl": _TARGET_KL},
}


def preset_values(given: Mapping[str, object]) -> dict[str, int | float | str]:
    """The settings that the preset in `given` adds to `given`; empty without a (known) preset.

    A given algorithm stays, and `check_together` refuses it if it does not fit; the preset replaces `auto`.
    """
    preset = PRESETS.get(str(given.get("preset")))
    if preset is None:
        return {}
    algo = {"algo": PRESET_ALGORITHM} if given.get("algo") in (None, "auto") else {}
    return {**algo, **{key: value for key, value in preset.items() if given.get(key) is None}}


def batch_limit(given: Mapping[str, object], otherwise: int) -> int:
    """The most that `batch_size = "auto"` may take: the preset's batch, or `otherwise` (the level's)."""
    preset = PRESETS.get(str(given.get("preset")))
    return otherwise if preset is None else int(preset["batch_size"])
