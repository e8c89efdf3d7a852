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
# As `sinfo --exact --noconvert --noheader --format=%R|%D|%l|%G|%c|%m|%s|%a|%M` prints them; `hidden` only with --all.
LISTED = "cpu|10|1-00:00:00|(null)|64|256000\na100|4|2-00:00:00|gpu:a100:4(S:0-1)|48|512000\n"
LISTED += "mix|8|12:00:00|gpu:2|64|128000\n"
# Of a partition whose GPUs are shared, and whose memory slurm.conf does not say.
LISTED += "shared|1|infinite|gpu:a100:no_consume:8(S:0-1),mps:a100:800|128|1\n"
# Nodes of three kinds.
LISTED += "unlike|2|infinite|gpu:1|16|900000\nunlike|3|infinite|gpu:4|96|64000\nunlike|1|infinite|gpu:2|8|64000\n"
HIDDEN = "hidden|2|infinite|gpu:h100:8|64|1000000\n"
LISTED, HIDDEN = (lines.replace("\n", "|1-infinite|up|OFF\n") for lines in (LISTED, HIDDEN))
# Of partitions that limit the nodes of a job.
LISTED += "single|9|infinite|gpu:1|8|64000|1\nfew|9|infinite|gpu:1|8|64000|1-4\n"
LISTED = LISTED.replace("|1\n", "|1|up|REQUEUE\n").replace("|1-4\n", "|1-4|up|REQUEUE\n")
LISTED += "drained|1|infinite|gpu:1|8|64000|1-infinite|drain|OFF\n"
LISTED += "inactive|1|infinite|gpu:1|8|64000|1-infinite|inactive|OFF\n"
LISTED += "down|1|infinite|gpu:1|8|64000|1-infinite|down|GANG,CANCEL\n"
LISTED += "cancels|1|infinite|gpu:1|8|64000|1-infinite|up|CANCEL\n"


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """What Slurm's commands print; None of one that fails."""
    answers: dict[str, str | None] = {}

    def output_of(command: str, *words: str) -> str | None:
        if command != "sinfo":
            return answers.get(command, "")
        listed = LISTED + HIDDEN * ("--all" in words)
        is_exact = {"--exact", "--noconvert"} <= set(words)  # else numbers as 8+ and 900K
        return listed if is_exact else listed.replace("|8|", "|8+|").replace("000|1", "K|1")

    monkeypatch.setattr(site_check, "output_of", output_of)
    monkeypatch.setattr(site_check.shutil, "which", lambda command: f"/usr/bin/{command}")
    return answers


def check(
    tmp_path: Path, gpu: str, *jobs: LongestJob, account: str | None = None, qos: str | None = None, **size: int
) -> None:
    site = {"partitions": {"cpu": "cpu", "gpu": gpu}, "phases": {"default": {"gpus_per_node": 1, **size}}}
    site |= {key: value for key, value in {"account": account, "qos": qos}.items() if value}
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


def test_a_job_has_no_more_nodes_than_its_partition_allows_one(tmp_path: Path) -> None:
    """Slurm would keep it waiting without end."""
    check(tmp_path, "single", nodes=1)
    check(tmp_path, "single,few", nodes=4)
    for gpu, nodes, most in (("single", 2, 1), ("few", 5, 4)):
        line = rf"phases\.default\.nodes: given {nodes}, partition '{gpu}' allows {most} in a job$"
        with pytest.raises(BertlineError, match=line):
            check(tmp_path, gpu, nodes=nodes)


def test_nodes_of_several_kinds_in_one_partition_are_summed(tmp_path: Path, answers: dict[str, str | None]) -> None:
    site = {"partitions": {"cpu": "cpu", "gpu": "a100"}}
    answers["sacct"] = ""

    def check_nodes(partition: str, *additional: dict[str, object]) -> None:
        size = {"nodes": 3, "walltime": 600, "partition": partition, "additional_nodes": list(additional)}
        (tmp_path / "site.yaml").write_text(yaml.safe_dump({**site, "phases": {"default": size}}))
        check_site(read_site(tmp_path / "site.yaml", ROOT / "config/site.schema.yaml"), status_command=None)

    check_nodes("a100", {"nodes": 1})
    check_nodes("a100", {"nodes": 4, "partition": "mix"}, {"nodes": 4, "partition": "mix"})
    check_nodes("a100,mix", {"nodes": 4})
    line = r"phases\.default\.additional_nodes: given 5 nodes of partition 'a100' in all, it has 4$"
    with pytest.raises(BertlineError, match=line):
        check_nodes("a100", {"nodes": 2})
    with pytest.raises(BertlineError, match=r"given 9 nodes of partition 'mix' in all, it has 8"):
        check_nodes("a100", {"nodes": 8, "partition": "mix"}, {"nodes": 1, "partition": "mix"})


def test_cpus_and_memory_fit_the_largest_node_of_a_partition(tmp_path: Path) -> None:
    check(tmp_path, "unlike", gpus_per_node=4, cpus_per_gpu=24, memory_mb=900000)
    check(tmp_path, "unlike", nodes=6)
    check(tmp_path, "mix,a100", cpus_per_gpu=48, memory_mb=512000)
    check(tmp_path, "shared", memory_mb=10**6)
    for size, line in (
        ({"nodes": 7}, r"nodes: given 7, partition 'unlike' has 6"),
        ({"gpus_per_node": 5}, r"gpus_per_node: given 5, partition 'unlike' has nodes with 4"),
        ({"gpus_per_node": 4, "cpus_per_gpu": 25}, r"cpus_per_gpu: given 25, 100 on a node, .* has nodes with 96"),
        ({"gpus_per_node": 0, "cpus_per_gpu": 97}, r"cpus_per_gpu: given 97, 97 on a node, .* has nodes with 96"),
        ({"memory_mb": 900001}, r"phases\.default\.memory_mb: given 900001, .* has nodes with 900000"),
    ):
        with pytest.raises(BertlineError, match=line):
            check(tmp_path, "unlike", **size)


def test_an_account_is_found_in_any_case_and_an_unknown_one_is_one_line(
    tmp_path: Path, answers: dict[str, str | None]
) -> None:
    answers["sacctmgr"] = "theirs\nours\n"
    check(tmp_path, "a100", account="Ours")
    with pytest.raises(BertlineError, match=r"account: given 'Mine', yours are ours, theirs"):
        check(tmp_path, "a100", account="Mine")


@pytest.mark.parametrize(
    ("storage", "line"),
    [
        ("(null)", r"site\.yaml: account: this cluster keeps no accounts; leave it out"),
        ("accounting_storage/none", r"site\.yaml: account: this cluster keeps no accounts; leave it out"),
        ("accounting_storage/slurmdbd", r"account: Slurm's accounting does not answer \(sacctmgr fails\); try again"),
    ],
)
def test_accounting_that_is_away_is_not_taken_for_none(
    tmp_path: Path, answers: dict[str, str | None], storage: str, line: str
) -> None:
    config = f"AccountingStorageTRES   = cpu,mem\nAccountingStorageType   = {storage}\nAccountingStorageUser   = N/A\n"
    answers |= {"sacctmgr": None, "scontrol": config}
    with pytest.raises(BertlineError, match=line):
        check(tmp_path, "a100", account="ours")


def test_a_qos_that_the_cluster_does_not_have_is_one_line(tmp_path: Path, answers: dict[str, str | None]) -> None:
    answers["sacctmgr"] = "normal\nhigh\n"
    check(tmp_path, "a100", qos="High")
    with pytest.raises(BertlineError, match=r"site\.yaml: qos: given 'none', this cluster has high, normal$"):
        check(tmp_path, "a100", qos="none")
    # As sbatch takes several.
    check(tmp_path, "a100", qos="normal,High")
    with pytest.raises(BertlineError, match=r"qos: given 'none', this cluster has high, normal$"):
        check(tmp_path, "a100", qos="high,none")
    answers["sacctmgr"] = None
    check(tmp_path, "a100", qos="none")


def test_a_run_without_sacct_does_not_need_its_answer(tmp_path: Path, answers: dict[str, str | None]) -> None:
    answers["sacct"] = None
    check(tmp_path, "a100")
    with pytest.raises(BertlineError, match="sacct does not answer here"):
        check_site(read_site(tmp_path / "site.yaml", ROOT / "config/site.schema.yaml"), status_command="sacct")


def test_jobs_go_to_a_partition_that_accepts_them(tmp_path: Path) -> None:
    """Those of one that is down wait."""
    check(tmp_path, "drained", LongestJob("down", {"a": 1}), LongestJob("drained,mix", {"a": 1}))
    line = (
        r"site\.yaml: partitions\.gpu: a partition that accepts no jobs now \('drained' is drain, says sinfo\); choose"
    )
    with pytest.raises(BertlineError, match=line):
        check(tmp_path, "drained", LongestJob("drained", {"a": 1}))
    with pytest.raises(BertlineError, match=r"site\.yaml: a part.*'drained' is drain, 'inactive' is inactive, says"):
        check(tmp_path, "a100", LongestJob("drained,inactive", {"a": 1}))


def test_a_partition_that_cancels_what_it_preempts_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(tmp_path, "cancels", LongestJob("mix,down", {"a": 1}), LongestJob("down", {"b": 1}))
    (line,) = capsys.readouterr().err.splitlines()  # not of a partition without jobs
    assert line.startswith("warning: partition 'down' cancels the jobs that it preempts")
    check(tmp_path, "down", LongestJob("cancels", {"a": 1}))
    assert capsys.readouterr().err.startswith("warning: partition 'cancels' ")


def test_without_sacctmgr_an_account_is_left_to_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_check.shutil, "which", lambda command: None if command == "sacctmgr" else "/usr/bin/x")
    check(tmp_path, "a100", account="Mine")


def test_only_the_sizes_that_a_run_uses_are_checked(tmp_path: Path) -> None:
    small = {"gpus_per_node": 1, "cpus_per_gpu": 4, "memory_mb": 4000}
    phases = {"default": {**small, "nodes": 99}, "phase1": {"nodes": 1}}
    content = {"partitions": {"cpu": "cpu", "gpu": "a100"}, "phases": phases, "finetunings": {"default": small}}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(content))
    site = read_site(tmp_path / "site.yaml", ROOT / "config/site.schema.yaml")
    check_site(site.only_used(["phase1"], ["glue/rte"], predicts=False), status_command="squeue")
    with pytest.raises(BertlineError, match=r"phases\.default\.nodes: given 99"):
        check_site(site.only_used(["phase1", "phase2"], [], predicts=False), status_command="squeue")


def test_the_default_size_of_fine_tunings_is_checked_if_predictions_get_their_gpu_by_it(tmp_path: Path) -> None:
    content = {"partitions": {"cpu": "cpu", "gpu": "cpu"}, "finetunings": {"mnli": {"gpus_per_node": 0}}}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(content))
    site = read_site(tmp_path / "site.yaml", ROOT / "config/site.schema.yaml")
    check_site(site.only_used([], ["mnli"], predicts=False), status_command="squeue")
    with pytest.raises(BertlineError, match=r"finetunings\.default\.gpus_per_node: given 1, partition 'cpu' has nodes"):
        check_site(site.only_used([], ["mnli"], predicts=True), status_command="squeue")


def test_a_hidden_partition_is_found_and_an_unknown_one_of_several_is_one_line(tmp_path: Path) -> None:
    check(tmp_path, "hidden")
    with pytest.raises(
        BertlineError, match=r"partitions\.gpu: given 'big', this cluster has cpu, a100, .*cancels, hidden$"
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
