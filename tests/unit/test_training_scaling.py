"""The loss scale of fp16."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertline.console import BertlineError
from bertline.training import processor
from bertline.training.objective import prepare_precision
from bertline.training.scaling import FIRST, GROWS_AFTER, LARGEST, LossScale


def test_it_halves_at_an_overflow_and_doubles_after_many_good_steps():
    scale = LossScale("fp16")
    assert scale.value == FIRST
    assert scale.update(finite=False)  # an ordinary back-off
    assert scale.value == FIRST / 2
    for _ in range(GROWS_AFTER - 1):
        assert not scale.update(finite=True)
    assert scale.value == FIRST / 2
    scale.update(finite=True)
    assert scale.value == FIRST
    # An overflow starts the count again.
    for _ in range(GROWS_AFTER - 1):
        scale.update(finite=True)
    scale.update(finite=False)
    scale.update(finite=True)
    assert scale.value == FIRST / 2


def test_a_loss_that_overflows_at_any_scale_is_not_an_ordinary_back_off():
    scale = LossScale("fp16")
    answers = [scale.update(finite=False) for _ in range(18)]
    assert answers == [True] * 16 + [False] * 2
    assert scale.value == 1


def test_it_does_not_grow_without_end():
    scale = LossScale("fp16")
    for _ in range(20 * GROWS_AFTER):
        scale.update(finite=True)
    assert scale.value == LARGEST


def test_it_continues_where_it_stopped():
    scale, resumed = LossScale("fp16"), LossScale("fp16")
    for step in range(4800):
        scale.update(finite=step % 2900 != 0)
    resumed.restore(scale.state())
    values = []
    for step in range(3000):
        assert scale.update(finite=step != 700) == resumed.update(finite=step != 700)
        assert scale.value == resumed.value
        values.append(scale.value)
    assert values[101] == 2 * values[99]  # after 1,899 good steps before the stop, and 101 after it


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_other_precisions_need_none(precision):
    scale = LossScale(precision)
    assert not scale.update(finite=False)
    assert scale.value == 1


def test_fp16_without_a_gpu_is_refused_in_one_line():
    with pytest.raises(BertlineError, match="fp16 needs a GPU; take bf16 or fp32"):
        prepare_precision("fp16", torch.device("cpu"))


@pytest.mark.parametrize(
    ("vendor", "flags", "slow"),
    [
        ("AuthenticAMD", "fma avx2", True),
        ("AuthenticAMD", "fma avx512_bf16", False),
        ("GenuineIntel", "fma avx512_bf16 avx512_fp16", True),  # a virtual machine that hides AMX
        ("GenuineIntel", "fma avx512_bf16 amx_bf16 amx_tile", False),
        ("0x41", "asimd bf16", False),
    ],
)
def test_bf16_on_a_processor_that_is_faster_in_fp32_is_reported(
    vendor: str,
    flags: str,
    slow: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    information = tmp_path / "cpuinfo"
    information.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n")
    monkeypatch.setattr(processor.has_fast_bf16, "__defaults__", (information,))
    prepare_precision("fp32", torch.device("cpu"))
    assert not caplog.messages
    prepare_precision("bf16", torch.device("cpu"))
    assert ["faster in fp32" in message for message in caplog.messages] == [True] * slow
