"""[gate], and what a program says of its GPU: pinning, the memory that it waits for, and what contradicts itself."""

import pytest
from config_kit import Place

PONG = "[program.Pong]\n"
SCRIPT = '[program.s]\ncommand = "true"\n'
PINNED = {("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "1")}


def only(place: Place, text: str):
    (spec,) = place.load(text).settings.programs
    return spec


@pytest.mark.parametrize("program", [PONG, SCRIPT])
def test_a_pinned_program_sees_its_gpu_alone_and_restarts_when_that_changes(place: Place, program: str) -> None:
    free, pinned = only(place, program), only(place, program + "gpu = 1\n")
    assert (free.gpu, pinned.gpu) == (None, 1)
    assert set(pinned.env) >= PINNED
    assert not {name for name, _ in free.env} & {name for name, _ in PINNED}
    assert free.digest != pinned.digest
    assert pinned.digest != only(place, program + "gpu = 0\n").digest


def test_what_it_waits_for_changes_live(place: Place) -> None:
    keys = "min_free_mb = 9\ngate_poll_s = 1\ngate_timeout_s = 2\n"
    before, after = only(place, SCRIPT), only(place, SCRIPT + keys)
    assert (after.min_free_mb, after.gate_poll_s, after.gate_timeout_s) == (9, 1.0, 2.0)
    assert before.digest == after.digest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            PONG + 'device = "cuda:1"\ngpu = 1\n',
            'FILE, line 3: program.Pong.gpu says the same as device = "cuda:1"; remove one of the two',
        ),
        (
            SCRIPT + 'gpu = 1\nenv = { CUDA_VISIBLE_DEVICES = "0" }\n',
            "FILE, line 3: program.s.gpu says the same as env.CUDA_VISIBLE_DEVICES; remove one of the two",
        ),
    ],
)
def test_what_contradicts_itself_or_is_not_there_is_refused(place: Place, text: str, said: str) -> None:
    assert place.errors(text) == [said]


@pytest.mark.parametrize(
    ("keys", "daemon", "visible"),
    [
        ("", None, None),
        ("", "2,3", "2,3"),
        ("", "", ""),
        ('env = { CUDA_VISIBLE_DEVICES = "1" }\n', "2,3", "1"),
        ("gpu = 1\n", "2,3", None),
    ],
)
def test_what_cuda_lets_it_see_is_its_own_word_or_the_daemons(
    place: Place, keys: str, daemon: str | None, visible: str | None
) -> None:
    environ = {} if daemon is None else {"CUDA_VISIBLE_DEVICES": daemon}
    for program in (PONG, SCRIPT):
        (spec,) = place.load(program + keys, environ).settings.programs
        assert spec.visible == visible


@pytest.mark.parametrize(
    ("keys", "asks", "when_no_gpu"),
    [
        ("", "", None),
        ('when_no_gpu = "cpu"\n', "", "cpu"),
        ('device = "cpu"\n', "", "cpu"),
        ('device = "cuda"\n', 'device = "cuda"', None),
        ('env = { CUDA_VISIBLE_DEVICES = "1" }\n', 'env.CUDA_VISIBLE_DEVICES = "1"', None),
        ('env = { CUDA_VISIBLE_DEVICES = "-1" }\n', "", "cpu"),
        ('env = { CUDA_VISIBLE_DEVICES = "" }\n', "", "cpu"),
    ],
)
def test_what_asks_for_a_gpu_and_what_wants_none(place: Place, keys: str, asks: str, when_no_gpu: str | None) -> None:
    spec = only(place, PONG + keys)
    assert (spec.asks_gpu, spec.when_no_gpu) == (asks, when_no_gpu)
