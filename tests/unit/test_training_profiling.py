"""The profile of a phase."""

from __future__ import annotations

import json

import pytest
from synthetic_dataset import recipe, write_dataset
from training_processes import Trainer

from bertline.training.profiling import class_of


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


def test_a_profile_says_where_the_time_goes(tmp_path):
    card = write_dataset(tmp_path / "dataset")
    trainer = Trainer(recipe(steps=14, optimizer="adamw"), card, tmp_path / "phase", profile=True)
    assert trainer.finish() == 0, trainer.log.read_text()
    folder = tmp_path / "phase/checkpoints/profile"
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "aten::addmm" for event in events)
    lines = (folder / "kernels.txt").read_text().splitlines()
    assert {"matrix products", "optimizer"} <= {line.split("  ")[0] for line in lines}
    shares = [float(line.rsplit(maxsplit=1)[-1]) for line in lines[2:]]
    assert sum(shares) == pytest.approx(100, abs=1)
    assert shares == sorted(shares, reverse=True)
