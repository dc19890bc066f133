"""Every setting of a built-in worker, in one table: name, type, default, bounds, environment name, meaning.

Standard library only: the daemon's config, the worker's command line, `extralife --check` and the docs read this same
table, so an option cannot exist in only one of them. Precedence: default < TOML < `RL_*` environment < flag.

An option `num_envs` is `num_envs` in TOML, `--num-envs` on the command line and `RL_NUM_ENVS` in the environment.

**Presets** set the load and the effort of PPO in one word, from a laptop to a large GPU:

| preset | environments | steps of a rollout | batch | epochs, at most |
|---|---|---|---|---|
| fast | 16 | 256 | 2,048 | 15 |
| heavy | 32 | 256 | 4,096 | 20 |
| beast | 64 | 512 | 8,192 | 30 |

A preset gives defaults: explicit settings win. So many epochs over one rollout would move a pixel policy far away from
the policy that played it. Therefore each preset ends a rollout's epochs once the policy has moved by a KL of 0.02.
Worked example: preset = "heavy" and epochs = 4: 32 environments x 256 steps, batch 4,096, 4 epochs.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# The Atari games that envpool 1.2 registers (as NAME-v5), with their ROMs inside the wheel.
GAMES: Final = tuple(
    """
    Adventure AirRaid Alien Amidar Assault Asterix Asteroids Atlantis Atlantis2 Backgammon BankHeist BasicMath BattleZone
    BeamRider Berzerk Blackjack Bowling Boxing Breakout Carnival Casino Centipede ChopperCommand CrazyClimber Crossbow
    Darkchambers Defender DemonAttack DonkeyKong DoubleDunk Earthworld ElevatorAction Enduro Entombed Et FishingDerby
    FlagCapture Freeway Frogger Frostbite Galaxian Gopher Gravitar Hangman HauntedHouse Hero HumanCannonball IceHockey
    Jamesbond JourneyEscape Kaboom Kangaroo KeystoneKapers KingKong Klax Koolaid Krull KungFuMaster LaserGates
    LostLuggage MarioBros MiniatureGolf MontezumaRevenge MrDo MsPacman NameThisGame Othello Pacman Phoenix Pitfall
    Pitfall2 Pong Pooyan PrivateEye Qbert Riverraid RoadRunner Robotank Seaquest SirLancelot Skiing Solaris SpaceInvaders
    SpaceWar StarGunner Superman Surround Tennis Tetris TicTacToe3d TimePilot Trondead Turmoil Tutankham UpNDown Venture
    VideoCheckers VideoChess VideoCube VideoPinball WizardOfWor WordZapper YarsRevenge Zaxxon
    """.split()
)
EXTRA_GAMES: Final = ("Catch",)  # envpool's Catch-v0: a 10x5 toy that a learner solves in seconds; for checks
FRAMES_PER_STEP: Final = 4  # game frames per step of an Atari game; a toy has 1

AUTO: Final = "auto"
SCHEDULERS: Final = ("none", "linear", "cosine", "step")
NETWORKS: Final = ("auto", "nature", "small")
DTYPES: Final = ("auto", "fp32", "bf16", "fp16")

Value = int | float | bool | str

PRESET_ALGORITHM: Final = "ppo"
_TARGET_KL: Final = 0.02

PRESETS: Final[dict[str, dict[str, int | float]]] = {
    "fast": {"num_envs": 16, "n_steps": 256, "batch_size": 2048, "epochs": 15, "target_kl": _TARGET_KL},
    "heavy": {"num_envs": 32, "n_steps": 256, "batch_size": 4096, "epochs": 20, "target_kl": _TARGET_KL},
    "beast": {"num_envs": 64, "n_steps": 512, "batch_size": 8192, "epochs": 30, "target_kl": _TARGET_KL},
}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The properties of an algorithm that worker and daemon need. The rest is in `workers/algorithms/NAME.py`."""

    replay: bool = False  # it learns from a replay; else from rollouts
    lr: float = 2.5e-4
    lr_batch: int | None = None  # the batch that `lr` was tuned for; `lr` grows with the batch's square root up to `MOST_LR`
    max_grad_norm: float = 10.0


MOST_LR: Final = 3e-4
ALGORITHMS: Final = {
    "dqn": Algorithm(replay=True, lr=6.25e-5, lr_batch=32),
    "pqn": Algorithm(),
    "ppo": Algorithm(max_grad_norm=0.5),
}
ON_POLICY: Final = tuple(name for name, row in ALGORITHMS.items() if not row.replay)
_WITH_REPLAY: Final = tuple(name for name in ALGORITHMS if name not in ON_POLICY)
_ALGORITHMS_TEXT: Final = f"{' or '.join(_WITH_REPLAY)} (replay), {' or '.join(ON_POLICY)} (rollouts)"


def defaults_of(algo: str) -> Algorithm:
    """The row of an algorithm. For `auto`, which the worker replaces at its start, a row of defaults."""
    return ALGORITHMS.get(algo, Algorithm())


def _own(text_of: Callable[[Algorithm], str]) -> str:
    """The text of a default that depends on the algorithm: `10, for ppo 0.5`."""
    usual = text_of(Algorithm())
    return ", for ".join((usual, *(f"{name} {text_of(row)}" for name, row in ALGORITHMS.items() if text_of(row) != usual)))


def _lr(row: Algorithm) -> str:
    return f"{row.lr:g}" if row.lr_batch is None else f"{row.lr:g} * sqrt(batch / {row.lr_batch}), at most {MOST_LR:g}"


@dataclass(frozen=True, slots=True)
class Option:
    """One setting. `low`/`high` are inclusive bounds."""

    name: str
    kind: type[int | float | bool | str]
    default: Value | None
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    env: str = ""  # the RL_* name when it is not simply RL_ + NAME
    words: tuple[str, ...] = ()  # words that are allowed in place of a number

    @property
    def env_name(self) -> str:
        return self.env or f"RL_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def kind_name(self) -> str:
        return " or ".join((_KIND_NAMES[self.kind], *self.words))

    def parse(self, text: str) -> Value:
        """A string from the environment or the command line. Raises ValueError with one clear sentence."""
        text = text.strip()
        return text.lower() if text.lower() in self.words else self.check(_from_text(self, text))

    def check(self, value: object) -> Value:
        """A value from TOML, or a parsed one. Raises ValueError with one clear sentence."""
        if isinstance(value, str) and value in self.words:
            return value
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise ValueError(f"{self.name} must be {self.kind_name}, not {value!r}")
        if self.choices and value not in self.choices:
            raise ValueError(
                f"{self.name} must be one of {', '.join(self.choices)}, not {value!r}{nearest(str(value), self.choices)}"
            )
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_bounds(value)
        return value

    def _check_bounds(self, value: float) -> None:
        if isinstance(value, int) and abs(value) >= 2**63:  # comparing or converting a longer integer may raise
            raise ValueError(f"{self.name} does not fit into 64 bits; write a smaller number")
        if not isinstance(value, int) and not math.isfinite(value):
            raise ValueError(f"{self.name} must be finite, not {value!r}")
        if self.low is not None and value < self.low:
            raise ValueError(f"{self.name} must be at least {self.low:g}, not {value!r}")
        if self.high is not None and value > self.high:
            raise ValueError(f"{self.name} must be at most {self.high:g}, not {value!r}")


def _from_text(option: Option, text: str) -> Value:
    """Raises ValueError."""
    try:
        if option.kind is bool:
            return _WORDS[text.lower()]
        return int(text.replace("_", "")) if option.kind is int else option.kind(text)
    except (KeyError, ValueError):
        raise ValueError(f"{option.name} must be {option.kind_name}, not {text!r}") from None


_KINDS: Final[dict[str, type[int | float | bool | str]]] = {kind.__name__: kind for kind in (int, float, bool, str)}
_WORDS: Final = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_KIND_NAMES: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


def _option(default: Value | None, meaning: str, **more: Any) -> Any:
    """A field of `Settings`; `more` are fields of `Option`."""
    return field(metadata={"default": default, "help": meaning, **more})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting of one training. The types are those of resolved values (`args.py`)."""

    # what is trained, and for how long
    game: str = _option(
        None, "Atari game, by envpool's name without -v5; the program's name when not given", choices=GAMES + EXTRA_GAMES
    )
    algo: str = _option(
        "dqn", f"learning algorithm: {_ALGORITHMS_TEXT}; auto: by memory and level", choices=(*ALGORITHMS, AUTO)
    )
    preset: str | None = _option(None, "ppo's load and effort in one word; explicit settings win", choices=tuple(PRESETS))
    seed: int = _option(
        1, "seed of networks, exploration, replay sampling and (with the attempt) environments", low=0, high=2**31 - 1
    )
    episodes: int | None = _option(None, "stop after this many training episodes", low=1)
    steps: int | None = _option(None, "stop after this many environment steps (1 step = 4 frames)", low=1)
    hours: float | None = _option(None, "stop after so many hours of training, over all attempts", low=0.0001, high=1e6)
    resolution: int = _option(84, "side of the square frames in pixels", low=32, high=128)
    network: str = _option(
        "auto", "nature (32, 64, 64, 512 wide) or small (16, 32, 32, 128); auto: small below 60 pixels", choices=NETWORKS
    )
    deterministic: bool = _option(False, "the same bits from the same seed and threads, whatever it costs")
    # load
    num_envs: int = _option(None, "parallel environments; the level's when not given", low=1, high=4096)
    batch_size: int = _option(
        None, "transitions per update; the level's when not given; auto: at most that, and valid", low=1, high=65536,
        words=(AUTO,),
    )  # fmt: skip
    fallback_batch: int | None = _option(
        None, "batch after the first time out of memory; when not given the next that divides", low=1, high=65536
    )
    threads: int = _option(None, "CPU threads of torch and of envpool; cores / slots if not given", low=1, high=1024)
    device: str = _option("auto", "auto (CUDA if there is one), cpu, cuda, cuda:N")
    dtype: str = _option(
        "auto", "autocast type; auto: bf16 where the device has it, else fp16 on CUDA, fp32 on CPU", choices=DTYPES
    )
    cuda_graphs: bool = _option(
        True, "CUDA: record the launches of an update and of an action, and replay them; never for fp16"
    )
    # learning
    replay_ratio: float = _option(8.0, "transitions learned per environment step made", low=0.0, high=512.0)
    replay_size: int = _option(1_000_000, "transitions kept (7.1 kB each at 84x84)", low=1_000)
    learning_starts: int = _option(20_000, "environment steps before the first update", low=0)
    use_double_dqn: bool = _option(True, "Double DQN targets (van Hasselt et al. 2016)")
    dueling: bool = _option(False, "dqn: state value and advantages in two streams (Wang et al. 2016)")
    n_step: int = _option(3, "steps of the multi-step return (Sutton 1988)", low=1, high=20)
    gamma: float = _option(0.99, "discount factor", low=0.0, high=1.0)
    lr: float = _option(None, f"learning rate; when not given {_own(_lr)}", low=0.0, high=1.0)
    lr_scheduler: str = _option("none", "learning-rate schedule over environment steps", choices=SCHEDULERS)
    scheduler_tmax: int = _option(10_000_000, "environment steps of the line, or of the cosine's half-period", low=1)
    min_lr: float = _option(0.0, "lowest learning rate of the linear and the cosine schedule", low=0.0, high=1.0)
    step_lr_step_size: int = _option(1_000_000, "environment steps between two decays of the step schedule", low=1)
    step_lr_gamma: float = _option(0.5, "factor of one decay of the step schedule", low=0.0, high=1.0)
    target_period: int = _option(8_000, "environment steps between two copies to the target network", low=1)
    epsilon_steps: int = _option(250_000, "environment steps in which exploration falls from 1 to epsilon_final", low=1)
    epsilon_final: float = _option(0.01, "exploration after that", low=0.0, high=1.0)
    max_grad_norm: float = _option(
        None, f"gradient norm clip, 0: none; when not given {_own(lambda row: f'{row.max_grad_norm:g}')}", low=0.0
    )
    # learning from rollouts: pqn and ppo
    n_steps: int = _option(128, "vector steps of one rollout", low=1, high=65536)
    epochs: int = _option(4, "passes over each rollout", low=1, high=100)
    q_lambda: float = _option(0.65, "pqn: lambda of the returns (Gallici et al. 2024)", low=0.0, high=1.0)
    gae_lambda: float = _option(0.95, "ppo: lambda of the advantages (Schulman et al. 2016)", low=0.0, high=1.0)
    clip: float = _option(0.1, "ppo: how far a probability ratio may move and still gain", low=0.0, high=10.0)
    ent_coef: float = _option(0.01, "ppo: weight of the entropy", low=0.0, high=10.0)
    vf_coef: float = _option(0.5, "ppo: weight of the value loss", low=0.0, high=100.0)
    target_kl: float = _option(0.0, "ppo: end a rollout's epochs once the policy moved by more; 0: never", low=0.0)
    # records
    num_test_episodes: int = _option(0, "greedy test episodes of each test; 0: none", low=0, high=10_000)
    test_period: int = _option(0, "environment steps between two tests; 0: one, once the target is reached", low=0)
    tensorboard: bool = _option(True, "write curves for TensorBoard into the run directory")


OPTIONS: Final[dict[str, Option]] = {
    each.name: Option(each.name, _KINDS[str(each.type).partition(" ")[0]], **each.metadata) for each in fields(Settings)
}


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?` for the nearest known word, or nothing. Case is ignored."""
    lower = {item.lower(): item for item in known}
    found = difflib.get_close_matches(word.lower(), list(lower), n=1, cutoff=0.6)
    return f"; did you mean {lower[found[0]]}?" if found else ""


def from_environment(environ: Mapping[str, str]) -> tuple[dict[str, Value], list[str]]:
    """(values, errors) of the `RL_*` variables; an unknown `RL_` name is an error that names the nearest known one."""
    by_env = {option.env_name: option for option in OPTIONS.values()}
    values: dict[str, Value] = {}
    errors: list[str] = []
    for name in sorted(environ):
        if not name.startswith("RL_"):
            continue
        option = by_env.get(name)
        if option is None:
            errors.append(f"environment variable {name} is not a setting{nearest(name, by_env)}")
            continue
        try:
            values[option.name] = option.parse(environ[name])
        except ValueError as error:
            errors.append(f"environment variable {name}: {error}")
    return values, errors


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


BATCH_MULTIPLE: Final = 8  # tensor cores and AMX tiles work on rows of 8; any other batch costs as much as the next multiple


def largest_valid_divisor(rows: int, at_most: int) -> int | None:
    """The largest batch up to `at_most` that is a multiple of 8 and divides `rows`; None: there is none.

    Example: 8 environments x 128 steps are 1,024 rows: at most 500 gives 256. 12 x 20 are 240: at most 56 gives 48.
    """
    first = min(at_most, rows) // BATCH_MULTIPLE * BATCH_MULTIPLE
    return next((size for size in range(first, 0, -BATCH_MULTIPLE) if rows % size == 0), None)


def valid_batch(values: Mapping[str, object], at_most: int) -> int:
    """The largest valid batch up to `at_most` for these settings. Without one it is `at_most`, which is refused later."""
    envs, steps = values.get("num_envs"), values.get("n_steps")
    if values.get("algo") in ON_POLICY and isinstance(envs, int) and isinstance(steps, int):
        return largest_valid_divisor(envs * steps, at_most) or at_most
    return at_most // BATCH_MULTIPLE * BATCH_MULTIPLE or at_most


def check_together(values: Mapping[str, object]) -> list[str]:
    """Conflicts between options that are valid on their own; one sentence each. Missing options are not checked.

    For `algo = "auto"` it checks only the rules of all algorithms; the worker checks the rest after its choice.
    Example: batch_size 33 -> "batch_size 33 does not divide by 8; the nearest that do are 32 and 40".
    """
    errors = [
        f"{key} {batch} does not divide by {BATCH_MULTIPLE}; the nearest that do are {_near_multiples(batch)}"
        for key in _BATCHES if isinstance(batch := values.get(key), int) and batch % BATCH_MULTIPLE
    ]  # fmt: skip
    algo, preset = values.get("algo"), values.get("preset")
    if preset is not None and algo is not None and algo != PRESET_ALGORITHM:
        errors.append(f"preset {preset} is for {PRESET_ALGORITHM}, not for {algo}; leave out preset or algo")
    if algo == AUTO:
        return errors
    return errors + (_check_rollout(values) if algo in ON_POLICY else _check_replay(values))


_BATCHES: Final = ("batch_size", "fallback_batch")


def _near_multiples(batch: int) -> str:
    below = batch - batch % BATCH_MULTIPLE
    return f"{below} and {below + BATCH_MULTIPLE}" if below else f"{below + BATCH_MULTIPLE}"


def _check_replay(values: Mapping[str, object]) -> list[str]:
    errors = []
    batch, replay, envs = values.get("batch_size"), values.get("replay_size"), values.get("num_envs")
    if isinstance(batch, int) and isinstance(replay, int) and batch > replay:
        errors.append(f"batch_size {batch} is more than replay_size {replay}; learning could never begin")
    if isinstance(envs, int) and isinstance(replay, int) and envs * 16 > replay:
        errors.append(
            f"replay_size {replay} holds less than 16 steps of {envs} environments; at least {envs * 16} is needed"
        )
    return errors


def _check_rollout(values: Mapping[str, object]) -> list[str]:
    """The batch must divide the rollout. Otherwise some steps would be learned from more often than others.

    Example: 8 environments x 128 steps and batch 240 -> "batch_size 240 does not divide the 1024 steps of a rollout (8
    environments x 128); the nearest that do are 128 and 256".
    """
    envs, steps = values.get("num_envs"), values.get("n_steps")
    if not isinstance(envs, int) or not isinstance(steps, int):
        return []
    rows, errors = envs * steps, []
    for key in _BATCHES:
        batch = values.get(key)
        if isinstance(batch, int) and rows % batch:
            near = _near_divisors(rows, batch)
            advice = f"the nearest that do are {near}" if near else f"make n_steps a multiple of {BATCH_MULTIPLE}"
            errors.append(
                f"{key} {batch} does not divide the {rows} steps of a rollout ({envs} environments x {steps}); {advice}"
            )
    return errors


def _near_divisors(rows: int, batch: int) -> str:
    small = [size for size in range(1, math.isqrt(rows) + 1) if rows % size == 0]
    fitting = [size for size in (*small, *(rows // size for size in small)) if size % BATCH_MULTIPLE == 0]
    below, above = max((f for f in fitting if f < batch), default=None), min((f for f in fitting if f > batch), default=None)
    return " and ".join(str(size) for size in (below, above) if size is not None)
