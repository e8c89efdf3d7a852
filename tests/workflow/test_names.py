"""Every result can be asked for by the path that a person reads, whether it exists or not."""

from __future__ import annotations

import contextlib
import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import ROOT, SMALL_CONFIG, environment, run_snakemake

from bertline.console import BertlineError
from bertline.planning.plan import Plan
from bertline.planning.requested import files_of_names
from bertline.planning.resolve import plan_of_files
from bertline.planning.target_states import target_states
from bertline.planning.targets import STAGES
from bertline.results import paths

pytestmark = pytest.mark.slow

OPTIONS = ("--profile", "profiles/local", "--configfile", "small.yaml")
RUN = "results/runs/first"


@pytest.fixture
def planned(workflow_folder: Path, sample: Path) -> Path:
    """Nothing is made. Of the book, the parts are known; of the dump, they are not."""
    (workflow_folder / "resources").mkdir()
    (workflow_folder / "resources/sample").symlink_to(sample)
    (workflow_folder / "small.yaml").write_text(yaml.safe_dump(SMALL_CONFIG, sort_keys=False))
    return workflow_folder


def plan_of(folder: Path, file: str = "small.yaml") -> Plan:
    """The plan as snakemake makes it there: the paths of a configuration are relative."""
    with contextlib.chdir(folder):
        return plan_of_files([file])


def dry_run(folder: Path, *arguments: str, files: tuple[str, ...] = ("small.yaml",)) -> str:
    return run_snakemake(folder, *OPTIONS[:-1], *files, "--dry-run", *arguments).stdout


def refused(folder: Path, *arguments: str) -> str:
    """The only line of a refusal."""
    finished = run_snakemake(folder, *OPTIONS, "--dry-run", *arguments, check=False)
    assert finished.returncode == 1
    assert "Traceback" not in finished.stdout
    (line,) = [line for line in finished.stdout.splitlines() if "error" in line.lower()]
    return line


def list_targets(folder: Path, *options: str) -> list[str]:
    command = [sys.executable, ROOT / "workflow/scripts/targets.py", "--configfile", "small.yaml", *options]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def made(output: str) -> set[str]:
    """What the jobs of a dry run make."""
    return {file for files in re.findall(r"^ +output: (.*)$", output, re.MULTILINE) for file in files.split(", ")}


def test_a_name_asks_for_the_files_of_the_folder_to_which_its_link_leads(planned: Path) -> None:
    plan = plan_of(planned)
    (run,) = plan.runs.values()
    phase1, dataset = run["phases"]["phase1"], run["dataset"]
    jobs = made(dry_run(planned, "--", f"{RUN}/phase1"))
    assert f"results/phases/{phase1}/model.safetensors" in jobs
    assert not any("finetunings" in file or run["phases"]["phase2"] in file for file in jobs)
    # Without the run's record, `make ui` and the report would find nothing.
    assert paths.RECORD.format(run="first", fingerprint=run["fingerprint"]) in jobs
    jobs = made(dry_run(planned, "--", f"{RUN}/dataset/seq128/00001.h5", f"./{RUN}/dataset/shards/"))
    assert f"results/datasets/{dataset}/seq128/00001.h5" in jobs
    assert f"results/datasets/{dataset}/seq128/00000.h5" not in jobs
    assert f"results/datasets/{dataset}/shards/held_out.txt.zst" in jobs
    book = plan.corpus_of_name["book"]
    jobs = made(dry_run(planned, "--", f"{RUN}/corpora/book", str(planned / RUN / "glue/cola/seed1")))
    assert any(file.startswith(f"results/corpora/{book}/sentences/") for file in jobs)
    assert f"results/finetunings/{run['finetunings']['glue/cola/seed1']}/metrics.json" in jobs


def test_the_listed_stages_are_the_targets_of_the_workflow(planned: Path) -> None:
    rules = re.findall(r"^rule (\w+):", (planned / "workflow/Snakefile").read_text(), re.MULTILINE)
    assert list(STAGES) == rules
    assert set(rules) < set(list_targets(planned, "--names"))
    assert list_targets(planned)[-1] == f"Stages, of all runs: {', '.join(rules)}"


def test_every_listed_name_can_be_requested(planned: Path) -> None:
    names = list_targets(planned, "--names")
    assert {f"{RUN}/{name}" for name in ("phase2", "export", "glue/cola/model", "corpora/wikipedia", "report")} <= set(
        names
    )
    assert len(names) > 20
    dry_run(planned, "--", *names)


def test_a_step_of_a_phase_is_kept_by_its_training_and_exported(planned: Path) -> None:
    output = dry_run(planned, "--printshellcmds", "--", f"{RUN}/phase1@step-3")
    (training,) = [line for line in output.splitlines() if "scripts/pretrain.py" in line]
    assert "--keep-steps=3" in training
    assert any(file.endswith("/exports/step-3") for file in made(output))
    assert "given step 5, allowed are 0 to 4" in refused(planned, "--", f"{RUN}/phase1@step-5")


def test_the_link_of_an_incomplete_result_is_not_a_source_file(planned: Path) -> None:
    (run,) = plan_of(planned).runs.values()
    folder = planned / "results/phases" / run["phases"]["phase1"]
    folder.mkdir(parents=True)
    (folder / "recipe.json").write_text("{}")
    link = planned / RUN / "phase1"
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)
    assert "rule pretrain_phase" in dry_run(planned, "--", f"{RUN}/phase1")


def test_names_work_with_forcerun_and_until(finished: Path) -> None:
    """Nothing is to be done in this graph, except what is forced and its followers."""
    options = (*OPTIONS, "--dry-run")
    assert (
        "Nothing to be done" in run_snakemake(finished, *options, "--", RUN, f"{RUN}/dataset/", f"{RUN}/phase1/").stdout
    )
    forced = run_snakemake(finished, *options, "--forcerun", f"{RUN}/phase2", "--", f"{RUN}/phase2").stdout
    assert re.findall(r"^pretrain_phase +1$", forced, re.MULTILINE)
    forced = run_snakemake(finished, *options, "--forcerun", f"{RUN}/phase1", "--until", f"{RUN}/phase2").stdout
    assert "finetune_task" not in forced
    assert {"glue/cola/seed1", "dataset", "corpora/book"} <= {
        str(path.relative_to(finished / RUN)) for path in (finished / RUN).rglob("*") if path.is_symlink()
    }
    listed = dict(line.split(maxsplit=1) for line in list_targets(finished)[2:-2])
    assert set(listed.values()) == {"finished"}
    (seed,) = [line for line in list_targets(finished, "--run", "first/glue/cola") if "seed1" in line]
    assert seed.split() == [f"{RUN}/glue/cola/seed1", "finished"]


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        (f"{RUN}/phase3", f"{RUN}/phase"),
        (f"{RUN}/glue/coal", f"{RUN}/glue/cola"),
        (f"{RUN}/dataset/seq128/00007.h5", f"{RUN}/dataset/seq128/0000"),
        ("results/runs/fist/dataset", f"{RUN}/dataset"),
        ("phase1", f"{RUN}/phase"),
        ("encod", "encode"),
        ("results/phases/0000000000000000/model.safetensors", "`make targets CONFIG=...` lists them"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_nearest(planned: Path, name: str, nearest: str) -> None:
    line = refused(planned, "--", name)
    assert line.startswith(f"error: {name}: there is no")
    assert nearest in line


def test_other_files_of_a_folder_can_be_requested_by_its_name(planned: Path) -> None:
    run = plan_of(planned).runs["first"]
    jobs = made(dry_run(planned, "--", f"{RUN}/phase1/trigram.json", f"{RUN}/dataset/tokenizer.json"))
    assert f"results/phases/{run['phases']['phase1']}/trigram.json" in jobs
    assert f"results/datasets/{run['dataset']}/tokenizer.json" in jobs


def test_a_task_without_data_is_left_out_and_says_so(planned: Path) -> None:
    (planned / "missing.yaml").write_text(yaml.safe_dump({**SMALL_CONFIG, "evaluation": {"glue": "nowhere"}}))
    plan = plan_of(planned, "missing.yaml")
    for name in (f"{RUN}/glue/cola/seed1", f"{RUN}/glue/cola/model"):
        with pytest.raises(BertlineError, match=rf"^{name}: .*glue\.cola is left out: .*nowhere"):
            files_of_names(plan, [name], [], lambda file: False)
    for under in ("first/glue/cola", "results/runs/first/glue/cola/"):
        assert target_states(plan, under) == [(f"{RUN}/glue/cola", "left out: its data is missing")]


@pytest.mark.parametrize("content", ["{}", "[", '{"parts": '], ids=str)
def test_a_damaged_listing_of_a_dump_is_one_line(planned: Path, content: str) -> None:
    (corpus,) = (corpus for corpus in plan_of(planned).corpora.values() if "wiki" in corpus)
    listing = planned / paths.DUMP_LISTING.format(wiki=corpus["wiki"], dump=corpus["settings"]["dump"])
    listing.parent.mkdir(parents=True)
    listing.write_text(content)
    for options in (("--dry-run",), ()):
        finished = run_snakemake(planned, *OPTIONS, *options, "--", f"{RUN}/phase1", check=False)
        assert finished.returncode == 1
        assert "Traceback" not in finished.stdout
        (line,) = [line for line in finished.stdout.splitlines() if "error" in line.lower()]
        assert re.match(r"error: resources/wikimedia/.*/parts\.json (is not JSON|lacks the key)", line)


def test_a_second_configfile_is_not_silently_taken_alone(planned: Path) -> None:
    line = refused(planned, "--configfile", "small.yaml")
    assert "give the files after one --configfile, as in --configfile a.yaml b.yaml" in line


def test_the_refusal_of_a_file_that_no_rule_makes_by_itself_names_what_to_request(planned: Path) -> None:
    (run,) = plan_of(planned).runs.values()
    log = planned / "results/phases" / run["phases"]["phase1"] / "checkpoints/training.log"
    log.parent.mkdir(parents=True)
    log.touch()
    assert f"ask for {RUN}/phase1" in refused(planned, "--", f"{RUN}/phase1/checkpoints/training.log")


def test_a_setting_of_the_command_line_makes_another_result_and_leaves_the_others(planned: Path) -> None:
    config: dict[str, Any] = copy.deepcopy(SMALL_CONFIG)
    config["runs"]["first"]["phases"]["phase2"]["steps"] = 3
    (planned / "other.yaml").write_text(yaml.safe_dump(config))
    (run,) = plan_of(planned, "other.yaml").runs.values()
    wanted = {f"results/phases/{key}/model.safetensors" for key in run["phases"].values()}
    setting = ("--config", "set=runs.first.phases.phase2.steps=3")
    assert wanted <= made(dry_run(planned, *setting, "--", f"{RUN}/phase2"))
    (planned / "steps.yaml").write_text("runs: {first: {phases: {phase2: {steps: 3}}}}\n")
    assert wanted <= made(dry_run(planned, "--", f"{RUN}/phase2", files=("small.yaml", "steps.yaml")))
    assert "did you mean 'runs.first.phases'" in refused(planned, "--config", "set=runs.first.phasis.phase2.steps=3")
