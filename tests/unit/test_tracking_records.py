"""Reading a run record and its stages."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from synthetic_runs import journal_line, write, write_finetuning, write_journal, write_run

from bertline.console import BertlineError
from bertline.fingerprint import fingerprint
from bertline.results.describe import describe_network, flatten
from bertline.results.journal import read_journal, read_last_points
from bertline.results.records import Finetuning, read_record, records_in
from bertline.tracking.run_tree import DatasetInput, Entry, _task_dataset, lay_out


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_run(tmp_path, tasks=("squad_v1", "cola"), seeds=2)


def test_journal_is_read_up_to_the_durable_step(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal.jsonl", [journal_line(step) for step in (10, 20, 30, 40)])
    assert [point.step for point in read_journal(tmp_path / "journal.jsonl", last_step=30)] == [10, 20, 30]


def test_a_line_still_being_written_is_left_out(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(json.dumps(journal_line(10)) + "\n" + json.dumps(journal_line(20)))
    assert [point.step for point in read_journal(journal)] == [10]


def test_the_last_points_of_a_long_journal_are_whole_and_follow_each_other(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    write_journal(journal, [journal_line(step) for step in range(1, 1001)])
    points = read_last_points(journal)
    assert 100 < len(points) < 1000
    assert points == read_journal(journal)[-len(points) :]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    journal.write_text(json.dumps(journal_line(10)) + '\n{"step": 20}\n')
    with pytest.raises(BertlineError, match=r"journal\.jsonl line 2"):
        read_journal(journal)


def test_a_value_that_is_not_a_number_is_kept_as_nan(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"step": 1, "timestamp": 5, "metrics": {"a": NaN, "b": null}}\n')
    assert all(math.isnan(value) for value in read_journal(tmp_path / "journal.jsonl")[0].metrics.values())


def test_record_without_a_key_is_one_line_naming_it(record: Path) -> None:
    content = json.loads(record.read_text())
    del content["experiment"]
    write(record, content)
    with pytest.raises(BertlineError, match="lacks the key 'experiment'"):
        read_record(record)


def test_a_record_of_another_project_is_one_line(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results would be looked for here, and every stage be one that is not finished."""
    here = tmp_path / "here"
    write_run(here, tasks=())
    disk = tmp_path / "disk"
    Path("results").rename(disk)
    Path("results").symlink_to(disk)
    monkeypatch.chdir(here)
    for given in (tmp_path / record, Path("..") / record):
        with pytest.raises(BertlineError, match=f"^{given} is of the project in {tmp_path}; run this there$"):
            read_record(given)


@pytest.mark.parametrize("linked", ["results", "results/runs", "results/runs/demo"])
def test_a_record_of_this_project_is_read_by_any_of_its_paths(record: Path, tmp_path: Path, linked: str) -> None:
    disk = tmp_path / "disk" / linked
    disk.parent.mkdir(parents=True)
    Path(linked).rename(disk)
    Path(linked).symlink_to(disk)
    Path("link.json").symlink_to(record)
    for given in (record, record.absolute(), record.resolve(), Path("link.json")):
        assert read_record(given).finished
    shutil.copy(record, "copy.json")
    assert read_record("copy.json").finished


def test_the_folder_of_a_run_stands_for_its_record(record: Path) -> None:
    Path("results/runs/demo/record.json").symlink_to(record.name)
    assert records_in(["results/runs/demo"]) == records_in(["results/runs"]) == [Path("results/runs/demo/record.json")]


def test_a_phase_without_its_recipe_is_unfinished(record: Path) -> None:
    Path("results/phases/phase2/recipe.json").unlink()
    run = read_record(record)
    assert [phase.finished for phase in run.phases] == [True, False]
    assert not run.finished


def test_a_phases_held_out_loss_is_that_of_the_step_it_published(record: Path) -> None:
    steps, losses = read_record(record).phases[0].series("held_out/mlm_loss")
    assert read_record(record).phases[0].held_out("mlm_loss") == losses[-1]
    recipe = json.loads(Path("results/phases/phase1/recipe.json").read_text())
    write(Path("results/phases/phase1/recipe.json"), {**recipe, "published_step": steps[0]})
    assert read_record(record).phases[0].held_out("mlm_loss") == losses[0] != losses[-1]
    assert read_record(record).phases[0].held_out("nothing") is None


def test_stages_that_have_not_started_are_absent_from_the_layout(record: Path) -> None:
    for path in Path("results/finetunings").glob("cola-*"):
        for file in path.iterdir():
            file.unlink()
    Path("results/phases/phase2/metrics.jsonl").unlink()
    names = [child.name for child in lay_out(read_record(record)).children]
    assert names == ["data", "phase1", "squad_v1"]


def test_layout_has_a_child_for_each_stage_and_a_grandchild_for_each_seed(record: Path) -> None:
    entry = lay_out(read_record(record))
    assert [child.name for child in entry.children] == ["data", "phase1", "phase2", "squad_v1", "glue/cola"]
    assert sorted(seed.name for seed in entry.children[-1].children) == [
        "glue/cola/random/lr2e-3/seed1",
        "glue/cola/random/lr2e-3/seed2",
        "glue/cola/random/lr5e-4/seed1",
        "glue/cola/random/lr5e-4/seed2",
        "glue/cola/seed1",
        "glue/cola/seed2",
    ]


def task_points(entry: Entry, name: str) -> dict[str, float]:
    (task,) = [child for child in entry.children if child.name == name]
    return {point.key: point.value for point in task.points}


def test_a_task_has_the_median_of_each_score_by_start_and_learning_rate(record: Path) -> None:
    points = task_points(lay_out(read_record(record)), "squad_v1")
    f1 = [(78.7 + 79.4) / 2, (56.1 + 57.2) / 2, (48.1 + 47.2) / 2]
    assert points == pytest.approx(
        {
            **dict(zip(("pretrained/f1_median", "random_5e-4/f1_median", "random_0.002/f1_median"), f1, strict=True)),
            "pretrained/exact_match_median": f1[0] - 4,
            "random_5e-4/exact_match_median": f1[1] - 4,
            "random_0.002/exact_match_median": f1[2] - 4,
        }
    )


def test_of_a_grid_the_task_and_the_run_have_the_medians_of_the_settings_chosen_on_dev(record: Path) -> None:
    content = json.loads(record.read_text())
    given = [one for one in content["finetunings"] if one["task"] == "squad_v1" and one["start"] == "pretrained"]
    for one in given:
        one["name"] = f"squad_v1/learning_rate-5e-4/seed{one['seed']}"
    for seed, score in ((1, 60.0), (2, 97.0), (3, 61.0)):  # the best seed, but not the best median
        entry = write_finetuning(Path(), "squad_v1", seed, "pretrained", 3e-5, score)
        content["finetunings"].append(entry | {"name": f"squad_v1/learning_rate-3e-5/seed{seed}"})
    write(record, content)
    entry = lay_out(read_record(record))
    assert task_points(entry, "squad_v1")["pretrained/f1_median"] == pytest.approx((78.7 + 79.4) / 2)
    (of_run,) = [point.value for point in entry.points if point.key == "squad_v1/f1"]
    assert of_run == pytest.approx((78.7 + 79.4) / 2)


def test_the_losses_of_a_run_are_laid_out_by_the_seconds_of_its_steps(record: Path) -> None:
    seconds = [point.step for point in lay_out(read_record(record)).points if point.key == "by_seconds/mlm_loss"]
    speeds = [
        journal_line(step)["metrics"]["train/tokens_per_second"]
        for last in (200, 100)
        for step in range(10, last + 1, 10)
    ]
    # Each point is 10 steps of 25,000 tokens after the one before.
    expected = [10 * 25_000 * sum(1 / speed for speed in speeds[: number + 1]) for number in range(len(speeds))]
    assert seconds == pytest.approx(expected, abs=0.51)


def test_parameters_hold_the_settings_and_nothing_about_the_place(record: Path) -> None:
    phase = lay_out(read_record(record)).children[1]
    assert phase.parameters["learning_rate"] == "0.006"
    assert phase.parameters["masking.probability"] == "0.15"
    assert phase.parameters["model.hidden_size"] == "128"
    assert not {"world_size", "threads", "hardware", "git_commit", "versions.torch", "started"} & set(phase.parameters)
    assert phase.tags["bertline.world_size"] == "1"
    assert phase.tags["bertline.version.torch"] == "2.13.0"


def test_every_entry_has_its_own_identity(record: Path) -> None:
    identities = []

    def collect(entry: object) -> None:
        identities.append(tuple(sorted(entry.identity_tags.items())))  # type: ignore[attr-defined]
        for child in entry.children:  # type: ignore[attr-defined]
            collect(child)

    collect(lay_out(read_record(record)))
    assert len(identities) == len(set(identities)) == 18


def test_flatten_keeps_empty_settings_and_writes_lists_as_json() -> None:
    assert flatten({"a": {"b": [1, 2], "c": {}}, "d": "text", "e": None}) == {
        "a.b": "[1, 2]",
        "a.c": "{}",
        "d": "text",
        "e": "null",
    }


@pytest.mark.parametrize(
    ("architecture", "name"),
    [({}, "BERT"), ({"architecture": "bert"}, "BERT"), ({"architecture": "modern"}, "ModernBERT")],
)
def test_a_network_is_described_by_its_own_name(architecture: dict[str, str], name: str) -> None:
    shape = {"num_hidden_layers": 3, "hidden_size": 128, "num_attention_heads": 2, "vocab_size": 4096}
    expected = f"{name} with 3 layers, 128 wide, 2 heads, vocabulary of 4,096."
    assert describe_network(architecture | shape) == expected


def dataset_of(data: dict[str, str], sha256: dict[str, str] | None) -> DatasetInput | None:
    recipe = {"data": data} | ({} if sha256 is None else {"sha256": sha256})
    ranking = {"task": "ranking/marco", "seed": 1, "result": {"examples": {"dev_queries": 3}}}
    return _task_dataset(Finetuning("ranking/marco/seed1", "f", Path(), recipe, journal=[], finished=True, **ranking))


@pytest.mark.parametrize("kind", ["tsv", "tfrecords"])
def test_a_ranking_has_the_collection_and_its_queries_as_data(kind: str) -> None:
    names = ("train_queries", "dev_queries", "dev_qrels") if kind == "tsv" else ("train_tfrecords", "dev_tfrecords")

    def of(collection: str, digest: str = "1" * 64) -> DatasetInput:
        data = {name: f"{name}.tsv" for name in names} | {"collection": f"results/collections/{collection}"}
        found = dataset_of(data, {f"{name}.tsv": digest for name in names})
        assert found is not None
        return found

    assert (of("0123").name, of("0123").source) == ("ranking/marco", f"{names[1]}.tsv")
    assert len({of("0123").digest, of("4567").digest, of("0123", "2" * 64).digest}) == 3


def test_the_digest_of_a_task_is_of_what_its_recipe_names_not_of_where_the_files_are() -> None:
    digests = {"train": "1" * 64, "dev": "2" * 64, "collection": "0123"}
    data = {"train": "a/train.tsv", "dev": "a/dev.tsv", "collection": "results/collections/0123"}
    found = dataset_of(data, {data["train"]: digests["train"], data["dev"]: digests["dev"]})
    assert found is not None
    assert found.digest == fingerprint(digests)
    sources = [dataset_of({"dev": f"resources/evaluation/{source}/dev.tsv"}, {}) for source in ("0123", "4567")]
    assert len({source.digest for source in sources if source is not None}) == 2
    assert dataset_of(data, None) is None  # a recipe of an earlier version: the files may be others now
