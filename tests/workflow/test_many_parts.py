"""A corpus of hundreds of parts: no command of its jobs grows with their number."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from snakemake_runs import SMALL_CONFIG, jobs_of, run_snakemake

PARTS, SHARDS = 600, 60
MAX_COMMAND_LENGTH = 2000  # characters; Linux allows 131,072, which the files of 2,200 parts exceed


@pytest.mark.slow
def test_no_command_grows_with_the_parts_of_a_corpus_and_no_shard_has_them_all_as_inputs(workflow_folder: Path) -> None:
    config: dict[str, Any] = copy.deepcopy(SMALL_CONFIG)
    hub = {"source": "huggingface", "dataset": "some/books", "revision": "0" * 40, "split": "train", "parts": PARTS}
    config["corpora"] = {"hub": hub}
    config["datasets"]["small"] |= {"corpora": ["hub"], "duplicates": "near", "shards": SHARDS}
    del config["runs"]["first"]["finetune"]
    del config["evaluation"]
    (workflow_folder / "many.yaml").write_text(yaml.safe_dump(config))
    options = ("--profile", "profiles/local", "--configfile", "many.yaml", "--dry-run", "--printshellcmds")
    output = run_snakemake(workflow_folder, *options, "--", "encode").stdout
    assert jobs_of(output)["read_part"] == PARTS
    commands = [line for line in output.splitlines() if "python workflow/scripts/" in line]
    assert len(commands) > 3 * PARTS
    assert max(map(len, commands)) < MAX_COMMAND_LENGTH
    _, *shards = output.split("rule write_shard:")
    assert len(shards) == SHARDS + 1  # and the held-out one
    inputs = [re.search(r"^    input: (.*)$", shard, re.MULTILINE)[1] for shard in shards]
    assert all(len(files.split(", ")) == 1 for files in inputs)
