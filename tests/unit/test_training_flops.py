"""The peak throughput of a GPU, by its name."""

from __future__ import annotations

import pytest

from bertline.training.flops import peak_of_name


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),  # not the first word alone
        ("NVIDIA GH200 480GB", 989),  # no H200
        ("NVIDIA L40S", 362),  # no L4 and no L40
        ("Tesla V100S-PCIE-32GB", 130),
        ("Tesla V100-SXM2-32GB", 125),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),  # a slice of one
        ("NVIDIA RTX A1000 Laptop GPU", None),  # no A100
    ],
)
def test_peaks_belong_to_whole_words_of_a_name(name, peak):
    assert peak_of_name(name) == peak
