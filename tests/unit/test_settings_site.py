"""A site file: valid content, and the one line for anything else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bertline.console import BertlineError
from bertline.settings.site import read_site

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "config/site.schema.yaml"
PARTITIONS = "partitions: {cpu: a, gpu: b}\n"


def test_the_example_is_valid() -> None:
    site = read_site(ROOT / "profiles/slurm/site.example.yaml", SCHEMA)
    assert site.size("phase1").processes == 8
    assert site.size("phase1").cpus_per_node == 64


def test_a_phase_has_its_own_size_and_any_other_the_default(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(PARTITIONS + "phases: {phase2: {nodes: 4, gpus_per_node: 2}, default: {nodes: 3}}")
    site = read_site(path, SCHEMA)
    assert (site.size("phase2").nodes, site.size("phase2").processes) == (4, 8)
    assert (site.size("warm_up").nodes, site.size("warm_up").gpus_per_node) == (3, 1)
    assert site.account is None


def test_a_size_takes_what_it_omits_from_the_default(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    default = "{nodes: 2, memory_mb: 128000, constraint: a100, additional_nodes: [{partition: new}]}"
    path.write_text(
        PARTITIONS
        + f"phases: {{phase2: {{walltime: 60}}, alone: {{additional_nodes: []}}, default: {default}}}\n"
        + "finetunings: {default: {gpus_per_node: 0}, mnli: {cpus_per_gpu: 4}}\n"
    )
    site = read_site(path, SCHEMA)
    assert site.size("phase2") == replace(site.size("default"), walltime=60)
    assert site.size("alone") == replace(site.size("default"), additional_nodes=())
    assert (site.finetuning_size("mnli").gpus_per_node, site.finetuning_size("mnli").cpus_per_node) == (0, 4)


def test_other_kinds_of_nodes_are_like_the_first_except_for_their_own_values(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    others = "[{nodes: 1, gpus_per_node: 2, partition: new}, {constraint: p100}]"
    path.write_text(
        PARTITIONS
        + f"phases: {{default: {{nodes: 2, gpus_per_node: 4, constraint: v100, additional_nodes: {others}}}}}"
    )
    kinds = read_site(path, SCHEMA).size("phase1").kinds
    assert [(kind.nodes, kind.processes_per_node, kind.partition, kind.constraint) for kind in kinds] == [
        (2, 4, "b", "v100"),
        (1, 2, "new", None),
        (2, 4, "b", "p100"),
    ]


def test_a_site_without_sizes_has_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(PARTITIONS + "phases: {phase2: {nodes: 4}}\nfinetunings: {squad_v1: {gpus_per_node: 4}}\n")
    site = read_site(path, SCHEMA)
    assert (site.size("phase1").cpus_per_node, site.size("phase1").walltime) == (8, 1440)
    assert (site.finetuning_size("mnli").cpus_per_node, site.finetuning_size("mnli").memory_mb) == (1, 8000)
    assert (site.finetuning_size("squad_v1").processes, site.finetuning_size("squad_v1").walltime) == (4, 240)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("account: x\n", "the key 'partitions' is missing"),
        (PARTITIONS + "acount: x\n", "unknown key 'acount'; did you mean 'account'?"),
        (PARTITIONS + "phases: {phase1: {nodes: 0}}\n", r"phases.phase1.nodes: given 0, allowed is at least 1"),
        (
            PARTITIONS + "phases: {default: {additional_nodes: [{node: 2}]}}",
            "phases.default.additional_nodes.0: unknown key 'node'",
        ),
        (PARTITIONS + "gpu: {peak_tflops: 312}\n", "gpu: the key 'share' is missing"),
        ("a: [", ", line 1, column 5: "),
        (PARTITIONS + "phases: {default: {walltime: 24:00:00}}\n", "reads 24:00:00 as a number in base 60"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(BertlineError) as error:
        read_site(path, SCHEMA)
    assert str(error.value).startswith(str(path))
    assert line in str(error.value)
    assert "\n" not in str(error.value)
