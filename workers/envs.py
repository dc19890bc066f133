"""envpool's games behind one small interface: uint8 frames, checked actions, and a defined end of each episode.

Behaviour of envpool (1.2.5, measured):

* After a done the *next* call resets: its action is ignored, its reward 0. `Step` passes that on; the replay marks it.
* envpool does not check the range of actions: 10**6 segfaults, -100000 never returns. `send` checks them.
* `make` holds the GIL while it builds (75-80 ms of CPU an environment): no other thread runs meanwhile.
* Environments can't be saved. After a resume they are new, so their seeds must be new too (`env_seeds`). Otherwise every
  restart would play the same first minutes again.

**Lives.** A lost life ends an episode for the learner (terminated, as in Nature's DQN, CleanRL and rl-zoo: fast credit
for dying), but not the game: the frame stack continues, and returns are counted over whole games. Rewards are clipped to
their sign only for learning; reports show the game's own score.

**Import.** `import envpool` imports the registrations of 17 families (MuJoCo, Jumanji with matplotlib, ...): 0.63-0.75 s of
CPU at each start of a worker. Registering the two families that workers train takes 0.15 s (1.2.5, measured). The
registrations are listed in one module, `envpool.entry`, which the package imports first. An empty module in its place
prevents them. A version of envpool with another structure is imported completely.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from workers.options import FRAMES_PER_STEP

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LIST: Final = "envpool.entry"
_FAMILIES: Final = ("envpool.atari.registration", "envpool.toy_text.registration")


def _imported() -> Any:
    """The package. Raises ImportError, as `import envpool` does."""
    if "envpool" in sys.modules or _LIST in sys.modules:
        return importlib.import_module("envpool")
    sys.modules[_LIST] = ModuleType(_LIST)
    try:
        package = importlib.import_module("envpool")
        for family in _FAMILIES:
            importlib.import_module(family)
    except ImportError:
        for name in [
            name for name in sys.modules if name.partition(".")[0] == "envpool"
        ]:  # of an import that failed half-way
            del sys.modules[name]
        return importlib.import_module("envpool")
    finally:
        sys.modules.pop(_LIST, None)  # a later import gets the real module
    return package


envpool: Final = _imported()
_TOYS: Final = {"Catch": "Catch-v0"}
_ATARI_STACK: Final = 4
MOST_GAME_FRAMES: Final = 108_000  # 30 minutes of play, as in the literature; envpool's own bound is the same today


@dataclass(frozen=True, slots=True)
class Spec:
    """The properties of a game that networks and replays need."""

    game: str
    actions: int
    stack: int
    frame_shape: tuple[int, int]
    frames_per_step: int

    @property
    def atari(self) -> bool:
        """Whether it is an Atari game. There action 0 does nothing; the toys have no such action."""
        return self.game not in _TOYS


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one vector of actions in all environments; arrays are [num_envs, ...].

    `obs` comes after the action; `starts` marks the first observation of a game. After a reset the rest is zero.
    """

    obs: NDArray[np.uint8]  # [N, stack, H, W]
    starts: NDArray[np.bool_]
    rewards: NDArray[np.float32]  # for learning
    scores: NDArray[np.float32]  # the game's own points
    terminated: NDArray[np.bool_]  # no future to bootstrap from
    truncated: NDArray[np.bool_]  # cut by the time limit
    game_over: NDArray[np.bool_]  # a whole game has ended, by termination or truncation


def spec_of(game: str, resolution: int) -> Spec:
    """The `Spec` of a game, without building its environments."""
    made = envpool.make_spec(_task(game))
    actions = int(made.action_space.n)
    if game in _TOYS:
        height, width = made.observation_space.shape
        return Spec(game, actions, 1, (int(height), int(width)), 1)
    return Spec(game, actions, _ATARI_STACK, (resolution, resolution), FRAMES_PER_STEP)


def env_seeds(seed: int, attempt: int, env_steps: int, num_envs: int) -> list[int]:
    """One seed for each environment, from the run's seed, the attempt, and the step at which the environments are new."""
    return [int(word >> 1) for word in np.random.SeedSequence([seed, attempt, env_steps]).generate_state(num_envs)]


def make(spec: Spec, seeds: list[int], threads: int, *, learning: bool = True) -> Envs:
    """Build one environment for each seed: 75-80 ms of CPU each. `learning` False: whole games, no clipping, no no-ops."""
    options: dict[str, Any] = {}
    if spec.atari:
        height, width = spec.frame_shape
        options = {
            "stack_num": spec.stack, "frame_skip": spec.frames_per_step, "img_height": height, "img_width": width,
            "episodic_life": learning, "reward_clip": False,
            "max_episode_steps": MOST_GAME_FRAMES // spec.frames_per_step,
        }  # fmt: skip
        if not learning:
            options["noop_max"] = 1  # none: tests draw their own (`evaluate.py`)
    pool = envpool.make(
        _task(spec.game), env_type="gymnasium", num_envs=len(seeds), seed=seeds, num_threads=min(threads, len(seeds)),
        **options,
    )  # fmt: skip
    return Envs(pool, spec, len(seeds), clip=learning)


def _task(game: str) -> str:
    return _TOYS.get(game) or f"{game}-v5"


class Envs:
    """`num_envs` games that step together: `send`, then `recv`. Code between the two calls runs while they step."""

    def __init__(self, pool: Any, spec: Spec, num_envs: int, *, clip: bool) -> None:
        self.spec, self.num_envs = spec, num_envs
        self._pool, self._clip = pool, clip
        self._over = np.ones(num_envs, bool)  # the next observation may begin a game

    def reset(self) -> Step:
        """Begin new games in all environments, also in place of running ones; returns their first observations."""
        obs, _ = self._pool.reset()
        nothing, no = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool)
        self._over = no
        return Step(self._pixels(obs), np.ones(self.num_envs, bool), nothing, nothing, no, no, no)

    def send(self, actions: NDArray[np.integer[Any]]) -> None:
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= self.spec.actions:
            raise ValueError(f"actions must be {self.num_envs} numbers from 0 to {self.spec.actions - 1}, not {actions}")
        self._pool.send(actions.astype(np.int32))

    def recv(self) -> Step:
        obs, scores, terminated, truncated, info = self._pool.recv()
        done = terminated | truncated
        # The end of a whole game: Atari's info distinguishes it from a lost life; without lives every done is one.
        game_over = (info["terminated"] != 0) | truncated if "lives" in info else done
        starts = self._over & (info["elapsed_step"] == 0)
        self._over = done
        rewards = np.sign(scores) if self._clip and self.spec.atari else scores
        return Step(self._pixels(obs), starts, rewards, scores, terminated, truncated, game_over)

    def close(self) -> None:
        self._pool.close()

    def _pixels(self, obs: NDArray[Any]) -> NDArray[np.uint8]:
        if obs.dtype == np.uint8:
            return obs
        return (obs * 255.0).astype(np.uint8).reshape(self.num_envs, self.spec.stack, *self.spec.frame_shape)
