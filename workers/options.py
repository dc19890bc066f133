"""Every setting of a built-in worker, in one table: name, type, default, bounds, environment name, meaning.

Standard library only: the daemon's config, the worker's command line, `supervisord --check` and the docs read this same
table, so an option cannot exist in only one of them. Precedence: default < TOML < `RL_*` environment < flag.

An option `num_envs` is `num_envs` in TOML, `--num-envs` on the command line and `RL_NUM_ENVS` in the environment.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers.presets import PRESET_ALGORITHM, PRESETS

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
    """One setting. `low`/`high` are inclusive bounds; `live` options may change without a restart (none so far)."""

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
        return text.lower() if text.lower() in self.words else self.check(_FROM_TEXT[self.kind](self, text))

    def check(self, value: object) -> Value:
        """A value from TOML, or a parsed one. Raises ValueError with one clear sentence."""
        if isinstance(value, str) and value in self.words:
            return value
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            msg = f"{self.name} must be {self.kind_name}, not {value!r}"
            raise ValueError(msg)
        if self.choices and value not in self.choices:
            msg = f"{self.name} must be one of {', '.join(self.choices)}, not {value!r}{nearest(str(value), self.choices)}"
            raise ValueError(msg)
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_bounds(value)
        return value

    def _check_bounds(self, value: float) -> None:
        if isinstance(value, int) and abs(value) >= 2**63:  # comparing or converting a longer integer may raise
            msg = f"{self.name} does not fit into 64 bits; write a smaller number"
            raise ValueError(msg)
        if not isinstance(value, int) and not math.isfinite(value):
            msg = f"{self.name} must be finite, not {value!r}"
            raise ValueError(msg)
        if self.low is not None and value < self.low:
            msg = f"{self.name} must be at least {self.low:g}, not {value!r}"
            raise ValueError(msg)
        if self.high is not None and value > self.high:
            msg = f"{self.name} must be at most {self.high:g}, not {value!r}"
            raise ValueError(msg)


def _int_from(option: Option, text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        msg = f"{option.name} must be {option.kind_name}, not {text!r}"
        raise ValueError(msg) from None


def _float_from(option: Option, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        msg = f"{option.name} must be a number, not {text!r}"
        raise ValueError(msg) from None


def _bool_from(option: Option, text: str) -> bool:
    try:
        return {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }[text.lower()]
    except KeyError:
        msg = f"{option.name} must be true or false, not {text!r}"
        raise ValueError(msg) from None


def _str_from(_option: Option, text: str) -> str:
    return text


_FROM_TEXT: Final[dict[type, Callable[[Option, str], Value]]] = {
    int: _int_from,
    float: _float_from,
    bool: _bool_from,
    str: _str_from,
}
_KIND_NAMES: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}

_TABLE: Final = (
    # what is trained, and for how long
    Option("game", str, None, "Atari game, by envpool's name without -v5; the program's name when not given",
           choices=GAMES + EXTRA_GAMES),
    Option("algo", str, "dqn", f"learning algorithm: {_ALGORITHMS_TEXT}; auto: by memory and level",
           choices=(*ALGORITHMS, AUTO)),
    Option("preset", str, None, "ppo's load and effort in one word; explicit settings win", choices=tuple(PRESETS)),
    Option("seed", int, 1, "seed of networks, exploration, replay sampling and (with the attempt) environments",
           low=0, high=2**31 - 1),
    Option("episodes", int, None, "stop after this many training episodes", low=1),
    Option("steps", int, None, "stop after this many environment steps (1 step = 4 frames)", low=1),
    Option("hours", float, None, "stop after so many hours of training, over all attempts", low=0.0001, high=1e6),
    Option("resolution", int, 84, "side of the square frames in pixels", low=32, high=128),
    Option("network", str, "auto", "nature (32, 64, 64, 512 wide) or small (16, 32, 32, 128); auto: small below 60 pixels",
           choices=NETWORKS),
    Option("deterministic", bool, False, "the same bits from the same seed and threads, whatever it costs"),
    # load
    Option("num_envs", int, None, "parallel environments; the level's when not given", low=1, high=4096),
    Option("batch_size", int, None, "transitions per update; the level's when not given; auto: at most that, and valid",
           low=1, high=65536, words=(AUTO,)),
    Option("fallback_batch", int, None, "batch after the first time out of memory; when not given the next that divides",
           low=1, high=65536),
    Option("threads", int, None, "CPU threads of torch and of envpool; cores / slots if not given", low=1, high=1024),
    Option("device", str, "auto", "auto (CUDA if there is one), cpu, cuda, cuda:N"),
    Option("dtype", str, "auto", "autocast type; auto: bf16 where the device has it, else fp16 on CUDA, fp32 on CPU",
           choices=DTYPES),
    Option("compile", bool, False, "torch.compile the networks; a start takes minutes longer"),
    Option("cuda_graphs", bool, False, "CUDA: record the networks' launches once and replay them; compiles them too"),
    # learning
    Option("replay_ratio", float, 8.0, "transitions learned per environment step made", low=0.0, high=512.0),
    Option("replay_size", int, 1_000_000, "transitions kept (7.1 kB each at 84x84)", low=1_000),
    Option("learning_starts", int, 20_000, "environment steps before the first update", low=0),
    Option("use_double_dqn", bool, True, "Double DQN targets (van Hasselt et al. 2016)"),
    Option("dueling", bool, False, "dqn: state value and advantages in two streams (Wang et al. 2016)"),
    Option("n_step", int, 3, "steps of the multi-step return (Sutton 1988)", low=1, high=20),
    Option("gamma", float, 0.99, "discount factor", low=0.0, high=1.0),
    Option("lr", float, None, f"learning rate; when not given {_own(_lr)}", low=0.0, high=1.0),
    Option("lr_scheduler", str, "none", "learning-rate schedule over environment steps", choices=SCHEDULERS),
    Option("scheduler_tmax", int, 10_000_000, "environment steps of the line, or of the cosine's half-period", low=1),
    Option("min_lr", float, 0.0, "lowest learning rate of the linear and the cosine schedule", low=0.0, high=1.0),
    Option("step_lr_step_size", int, 1_000_000, "environment steps between two decays of the step schedule", low=1),
    Option("step_lr_gamma", float, 0.5, "factor of one decay of the step schedule", low=0.0, high=1.0),
    Option("target_period", int, 8_000, "environment steps between two copies to the target network", low=1),
    Option("epsilon_steps", int, 250_000, "environment steps in which exploration falls from 1 to epsilon_final", low=1),
    Option("epsilon_final", float, 0.01, "exploration after that", low=0.0, high=1.0),
    Option("max_grad_norm", float, None,
           f"gradient norm clip, 0: none; when not given {_own(lambda row: f'{row.max_grad_norm:g}')}", low=0.0),
    # learning from rollouts: pqn and ppo
    Option("n_steps", int, 128, "vector steps of one rollout", low=1, high=65536),
    Option("epochs", int, 4, "passes over each rollout", low=1, high=100),
    Option("q_lambda", float, 0.65, "pqn: lambda of the returns (Gallici et al. 2024)", low=0.0, high=1.0),
    Option("gae_lambda", float, 0.95, "ppo: lambda of the advantages (Schulman et al. 2016)", low=0.0, high=1.0),
    Option("clip", float, 0.1, "ppo: how far a probability ratio may move and still gain", low=0.0, high=10.0),
    Option("ent_coef", float, 0.01, "ppo: weight of the entropy", low=0.0, high=10.0),
    Option("vf_coef", float, 0.5, "ppo: weight of the value loss", low=0.0, high=100.0),
    Option("target_kl", float, 0.0, "ppo: end a rollout's epochs once the policy moved by more; 0: never", low=0.0),
    # records
    Option("num_test_episodes", int, 0, "greedy test episodes of each test; 0: none", low=0, high=10_000),
    Option("test_period", int, 0, "environment steps between two tests; 0: one, once the target is reached", low=0),
    Option("tensorboard", bool, True, "write curves for TensorBoard into the run directory"),
)  # fmt: skip

OPTIONS: Final[dict[str, Option]] = {option.name: option for option in _TABLE}


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
