"""What `make clean` removes: the results of a plan that no other run has."""

from __future__ import annotations

import copy
from pathlib import Path

from plan_helpers import CONFIG, changed, inputs, plan_of

from bertline.files import write_json
from bertline.planning.plan import Plan, record
from bertline.planning.pruning import only_of
from bertline.results import paths

assert inputs  # the fixture


def write_record(plan: Plan, run: str) -> None:
    path = Path(paths.RECORD.format(run=run, fingerprint=plan.runs[run]["fingerprint"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record(plan, run))


def folders_of(plan: Plan) -> set[str]:
    return {str(folder) for folder in only_of(plan)}


def test_what_a_run_of_another_configuration_shares_is_not_only_of_a_plan() -> None:
    plan = plan_of(CONFIG)
    write_record(plan, "first")
    phase1, phase2 = plan.runs["first"]["phases"].values()
    everything = folders_of(plan)
    assert {f"results/phases/{phase1}", f"results/phases/{phase2}", "results/runs/first"} <= everything

    theirs = copy.deepcopy(changed(runs__first__phases__phase2__steps=7))
    theirs["runs"] = {"theirs": {**theirs["runs"]["first"], "finetune": {}}}
    other = plan_of(theirs)
    write_record(other, "theirs")
    corpora = {f"results/corpora/{key}" for key in plan.corpora}
    datasets = {f"results/datasets/{key}" for key in plan.datasets}
    assert everything - folders_of(plan) == {f"results/phases/{phase1}", *corpora, *datasets}
