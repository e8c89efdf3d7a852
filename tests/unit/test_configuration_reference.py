"""The page of all keys is written from the schema."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "workflow/scripts/describe_configuration.py"


def keys_of(schema: Any) -> Iterator[str]:
    """All keys that a configuration may have."""
    if isinstance(schema, dict):
        yield from (key for key in schema.get("properties", {}) if isinstance(schema["properties"], dict))
        for inner in schema.values():
            yield from keys_of(inner)


def test_the_page_of_all_keys_is_what_its_command_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, COMMAND, "--output", tmp_path / "README.md"], check=True)
    page = (tmp_path / "README.md").read_text()
    assert page == (ROOT / "config/README.md").read_text(), f"run python {COMMAND.relative_to(ROOT)}"


def test_the_page_has_every_key_of_the_schema() -> None:
    page = (ROOT / "config/README.md").read_text()
    keys = set(keys_of(yaml.safe_load((ROOT / "config/config.schema.yaml").read_text())))
    assert len(keys) > 100
    assert {key for key in keys if f"`{key}` |" not in page and f".{key}` |" not in page} == set()
    assert "| `glue` | any of `cola`, `sst2`," in page
    alternatives = page[page.index("| `train.tfrecords` |") :].split("\n")[:4]
    assert [row.split(" |")[0] for row in alternatives] == [
        "| `train.tfrecords`", "| or", "| `train.queries`", "| `train.triples`"
    ]  # fmt: skip
    links = {part.partition(")")[0] for part in page.split("](#")[1:]}
    assert {link for link in links if f"\n## {link}\n" not in page} == set()
