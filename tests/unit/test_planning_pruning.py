"""What `make clean` removes, the results of a plan that no other run has; and what `make prune` keeps."""

from __future__ import annotations

import copy
import errno
import fcntl
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from plan_helpers import CONFIG, PHASE, changed, inputs, plan_of

from bertline.files import write_json
from bertline.planning.entries import ChoiceRecipe
from bertline.planning.names import write_links
from bertline.planning.plan import Plan, record
from bertline.planning.pruning import only_of, prunable
from bertline.planning.recipes import write_recipes
from bertline.results import paths
from bertline.results.kept import model_of
from bertline.unfinished import is_in_use, unfinished_folder

assert inputs  # the fixture

CHECKOUT = Path(__file__).parents[2]
CLEAN, PRUNE = (CHECKOUT / "workflow/scripts" / name for name in ("clean.py", "prune.py"))


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
    """It has links. The phase with which it begins is named by its recipe, and where that begins by its own."""
    ours = changed(runs__first__phases__phase3={**PHASE, "steps": 3})
    plan = plan_of(ours)
    everything = paths_of(plan)
    start = {**PHASE, "steps": 5, "initial_weights": {"run": "first", "phase": "phase3"}}
    theirs = {
        **ours,
        "runs": {**ours["runs"], "theirs": {"dataset": "both", "model": "bert-tiny", "phases": {"own": start}}},
    }
    other = plan_of(theirs)
    write_links(other, existing_only=False)
    write_recipes(other)
    shutil.rmtree("results/runs/first")
    assert not Path("results/runs/theirs/record.json").exists()
    corpora = {f"results/corpora/{key}" for key in plan.corpora}
    datasets = {f"results/datasets/{key}" for key in plan.datasets}
    phases = {f"results/phases/{key}" for key in plan.runs["first"]["phases"].values()}
    assert everything - paths_of(plan) == with_recipes(*phases, *corpora, *datasets)


def test_of_a_result_that_is_a_link_the_link_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dataset on a larger disk."""
    Path("made.yaml").write_text(yaml.safe_dump(CONFIG))
    plan = plan_of(CONFIG)
    (dataset,) = plan.built_datasets
    elsewhere = tmp_path / "large-disk" / dataset
    elsewhere.mkdir(parents=True)
    link = Path(paths.DATASET.format(dataset=dataset))
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    run, sample = Path("results/runs/first"), Path("resources/sample")
    for folder in (run, sample):
        folder.mkdir(parents=True)
    runpy.run_path(str(CLEAN))["clean"]("made.yaml")
    assert not link.is_symlink()
    assert not run.exists()
    assert not sample.exists()
    assert elsewhere.is_dir()
    assert f"removed {link}, a link; {elsewhere} stays" in capsys.readouterr().out


def test_what_cannot_be_removed_is_not_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(path: Path) -> None:
        if path.exists():
            raise PermissionError(path)

    Path("made.yaml").write_text(yaml.safe_dump(CONFIG))
    Path("results/runs/first").mkdir(parents=True)
    clean = runpy.run_path(str(CLEAN))["clean"]
    clean.__globals__["remove"] = refuse
    with pytest.raises(PermissionError):
        clean("made.yaml")
    assert capsys.readouterr().out == ""


def test_a_table_in_the_folder_of_the_sample_is_kept() -> None:
    """Where an earlier `make mine OUTPUT=sample.yaml` put it."""
    Path("made.yaml").write_text(yaml.safe_dump(CONFIG))
    table, books = Path("resources/sample/reviews-train.jsonl"), Path("resources/sample/books")
    books.mkdir(parents=True)
    table.write_text("{}\n")
    Path("resources/sample/sample.json").write_text("{}\n")
    runpy.run_path(str(CLEAN))["clean"]("made.yaml")
    assert list(Path("resources/sample").iterdir()) == [table]


def finish(finetunings: list[str]) -> None:
    """Write what finished fine-tunings leave."""
    for key in finetunings:
        for output in paths.FINETUNING_OUTPUTS:
            file = Path(paths.FINETUNING.format(finetuning=key), output)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_json(file, {})
        model_of(key).mkdir()


def choose(choice: ChoiceRecipe) -> None:
    """Write the choice of the first fine-tuning."""
    best, scores = choice["finetunings"][0], dict.fromkeys(choice["finetunings"], 50.0)
    write_json(paths.KEPT_CHOICE.format(kept=choice["fingerprint"]), {"best": best, "kept": [best], "scores": scores})


def test_models_among_which_a_choice_is_still_to_be_made_are_not_prunable() -> None:
    plan = plan_of(CONFIG)
    choice = next(choice for choice in plan.kept.values() if choice["keep"] == "best" and choice["finetunings"][1:])
    finish(choice["finetunings"])
    models = {model_of(key) for key in choice["finetunings"]}
    assert not models & {entry.path for entry in prunable(plan)}
    choose(choice)
    assert models & {entry.path for entry in prunable(plan)} == set(map(model_of, choice["finetunings"][1:]))


def test_a_model_is_prunable_when_what_is_predicted_with_it_is_there() -> None:
    predict = {"answers": {"model": "results/runs/first/squad_v1/seed2", "inputs": ["dev.json"]}}
    plan = plan_of({**CONFIG, "predict": predict})
    choice = plan.kept[plan.runs["first"]["kept"]["squad_v1"]]
    finish(choice["finetunings"])
    choose(choice)
    (output,) = map(Path, plan.predictions)
    second = model_of(plan.runs["first"]["finetunings"]["squad_v1/seed2"])
    assert second not in {entry.path for entry in prunable(plan)}
    output.parent.mkdir(parents=True)
    output.touch()
    assert second in {entry.path for entry in prunable(plan)}


def test_the_checkpoints_that_another_configuration_asked_for_are_not_prunable() -> None:
    plan = plan_of(CONFIG)
    key = plan.runs["first"]["phases"]["phase1"]
    folder = Path(paths.PHASE.format(phase=key))
    for output in (*paths.PHASE_OUTPUTS, paths.DURABLE):
        (folder / output).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / output, {"step": PHASE["steps"], "published_step": 8})
    for step in (2, 5, 8, PHASE["steps"]):
        (folder / paths.CHECKPOINTS / paths.CHECKPOINT.format(step=step)).mkdir()
    Path(paths.CHECKPOINT_EXPORT.format(phase=key, step=5)).mkdir(parents=True)  # of phase1@step-5
    checkpoints = {entry.path.name for entry in prunable(plan) if entry.path.parent.name == paths.CHECKPOINTS}
    assert checkpoints == {paths.CHECKPOINT.format(step=2)}


def test_the_command_that_deletes_works_in_this_folder(capsys: pytest.CaptureFixture[str]) -> None:
    Path("made.yaml").write_text(yaml.safe_dump(CONFIG))
    prune, settings = runpy.run_path(str(PRUNE))["prune"], ["runs.first.seed=7"]
    prune(["made.yaml"], settings=settings)
    (advised,) = re.findall(r"`(PYTHONPATH=.*)` deletes", capsys.readouterr().out)
    assert advised.endswith("/prune.py --configfile made.yaml --set runs.first.seed=7 --delete")
    done = subprocess.run(advised, shell=True, capture_output=True, text=True, check=True)  # noqa: S602
    assert "deleted: 0.0 MB" in done.stdout
    script = Path("workflow/scripts/prune.py")
    script.parent.mkdir(parents=True)
    script.touch()  # as in a checkout
    prune(["made.yaml"], settings=settings)
    assert "`make prune CONFIG=made.yaml SET=runs.first.seed=7 DELETE=yes` deletes" in capsys.readouterr().out


def test_an_old_unfinished_folder_is_pruned_unless_a_process_uses_it() -> None:
    """A ranking reads its tokenized collection for as long as it scores, and changes nothing there."""
    plan = plan_of(CONFIG)
    with unfinished_folder(Path("results/predictions/run.trec")) as folder:
        inside = folder / ".passages.npy.part"
        inside.touch()
        os.utime(inside, (0, 0))
        os.utime(folder, (0, 0))
        assert not prunable(plan)
    folder.mkdir()
    os.utime(folder, (0, 0))
    assert [found.path for found in prunable(plan)] == [folder]


def test_an_unfinished_folder_is_locked_even_if_another_process_looks_at_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter([BlockingIOError()])
    flock = fcntl.flock

    def looked_at(descriptor: int, flags: int) -> None:
        if flags & fcntl.LOCK_NB and (error := next(looks, None)):
            raise error
        flock(descriptor, flags)

    monkeypatch.setattr(fcntl, "flock", looked_at)
    with unfinished_folder(Path("results/predictions/run.trec")) as folder:
        monkeypatch.setattr(fcntl, "flock", flock)
        assert is_in_use(folder)
        with unfinished_folder(Path("results/predictions/run.trec")):
            assert folder.exists()


def test_an_unfinished_folder_of_a_file_system_without_locks_is_pruned_when_it_is_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unsupported(descriptor: int, flags: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with unfinished_folder(Path("results/predictions/run.trec")) as folder:
        assert not prunable(plan_of(CONFIG))
        os.utime(folder, (0, 0))
        assert [found.path for found in prunable(plan_of(CONFIG))] == [folder]
