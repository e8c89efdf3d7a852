"""Names of results: links, states, and the record of a run."""

from __future__ import annotations

import json
import os
import runpy
from pathlib import Path

import pytest
import yaml
from plan_helpers import CONFIG, PHASE, ROOT, changed, inputs, make_files, plan_of, with_tasks

from bertline.console import BertlineError
from bertline.files import write_json
from bertline.planning.names import remove_old_links, write_links
from bertline.planning.plan import record, report_fingerprint
from bertline.planning.requested import files_of_names
from bertline.planning.target_states import target_states
from bertline.results import paths
from bertline.results.kept import model_of

assert inputs  # the fixture


def test_links_lead_from_names_to_folders_and_follow_the_configuration() -> None:
    plan = plan_of(CONFIG)
    write_links(plan, existing_only=False)
    run = plan.runs["first"]
    assert Path("results/runs/first/phase1").resolve() == Path("results/phases", run["phases"]["phase1"]).resolve()
    assert Path("results/runs/first/squad_v1/seed2").is_symlink()
    other = plan_of(changed(runs__first__seed=7))
    write_links(other, existing_only=True)
    assert Path("results/runs/first/phase1").readlink().name == run["phases"]["phase1"]
    write_links(other, existing_only=False)
    assert Path("results/runs/first/phase1").readlink().name == other.runs["first"]["phases"]["phase1"]


def links() -> set[str]:
    return {str(path.relative_to("results/runs")) for path in Path("results/runs").rglob("*") if path.is_symlink()}


def test_links_that_the_configuration_no_longer_has_are_removed_and_results_and_other_runs_stay() -> None:
    before, theirs = (changed()["runs"]["first"] for _ in range(2))
    phases = {"warm_up": PHASE, **before["phases"]}
    grid = {"squad_v1": {"grid": {"learning_rate": [1e-3, 1e-4]}}}
    plan = plan_of(changed(runs={"first": {**before, "phases": phases, "finetune": grid}, "theirs": theirs}))
    model = model_of(next(iter(plan.runs["first"]["finetunings"].values())))
    model.mkdir(parents=True)
    write_links(plan, existing_only=False)
    # Neither a person's own links nor files are the workflow's.
    run = Path("results/runs/first")
    (run / "best").symlink_to("phase1")
    (run / ".warm_up.part").symlink_to((run / "warm_up").readlink())  # which another process is just writing
    (run / "given").symlink_to(Path("results/phases/0123456789abcdef").absolute())
    (run / "glue").mkdir()
    (run / "notes.txt").touch()
    found = links()
    assert {"first/warm_up", "first/squad_v1/model", "first/squad_v1/learning_rate-0.001/seed1"} <= found

    none = changed(runs__first__finetune={"squad_v1": {"keep": "none"}})
    remove_old_links(plan_of(none))
    gone = {name for name in found if name.startswith(("first/squad_v1/", "first/warm_up"))}
    assert links() == found - gone
    assert model.exists()
    assert not (run / "squad_v1").exists()
    assert (run / "glue").exists()
    write_links(plan, existing_only=False)
    assert links() == found
    remove_old_links(plan)
    assert links() == found


def test_a_task_whose_data_is_absent_keeps_its_links() -> None:
    """As while a disk is not there."""
    plan = plan_of(CONFIG)
    write_links(plan, existing_only=False)
    found = links()
    Path("dev.json").unlink()
    without = plan_of(CONFIG)
    assert without.runs["first"]["skipped"]
    remove_old_links(without)
    assert links() == found
    remove_old_links(plan_of(with_tasks(CONFIG["evaluation"], {})))
    assert links() == {name for name in found if not name.startswith("first/squad_v1/")}


def test_a_copy_in_the_place_of_a_link_is_one_line() -> None:
    """It would be taken for the result of every later configuration."""
    plan = plan_of(CONFIG)
    kept = paths.KEPT_MODEL.format(kept=next(iter(plan.kept)))
    copies = ["results/report/latest", "results/runs/first/phase2", kept]
    for copy in copies:
        Path(copy).mkdir(parents=True)
    said = rf"^results/report/latest is a copy in the place of a link, .*: rm -r {' '.join(copies)}$"
    for existing_only in (True, False):
        with pytest.raises(BertlineError, match=said):
            write_links(plan, existing_only=existing_only)


def test_a_lost_link_to_the_best_model_is_made_again() -> None:
    """Object stores and `rsync -r` drop links."""
    plan = plan_of(CONFIG)
    kept, choice = next((key, choice) for key, choice in plan.kept.items() if choice["keep"] == "best")
    best, *others = choice["finetunings"]
    write_links(plan, existing_only=True)
    assert not Path(paths.KEPT_MODEL.format(kept=kept)).is_symlink()
    scores = dict.fromkeys((best, *others), 50.0)
    write_json(paths.KEPT_CHOICE.format(kept=kept), {"best": best, "kept": [best], "scores": scores})
    write_links(plan, existing_only=True)
    assert not Path(paths.KEPT_MODEL.format(kept=kept)).is_symlink()  # the model was deleted
    model_of(best).mkdir(parents=True)
    write_links(plan, existing_only=True)
    assert Path(paths.KEPT_MODEL.format(kept=kept)).resolve() == model_of(best).resolve()


def test_names_alone_may_be_those_of_a_run_or_below_one() -> None:
    """As `make targets NAMES=yes RUN=first/squad_v1` lists them."""
    Path("made.yaml").write_text(yaml.safe_dump(CONFIG))
    list_targets = runpy.run_path(str(ROOT / "workflow/scripts/targets.py"))["list_targets"]
    task = "results/runs/first/squad_v1"
    names = list_targets(["made.yaml"], run="first/squad_v1", names=True).split("\n")
    assert {task, f"{task}/seed1"} <= set(names)
    assert all(name.startswith(task) for name in names)
    assert {*names, "pretrain"} < set(list_targets(["made.yaml"], names=True).split("\n"))
    with pytest.raises(BertlineError, match="there is no target of this name; did you mean first"):
        list_targets(["made.yaml"], run="frist", names=True)


def test_a_name_of_a_training_has_its_state() -> None:
    plan = plan_of(CONFIG)
    steps, folder = PHASE["steps"], Path("results/phases", plan.runs["first"]["phases"]["phase1"])

    def state() -> str:
        return dict(target_states(plan, "first/phase1"))["results/runs/first/phase1"]

    assert state() == "planned"
    lock = folder / paths.LOCK
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"pid": 7, "host": "gpu1", "process_started": 0, "job": "12"}))
    assert state() == "trains: no step is saved"
    (folder / paths.DURABLE).write_text('{"step": 3}')
    assert state() == f"trains: step 3 of {steps} is saved"
    os.utime(lock, (0, 0))  # no heartbeat
    assert state() == f"started: step 3 of {steps} is saved"


@pytest.mark.parametrize("name", ["phase1", "squad_v1/seed1"])
def test_a_name_asks_for_each_lost_output_of_a_training(name: str) -> None:
    """Of which any makes the plan count the training as one to be made."""
    plan = plan_of(CONFIG)

    def asked() -> set[str]:
        return set(files_of_names(plan, [f"results/runs/first/{name}"], (), lambda file: True))

    of_training = paths.PHASE_OUTPUTS if name == "phase1" else paths.FINETUNING_OUTPUTS
    folders = sorted({Path(file).parent for file in asked() if Path(file).name == of_training[0]})
    assert len(folders) == 1
    make_files(*(f"{folder}/{output}" for folder in folders for output in of_training))
    complete = asked()
    for output in of_training[1:]:
        (folders[0] / output).unlink()
        assert asked() == complete | {f"{folders[0]}/{output}"}
        make_files(f"{folders[0]}/{output}")


def test_the_latest_report_is_the_last_one_that_exists() -> None:
    made, planned = plan_of(CONFIG), plan_of(changed(runs__first__seed=7))
    page = Path("results/report", report_fingerprint(made), "index.html")
    page.parent.mkdir(parents=True)
    page.touch()
    for plan in (made, planned):
        write_links(plan, existing_only=False)
        assert Path("results/report/latest/index.html").resolve() == page.resolve()


def test_the_record_names_every_part_of_a_run() -> None:
    described = record(plan_of(CONFIG), "first")
    assert [phase["name"] for phase in described["phases"]] == ["phase1", "phase2"]
    assert [finetuning["name"] for finetuning in described["finetunings"]] == [
        "squad_v1/seed1",
        "squad_v1/seed2",
        "squad_v1/random-weights-0.001/seed1",
        "squad_v1/random-weights-0.001/seed2",
    ]
