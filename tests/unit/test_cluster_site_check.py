"""What a site file names, compared with what Slurm lists."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bertline.cluster import site_check
from bertline.cluster.site_check import check_site
from bertline.cluster.walltimes import LongestJob
from bertline.console import BertlineError
from bertline.settings.site import read_site

ROOT = Path(__file__).parents[2]
# As `sinfo --noheader --format=%R|%D|%l|%G` prints them; `hidden` only with --all.
LISTED = "cpu|10|1-00:00:00|(null)\na100|4|2-00:00:00|gpu:a100:4(S:0-1)\nmix|8|12:00:00|gpu:2\n"
# Of a partition whose GPUs are shared.
LISTED += "shared|1|infinite|gpu:a100:no_consume:8(S:0-1),mps:a100:800\n"
HIDDEN = "hidden|2|infinite|gpu:h100:8\n"


@pytest.fixture(autouse=True)
def slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    def output_of(command: str, *words: str) -> str:
        return LISTED + HIDDEN * ("--all" in words) if command == "sinfo" else ""

    monkeypatch.setattr(site_check, "output_of", output_of)
    monkeypatch.setattr(site_check.shutil, "which", lambda command: f"/usr/bin/{command}")


def check(tmp_path: Path, gpu: str, *jobs: LongestJob, **size: int) -> None:
    site = {"partitions": {"cpu": "cpu", "gpu": gpu}, "phases": {"default": {"gpus_per_node": 1, **size}}}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))
    check_site(read_site(tmp_path / "site.yaml", ROOT / "config/site.schema.yaml"), status_command="squeue", jobs=jobs)


def test_several_partitions_offer_what_one_of_them_does(tmp_path: Path) -> None:
    check(tmp_path, "mix,a100", nodes=8, walltime=600)
    check(tmp_path, "mix,a100", nodes=4, walltime=2 * 24 * 60)
    check(tmp_path, "mix,a100", gpus_per_node=4)
    check(tmp_path, "mix,hidden", walltime=30 * 24 * 60)
    for size, line in (
        ({"nodes": 9}, "nodes: given 9, partition 'mix' has 8"),
        ({"gpus_per_node": 5}, "gpus_per_node: given 5, partition 'mix' has nodes with 2"),
        ({"walltime": 2 * 24 * 60 + 1}, "walltime: given 2881 minutes, partition 'mix' allows 720"),
        (
            {"nodes": 8, "walltime": 2 * 24 * 60},
            "walltime: given 2880 minutes, partition 'mix' allows 720",
        ),  # no single one has both
    ):
        with pytest.raises(BertlineError, match=line):
            check(tmp_path, "mix,a100", **size)


def test_a_hidden_partition_is_found_and_an_unknown_one_of_several_is_one_line(tmp_path: Path) -> None:
    check(tmp_path, "hidden")
    with pytest.raises(
        BertlineError, match=r"partitions\.gpu: given 'big', this cluster has cpu, a100, mix, shared, hidden"
    ):
        check(tmp_path, "a100,big")


def test_gpus_that_jobs_share_are_counted(tmp_path: Path) -> None:
    check(tmp_path, "shared", gpus_per_node=8)
    with pytest.raises(BertlineError, match="partition 'shared' has nodes with 8"):
        check(tmp_path, "shared", gpus_per_node=9)


def test_the_walltime_of_a_job_fits_one_of_its_partitions(tmp_path: Path) -> None:
    check(
        tmp_path, "a100", LongestJob("mix,a100", {"predict_files": 13 * 60}), LongestJob("shared", {"read_part": 99999})
    )
    full = LongestJob("cpu", {"extract_part": 150, "clean_part": 30}, "text", 8)
    check(tmp_path, "a100", full)
    for job, line in (
        (LongestJob("mix", {"read_part": 721}), r"asks for 721 minutes, .*'mix' allows 720; .* read_part:runtime=720$"),
        (LongestJob("cpu", full.minutes, "text", 9), r"1620 minutes \(9 of 180, .*give --group-components text=8$"),
        (
            LongestJob("cpu", {"extract_part": 1440, "clean_part": 30}, "text", 2),
            r"--group-components text=1 --set-resources extract_part:runtime=720 clean_part:runtime=720$",
        ),
        (LongestJob("big", {"read_part": 1}), r"slurm_partition of read_part: given 'big', this cluster has cpu"),
    ):
        with pytest.raises(BertlineError, match=line):
            check(tmp_path, "a100", job)
