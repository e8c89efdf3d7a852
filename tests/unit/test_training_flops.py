"""The peak that a GPU's name stands for."""

from __future__ import annotations

import pytest

from bertline.training.flops import peak_of_name


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA GB200", 2500),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10G", 70),
        ("NVIDIA L4", 121),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA B200", 2250),
        ("NVIDIA A40", 150),
        ("NVIDIA A30", 165),
        ("NVIDIA L40S", 362),
        ("Tesla V100-SXM2-32GB", 125),
        ("Tesla V100-PCIE-16GB", 112),
        ("Tesla V100S-PCIE-32GB", 130),
        ("Tesla T4", 65),
        ("NVIDIA GeForce RTX 4090", 165),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090", 71),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),  # a slice of one
        ("NVIDIA RTX A1000 Laptop GPU", None),  # no A100
        ("NVIDIA A10X", None),
    ],
)
def test_peaks_belong_to_whole_words_of_a_name(name, peak):
    assert peak_of_name(name) == peak
