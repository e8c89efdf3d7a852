"""The profile of a phase."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from synthetic_dataset import recipe, write_dataset
from torch.autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent
from training_processes import Trainer

from bertline.console import BertlineError
from bertline.training.profiling import class_of, kernel_milliseconds, marked, profiled


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("aten::addmm", "matrix products"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "matrix products"),
        ("nvjet_tst_256x128_64x4_2x1_v_bz_TNT", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "communication"),
        ("aten::_fused_adamw_", "optimizer"),
        ("Memcpy HtoD (Pinned -> Device)", "copies"),
        ("graph_0_cpp_fused__to_copy_gelu_view_7", "compiled programs"),
        ("aten::gelu", "other"),
    ],
)
def test_kernels_have_their_class(kernel, expected):
    assert class_of(kernel) == expected


def test_a_profile_shows_where_the_time_goes(tmp_path):
    card = write_dataset(tmp_path / "dataset")
    trainer = Trainer(recipe(steps=14, optimizer="adamw"), card, tmp_path / "phase", profile=(7, 11))
    assert trainer.finish() == 0, trainer.log.read_text()
    folder = tmp_path / "phase/checkpoints/profile"
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "aten::addmm" for event in events)
    steps, *lines = (folder / "kernels.txt").read_text().splitlines()
    assert steps == "steps 7 to 11"
    assert {"matrix products", "optimizer"} <= {line.split("  ")[0] for line in lines}
    shares = [float(line.rsplit(maxsplit=1)[-1]) for line in lines[2:]]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert shares == sorted(shares, reverse=True)
    # Exactly those steps: one update each.
    updates = [event for event in events if event.get("name") == "aten::_fused_adamw_" and event.get("ph") == "X"]
    groups = len({event["args"].get("External id") for event in updates}) / 5
    assert groups == int(groups) > 0


@pytest.mark.parametrize(
    ("steps", "recorded"), [((2, 3), "steps 2 to 3"), ((4, 9), "steps 4 to 5"), ((5, 9), "step 5"), ((6, 9), None)]
)
def test_a_profile_of_a_training_that_ends_is_of_the_steps_that_there_were(tmp_path, caplog, steps, recorded):
    caplog.set_level("INFO")
    with profiled(steps, tmp_path, done=0) as after_step:
        for _ in range(5):
            torch.ones(9).add(1)
            after_step()
    (message,) = (text for text in caplog.messages if "profiled" in text)
    if recorded:
        assert message.startswith(f"profiled {recorded}, ")
        assert (tmp_path / "kernels.txt").read_text().startswith(f"{recorded}\n")
    else:
        assert message == "steps 6 to 9 are not profiled: training ended at step 5"


def test_steps_that_are_past_are_not_profiled(tmp_path, caplog):
    with profiled((3, 5), tmp_path, done=3) as after_step:
        after_step()
    assert caplog.messages == ["steps 3 to 5 are not profiled: training resumes at step 3"]
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_nsight_needs_a_gpu():
    with pytest.raises(BertlineError, match="--profiler nsight: there is no GPU here"), marked((1, 2), done=0):
        pass


def of_gpu(name, begin, end, device=DeviceType.CUDA, *, annotation=False):
    """As the profiler makes events: times in microseconds."""
    times = {"start_us": begin, "end_us": end, "stack": [], "input_shapes": []}
    places = {"thread": 1, "device_type": device, "device_index": 0, "use_device": "cuda"}
    return FunctionEvent(id=begin, name=name, is_user_annotation=annotation, **times, **places)


def test_a_kernel_counts_once_on_a_gpu(monkeypatch):
    """Its operator has its time as well, and so has the annotation of the step."""
    operator = of_gpu("aten::addmm", 100, 200, DeviceType.CPU)
    operator.append_kernel("sm90_xmma_gemm_bf16", 0, 10_000)
    step = of_gpu("ProfilerStep#7", 300, 20_000, annotation=True)
    events = EventList([operator, of_gpu("sm90_xmma_gemm_bf16", 300, 10_300), step], use_device="cuda")
    events._build_tree()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert kernel_milliseconds(SimpleNamespace(key_averages=events.key_averages), 2) == {"sm90_xmma_gemm_bf16": 5.0}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_time_of_python_is_no_kernel_s_on_a_cpu():
    weight = torch.nn.Parameter(torch.ones(9))
    optimizer = torch.optim.AdamW([weight])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            weight.sum().backward()
            optimizer.step()
            profiler.step()
    found = kernel_milliseconds(profiler, 2)
    assert "aten::sum" in found
    assert not [name for name in found if name.startswith(("ProfilerStep", "Optimizer."))]


@pytest.fixture
def events(monkeypatch):
    """What Nsight's tools are told, on a machine without a GPU."""
    events = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: events.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: events.append("stop"))
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda text: None)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: None)
    return events


@pytest.mark.parametrize(
    ("steps", "done", "recorded", "message"),
    [
        ((3, 7), 5, [], "steps 3 to 7 are not profiled: training resumes at step 5"),
        ((12, 14), 2, [], "steps 12 to 14 are not profiled: training ended at step 7"),
        ((6, 9), 2, [6, 7], "only steps 6 to 7 are profiled: training ended"),
    ],
)
def test_nsight_begins_and_ends_in_pairs_and_the_log_says_what_is_missing(
    events, caplog, steps, done, recorded, message
):
    with marked(steps, done=done) as after_step:
        for step in range(done + 1, 8):
            events.append(step)
            after_step()
    assert caplog.messages == [message]
    assert events.count("start") == events.count("stop") == bool(recorded)
    if recorded:
        assert events[events.index("start") + 1 : events.index("stop")] == recorded


@pytest.mark.parametrize(("done", "first"), [(0, 1), (0, 3), (2, 3), (1, 4)])
def test_nsight_records_exactly_the_steps(events, done, first):
    with marked((first, first + 1), done=done) as after_step:
        for step in range(done + 1, 8):
            events.append(step)
            after_step()
    begin, end = events.index("start"), events.index("stop")
    assert events[begin + 1 : end] == [first, first + 1]
