"""What a user can get wrong about a training, in one table: each is one sentence, before anything is built or written over.

What the config file can get wrong is in tests/config; those sentences are of the same table of options.
"""

import hashlib
import re

import pytest
from learners import attempt

from workers import contract, envs, precision, run
from workers.args import BadArguments, make, parse

SENTENCES = {
    # names
    ("--program=Pongg",): "'Pongg' is not one of the 104 Atari games; did you mean Pong?",
    ("--program=Pong", "--preset=beats"): (
        "--preset: preset must be one of fast, heavy, beast, not 'beats'; did you mean beast?"
    ),
    ("--program=Pong", "--preset=fast", "--algo=dqn"): "preset fast is for ppo, not for dqn; leave out preset or algo",
    ("--program=Pong", "--sed=1"): "--sed is not a flag; did you mean --seed?",
    # sizes
    ("--program=Pong", "--num-envs=0"): "--num-envs: num_envs must be at least 1, not 0",
    ("--program=Pong", "--resolution=129"): "--resolution: resolution must be at most 128, not 129",
    ("--program=Pong", "--hours=inf"): "--hours: hours must be finite, not inf",
    # sizes that do not go together
    ("--program=Pong", "--batch-size=100"): "batch_size 100 does not divide by 8; the nearest that do are 96 and 104",
    ("--program=Pong", "--fallback-batch=20"): "fallback_batch 20 does not divide by 8; the nearest that do are 16 and 24",
    ("--program=Pong", "--algo=ppo", "--num-envs=8", "--batch-size=240"): (
        "batch_size 240 does not divide the 1024 steps of a rollout (8 environments x 128); "
        "the nearest that do are 128 and 256"
    ),
    ("--program=Pong", "--algo=pqn", "--num-envs=8", "--batch-size=256", "--fallback-batch=96"): (
        "fallback_batch 96 does not divide the 1024 steps of a rollout (8 environments x 128); "
        "the nearest that do are 64 and 128"
    ),
    ("--program=Pong", "--batch-size=4096", "--replay-size=2048"): (
        "batch_size 4096 is more than replay_size 2048; learning could never begin"
    ),
    ("--program=Pong", "--num-envs=1024", "--replay-size=2048"): (
        "replay_size 2048 holds less than 16 steps of 1024 environments; at least 16384 is needed"
    ),
    # what is missing or is no name
    (): "no game: name it with --program Pong, or --program NAME --game Pong",
    ("--seed", "--program", "Pong"): "--seed needs a value",
    ("--program=../x", "--game=Pong"): (
        "program '../x' is not a valid name: use at most 64 letters, digits, '_', '.' and '-', and begin with a letter, a digit "
        "or '_'"
    ),
    # what does not parse
    ("--program=Pong", "--batch-size=big"): "--batch-size: batch_size must be a whole number or auto, not 'big'",
    ("--program=Pong", "--hours=long"): "--hours: hours must be a number, not 'long'",
    ("--program=Pong", "--dueling=maybe"): "--dueling: dueling must be true or false, not 'maybe'",
    ("--program=Pong", "--device=cuda:-1"): "device must be auto, cpu, cuda or cuda:N, not 'cuda:-1'",
}  # fmt: skip
VARIABLES = {
    ("RL_NUM_ENVS", ""): "environment variable RL_NUM_ENVS: num_envs must be a whole number, not ''",
    ("RL_LR", "nan"): "environment variable RL_LR: lr must be finite, not nan",
    ("RL_FALLBACK", "8"): "environment variable RL_FALLBACK is not a setting; did you mean RL_FALLBACK_BATCH?",
}  # fmt: skip


@pytest.mark.parametrize(("argv", "sentence"), SENTENCES.items(), ids=lambda item: str(item)[:50])
def test_one_sentence(argv, sentence):
    with pytest.raises(BadArguments) as caught:
        parse(argv, {})
    assert caught.value.errors == (sentence,)


@pytest.mark.parametrize(("variable", "sentence"), VARIABLES.items(), ids=lambda item: str(item)[:50])
def test_one_sentence_of_a_variable(variable, sentence):
    with pytest.raises(BadArguments) as caught:
        parse(["--program=Pong"], dict([variable]))
    assert caught.value.errors == (sentence,)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_a_gpu_that_is_not_there(device, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(precision.NoSuchDevice) as caught:
        precision.choose(device, "auto")
    assert str(caught.value) == (
        f"device is {device}, but this machine has no CUDA device that torch can use: set device to auto or cpu"
    )


@pytest.mark.parametrize("device", ["auto", "cuda", "cuda:1"])
def test_a_gpu_that_is_gone_is_no_reason_to_use_the_cpu_unless_that_is_said(device, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(precision.NoGpu, match=r"^torch \S+ \(.+\) sees no GPU$"):
        precision.choose(device, "auto", "wait")
    assert precision.choose(device, "auto", "cpu").device.type == "cpu"
    assert precision.choose("cpu", "auto", "wait").device.type == "cpu"


# --- runs that are refused ---------------------------------------------------------------------------------------------


def attempted(run_dir, *flags, number=1):
    return attempt(run_dir, parse(["--program=Catch", "--threads=1", *flags], {}), number)


def contents(directory):
    return {
        path.relative_to(directory): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


DQN = ("--num-envs=8", "--batch-size=16", "--replay-size=2000", "--learning-starts=100", "--replay-ratio=1")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of dqn with a checkpoint."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    assert attempted(directory, *DQN, "--steps=200") == contract.EXIT_DONE
    return directory


@pytest.mark.parametrize(
    ("flags", "was", "now"),
    [
        (("--algo=ppo", "--num-envs=8", "--batch-size=64"), "algo 'dqn'", "algo 'ppo'"),
        ((*DQN, "--dueling"), "no dueling", "dueling True"),
        (("--game=Breakout", *DQN), "actions 3, frame_shape [10, 5], game 'Catch', stack 1",
         "actions 4, frame_shape [84, 84], game 'Breakout', stack 4"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_another_learner_is_refused_and_left_as_it_is(flags, was, now, trained, capsys):
    before = contents(trained / contract.CHECKPOINTS_DIR)
    assert attempted(trained, *flags, "--steps=400", number=2) == contract.EXIT_CONFIG
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    (checkpoint,) = {path.parts[0] for path in before}
    assert said == (
        f"workers: checkpoint {trained / contract.CHECKPOINTS_DIR / checkpoint} has {was}, this run has {now}: "
        "set it back, or give the run another name or directory\n"
    )
    assert contents(trained / contract.CHECKPOINTS_DIR) == before
    assert attempted(trained, *DQN, "--steps=400", number=3) == contract.EXIT_DONE, "set back, it goes on"
    for path in (trained / contract.CHECKPOINTS_DIR).iterdir():  # for the next one
        if path.name != checkpoint:
            for file in path.iterdir():
                file.unlink()
            path.rmdir()


@pytest.mark.parametrize(
    ("one", "other"),
    [({"resolution": 84}, {"resolution": 64}), ({"resolution": 64}, {"resolution": 64, "network": "small"})],
)
def test_another_resolution_or_network_is_another_learner(one, other):
    first, second = (
        run.identity_of(made, envs.spec_of("Pong", made.resolution)) for made in (make("Pong", **one), make("Pong", **other))
    )
    assert first != second


def test_what_older_checkpoints_do_not_tell_is_what_they_are():
    """Nature's network without streams: the identity is as it was before either could be asked for."""
    args = make("Pong")
    assert set(run.identity_of(args, envs.spec_of("Pong", 84))) == {"game", "algo", "actions", "stack", "frame_shape"}


def test_a_replay_beyond_the_memory_is_refused_with_the_numbers(tmp_path, capsys):
    huge = 2**62 // 7_000 // 8 * 8
    assert attempted(tmp_path / "run", "--num-envs=8", "--batch-size=16", f"--replay-size={huge}") == contract.EXIT_CONFIG
    said = capsys.readouterr()
    assert re.fullmatch(
        rf"workers: a replay of {huge:,} transitions of 10x5 needs [\d.]+ GB but [\d.]+ GB are free in memory: "
        r"set replay_size to [\d,]+ or less\n",
        said.err,
    )
    assert "building" not in said.out


def test_a_rollout_beyond_the_memory_is_refused_with_the_numbers(tmp_path, capsys):
    flags = ("--algo=ppo", "--game=Pong", "--num-envs=4096", "--n-steps=65536", "--batch-size=65536")
    assert attempted(tmp_path / "run", *flags) == contract.EXIT_CONFIG
    said = capsys.readouterr()
    assert re.search(r"a rollout of 4096 environments x 65536 steps needs .* GB .* set n_steps to \d+ or", said.err)
    assert said.err.count("\n") == 1
    assert "building" not in said.out
