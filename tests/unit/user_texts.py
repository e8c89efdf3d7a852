"""Texts of a user, in files."""

from __future__ import annotations

from pathlib import Path

from bertline.settings.configuration import load_schema

ROOT = Path(__file__).parents[2]
SCHEMA = load_schema(ROOT / "config/config.schema.yaml")
SENTENCES = [
    "The old wall of the town was built by people who came from the north.",
    "Nobody knew why the river had left its bed in that summer.",
    "She read the letter twice, and then she put it back into the drawer.",
    "There are many ways to cook a fish, but only one of them is good.",
    "When the train arrived, the children were already asleep.",
]


def text_of(number: int) -> str:
    return " ".join(SENTENCES[(number + shift) % 5] for shift in range(20))


def write_texts(folder: Path, count: int = 8) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.txt").write_text(text_of(number))
    return folder
