"""Masking fits every number format; the format fits the device."""

import math

import pytest
import torch

from workers import precision
from workers.precision import NoSuchDevice, choose, mask_invalid, only_if_finite

FORMATS = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FORMATS)
def test_what_is_masked_is_never_chosen_and_stays_finite(dtype):
    lowest = torch.finfo(dtype).min
    values = torch.tensor([[1.0, 5.0, 9.0], [lowest, lowest / 2, 3.0], [-2.0, -1.0, 0.0]], dtype=dtype)
    valid = torch.tensor([True, True, False])
    masked = mask_invalid(values, valid)
    assert masked.dtype is dtype
    assert masked.isfinite().all()
    assert masked.argmax(1).tolist() == [1, 1, 1]
    assert torch.equal(masked[:, :2], values[:, :2])
    assert masked.float().softmax(1)[:, 2].tolist() == [0.0, 0.0, 0.0]
    nothing = mask_invalid(torch.zeros(1, 4, dtype=dtype), torch.zeros(4, dtype=torch.bool))
    assert nothing.softmax(1).isfinite().all(), "a row without anything valid gives no NaN"
    free = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    mask_invalid(free, torch.tensor([True, False, True]))[:, 0].sum().backward()
    assert free.grad.tolist() == [[1.0, 0.0, 0.0]] * 2, "no gradient flows into what is masked"


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("sign", "skipped"), [(1.0, 0.0), (math.nan, 1.0), (math.inf, 1.0)])
def test_a_step_on_what_is_not_finite_passes_by(fused, sign, skipped):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight], fused=fused)
    weight.grad = torch.ones(2)
    assert only_if_finite(optimizer, torch.tensor(2.0), torch.tensor(sign)).item() == skipped
    if fused:
        assert optimizer.found_inf.item() == skipped, "the device skips the step: nobody waits for the answer"
        assert weight.grad is not None
    optimizer.step()
    assert (weight == 1.0).all().item() == bool(skipped)


def test_the_cpu_takes_bf16_only_where_it_pays(monkeypatch):
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: True)
    assert choose("cpu", "auto").dtype is torch.bfloat16
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: False)
    assert choose("cpu", "auto").dtype is torch.float32
    assert choose("cpu", "bf16").dtype is torch.bfloat16
    assert str(choose("cpu", "fp16")) == "cpu fp16"


def test_the_second_gpu_becomes_the_current_one_before_its_formats_are_asked_for(monkeypatch):
    """Events are recorded on the current GPU: on another one they would not wait for the copies out of pinned memory."""
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: asked.append(str(device)))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: asked.append("formats") or True)
    assert str(choose("cuda:1", "auto")) == "cuda:1 bf16"
    assert asked == ["cuda:1", "formats"]
    assert str(choose("cuda", "fp32")) == "cuda fp32", "the current one, whichever it is"
    for count, have in ((2, "2 CUDA devices"), (1, "1 CUDA device")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        with pytest.raises(NoSuchDevice) as refused:
            choose(f"cuda:{count}", "fp32")
        assert str(refused.value) == (
            f"device is cuda:{count}, but this machine has {have} that torch can use: set device to auto or cpu"
        )
    assert len(asked) == 2


def test_a_gpu_that_auto_could_not_use_is_reported(tmp_path):
    on_cpu = precision.Precision(torch.device("cpu"), torch.float32)
    assert precision.idle_gpu(on_cpu, "auto", {}, tmp_path) == "", "there is none"
    card = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    assert precision.idle_gpu(on_cpu, "auto", {}, tmp_path) == "", "its class is not known"
    (card / "class").write_text("0x040300\n")
    assert precision.idle_gpu(on_cpu, "auto", {}, tmp_path) == "", "its sound device"
    (card / "class").write_text("0x030200\n")
    assert precision.idle_gpu(on_cpu, "auto", {}, tmp_path) == (
        "this box has an NVIDIA GPU that torch cannot use: training goes on with the CPU, many times slower; "
        "extralifectl doctor says why"
    )
    for hidden in ("", "-1"):
        assert precision.idle_gpu(on_cpu, "auto", {"CUDA_VISIBLE_DEVICES": hidden}, tmp_path) == "", "hidden on purpose"
    assert precision.idle_gpu(on_cpu, "cpu", {}, tmp_path) == "", "as it was asked for"
    on_gpu = precision.Precision(torch.device("cuda"), torch.float32)
    assert precision.idle_gpu(on_gpu, "auto", {}, tmp_path) == ""
