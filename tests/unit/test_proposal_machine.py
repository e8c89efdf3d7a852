"""The GPUs that a process may use: those that CUDA_VISIBLE_DEVICES shows, of a driver with eight and two slices."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from bertline.console import BertlineError
from bertline.proposal import machine as machines
from bertline.proposal.machine import this_machine

GB = 10**9
UUIDS = [f"GPU-{index}{index}aa{index}bbb-0000-1111-2222-333344445555" for index in range(7)] + ["GPU-00aa-the-last"]
SLICES = {"MIG-11111111-aaaa": 10 * GB, "MIG-22222222-bbbb": 20 * GB}


def memory_of(gpu: int | str) -> int:
    return SLICES[gpu] if isinstance(gpu, str) else (80 if gpu < 7 else 40) * GB


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver of eight A100s, the last with less memory, and of two slices, whose capability it does not tell."""

    def by_uuid(uuid: str) -> str:
        if uuid not in SLICES:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def capability(gpu: int | str) -> tuple[int, int]:
        if isinstance(gpu, str):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return (8, 0)

    calls = {
        "Init": lambda: None,
        "Shutdown": lambda: None,
        "DeviceGetCount": lambda: 8,
        "DeviceGetHandleByIndex": lambda index: index,
        "DeviceGetHandleByUUID": by_uuid,
        "DeviceGetUUID": lambda gpu: UUIDS[gpu],
        "DeviceGetName": lambda gpu: f"A100 {gpu}",
        "DeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=memory_of(gpu)),
        "DeviceGetCudaComputeCapability": capability,
        "DeviceGetMigMode": lambda gpu: [0, 0],
    }
    for name, call in calls.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", call)
    monkeypatch.setattr(machines.metadata, "version", lambda name: "2.13.0+cu130")


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, range(8)),
        ("3", [3]),
        ("3, 1", [3, 1]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("2,8,1", [2]),
        ("1,,2", [1]),
        ("NoDevFiles", []),
        ("1,1", []),
        (UUIDS[5], [5]),
        (f"{UUIDS[2]},GPU-4", [2, 4]),
        ("GPU-00aa", []),  # two begin so
        ("GPU-9,GPU-1", []),
        ("MIG-11111111-aaaa", ["MIG-11111111-aaaa"]),
        ("MIG-22222222-bbbb,MIG-11111111-aaaa", ["MIG-22222222-bbbb"]),
        ("MIG-33333333-cccc", []),
    ],
)
def test_the_gpus_are_those_that_cuda_shows(
    visible: str | None, indices: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = this_machine()
    assert found.gpus == tuple(f"A100 {index}" for index in indices)
    assert found.gpu_memory == min((memory_of(index) for index in indices), default=0)


def test_a_slice_of_a_gpu_has_bf16_as_all_gpus_that_have_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-11111111-aaaa")
    assert this_machine().has_fast_bf16


@pytest.mark.parametrize("visible", [None, "0", UUIDS[0]])
def test_of_a_divided_gpu_the_first_slice_counts(visible: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that has one, the driver lists the whole GPU all the same, at whatever place the slice is."""

    def slice_at(gpu: int, place: int) -> str:
        if place != 4:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "MIG-11111111-aaaa"

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda gpu: [1, 1])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda gpu: 7)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", slice_at)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = this_machine()
    assert found.gpus == ("A100 MIG-11111111-aaaa",)
    assert found.gpu_memory == 10 * GB


@pytest.mark.parametrize(
    ("modes", "slices", "found"),
    [
        ([1, 1], {0: "MIG-11111111-aaaa", 1: "MIG-22222222-bbbb"}, ("A100 MIG-11111111-aaaa",)),
        ([0, 1], {1: "MIG-22222222-bbbb"}, ("A100 MIG-22222222-bbbb",)),
        ([1, 0], {}, ("A100 1",)),
        ([1, 1], {1: "MIG-22222222-bbbb"}, ("A100 MIG-22222222-bbbb",)),
        ([1, 1], {}, ()),
    ],
)
def test_of_divided_gpus_cuda_uses_one_slice_and_nothing_else(
    modes: list[int], slices: dict[int, str], found: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def slice_at(gpu: int, place: int) -> str:
        if gpu not in slices:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return slices[gpu]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: len(modes))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda gpu: [modes[gpu], modes[gpu]])
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda gpu: 7)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", slice_at)
    for visible in (None, "0,1"):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert this_machine().gpus == found


@pytest.mark.parametrize("number", [2, -1])
def test_a_number_of_gpus_that_cuda_does_not_show_is_one_line(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(BertlineError, match=f"GPUS={number}: with CUDA_VISIBLE_DEVICES=3 there are 1 .*; give GPUS=0"):
        this_machine(number)
    assert this_machine(1).gpus == ("A100 3",)
