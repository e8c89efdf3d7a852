"""The plan that a start writes and its jobs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fault_counts import TIMES, drawing
from plan_helpers import ROOT, changed, inputs, plan_of
from test_corpus_damage import mutate

from bertline.planning.plan_file import plan_file, plan_of_job, write_plan_file

assert inputs  # the fixture


def test_jobs_read_the_plan_of_the_start_without_a_look_at_the_inputs() -> None:
    schema, models = ROOT / "config/config.schema.yaml", ROOT / "config/models"
    config = changed(runs__second={"pretrained": "results/runs/first/phase1@step-10", "finetune": {}})
    plan = plan_of(config)
    write_plan_file(plan, config, schema)
    Path("books/one.txt").unlink()
    read = plan_of_job(config, schema, models)
    assert read == plan
    assert list(read.finetunings) == list(plan.finetunings)
    assert read.checkpoints
    plan_file(config, schema).write_text("{")
    assert plan_of_job(config, schema, models).problems
    assert plan_of_job(changed(datasets__both__shards=3), schema, models).problems


@pytest.mark.fault(row="inputs")
def test_a_damaged_plan_of_the_start_is_made_again(record_property: Any) -> None:
    schema, models = ROOT / "config/config.schema.yaml", ROOT / "config/models"
    config = changed(runs__second={"pretrained": "results/runs/first/phase1@step-10", "finetune": {}})
    plan = plan_of(config)
    write_plan_file(plan, config, schema)
    path, draw = plan_file(config, schema), drawing("plan of the start")
    content = path.read_bytes()
    body = content.partition(b"\n")[2]
    whole = [b"", b"[]", b'{"checkpoints": []}', b"[" * 100_000, body, b"0" * 64 + b"\n" + body]
    Path("books/one.txt").unlink()  # what is made again has a problem
    for damaged in [*whole, *(mutate(content, draw) for _ in range(20 * TIMES))]:
        path.write_bytes(damaged)
        assert damaged == content or plan_of_job(config, schema, models).problems
    record_property("faults", len(whole) + 20 * TIMES)
