"""What `make clean` removes: the results of a plan that no other run has."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

from plan_helpers import CONFIG, PHASE, changed, inputs, plan_of

from bertline.files import write_json
from bertline.planning.names import write_links
from bertline.planning.plan import Plan, record
from bertline.planning.pruning import only_of
from bertline.planning.recipes import write_recipes
from bertline.results import paths

assert inputs  # the fixture


def write_record(plan: Plan, run: str) -> None:
    path = Path(paths.RECORD.format(run=run, fingerprint=plan.runs[run]["fingerprint"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record(plan, run))


def paths_of(plan: Plan) -> set[str]:
    return {str(path) for path in only_of(plan)}


def with_recipes(*folders: str) -> set[str]:
    return {*folders, *(f"results/recipes/{Path(folder).name}.json" for folder in folders)}


def test_what_a_run_of_another_configuration_shares_is_not_only_of_a_plan() -> None:
    plan = plan_of(CONFIG)
    write_record(plan, "first")
    phase1, phase2 = plan.runs["first"]["phases"].values()
    everything = paths_of(plan)
    assert {f"results/phases/{phase1}", f"results/phases/{phase2}", "results/runs/first"} <= everything

    theirs = copy.deepcopy(changed(runs__first__phases__phase2__steps=7))
    theirs["runs"] = {"theirs": {**theirs["runs"]["first"], "finetune": {}}}
    other = plan_of(theirs)
    write_record(other, "theirs")
    corpora = {f"results/corpora/{key}" for key in plan.corpora}
    datasets = {f"results/datasets/{key}" for key in plan.datasets}
    sets = {f"results/evaluation/{plan.evaluation['fingerprint']}"} if plan.evaluation else set()
    assert everything - paths_of(plan) == with_recipes(f"results/phases/{phase1}", *corpora, *datasets) | sets


def test_what_another_run_without_a_record_needs_is_not_only_of_a_plan() -> None:
    """It was asked for by a name: it has links, and the phase with which it begins is named by its recipe."""
    plan = plan_of(CONFIG)
    everything = paths_of(plan)
    start = {**PHASE, "steps": 5, "initial_weights": {"run": "first", "phase": "phase1"}}
    theirs = changed(runs__theirs={"dataset": "both", "model": "bert-tiny", "phases": {"own": start}})
    other = plan_of(theirs)
    write_links(other, existing_only=False)
    write_recipes(other)
    shutil.rmtree("results/runs/first")
    assert not Path("results/runs/theirs/record.json").exists()
    corpora = {f"results/corpora/{key}" for key in plan.corpora}
    datasets = {f"results/datasets/{key}" for key in plan.datasets}
    phase1 = f"results/phases/{plan.runs['first']['phases']['phase1']}"
    assert everything - paths_of(plan) == with_recipes(phase1, *corpora, *datasets)
