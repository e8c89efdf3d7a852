"""Damage to what people hand in, besides corpora and tasks: it is read unchanged, or refused in one line.

Their own tables and texts for `make mine`, YAML, settings of a command line, inputs of predictions and features, the
description of a model, and files of rankings.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from fault_counts import TIMES, drawing
from finetuning_helpers import WORDS, write_tokenizer
from ranking_files import write_files
from test_corpus_damage import mutate
from test_corpus_tables import write_table
from test_corpus_unpacking import zip_bytes
from test_finetuning_damage import NAMES, ROWS, csv_of, jsonl_of, parquet_of, squad, tsv_of, write_model

from bertline.console import exit_on_errors
from bertline.encoding.tokenizer import read_tokenizer
from bertline.finetuning.features import extract_features
from bertline.finetuning.prediction import load_finetuned
from bertline.finetuning.prediction_files import predict_files
from bertline.finetuning.ranking.lists import read_candidates, read_judgements, read_triples
from bertline.finetuning.ranking.texts import read_texts
from bertline.planning.resolve import plan_of_files
from bertline.proposal.corpora import corpora_of, find_shape
from bertline.proposal.table import describe_table
from bertline.settings.overrides import read_configuration
from bertline.settings.site import read_site

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "config/config.schema.yaml"
SITE = ROOT / "config/site.schema.yaml"
MUTATIONS_OF_EACH_KIND = 30 * TIMES
# Replacements of a value of a JSON or YAML file.
OTHERS = (None, True, 5, -1, 1e300, 10**30, "", "x", [], [1], {}, {"a": 1}, [[]], "2026-99-99", "\ud800", "a" * 5000)
TABLE = [row for number in range(4) for row in [[f"{cell} {number}" for cell in row[:2]] + row[2:] for row in ROWS]]
TEXT = "\n".join(f"The river number {number} runs to the sea, and all are happy about it." for number in range(40))

SETTINGS = {"max_sequence_length": 32, "doc_stride": 4, "max_query_length": 8, "max_answer_length": 4}

Read = Callable[[Path], Any]


def look(path: Path) -> Any:
    found = corpora_of([str(path)])[0]
    for corpus in found:
        find_shape(corpus, "utf-8", None)
    return [corpus.settings for corpus in found]


def arrow(folder: Path) -> bytes:
    return write_table(folder, "stream.arrow", [{"text": line} for line in TEXT.splitlines()]).read_bytes()


def of_model(head: Any, name: str, content: bytes, folder: Path) -> tuple[bytes, Read]:
    written = write_model(folder, head)
    (written / "task.json").write_text(json.dumps({"settings": SETTINGS} if head == "answer" else {}))
    model = load_finetuned(written)
    columns = NAMES[:2] if head == "sequence" else ()
    return content, lambda path: predict_files(model, [path], path.with_name(f"o{name}.jsonl"), columns=columns)


def of_features(content: bytes, folder: Path, **options: Any) -> tuple[bytes, Read]:
    model = write_model(folder, "sequence")
    settings = {
        "layers": (-1,),
        "max_sequence_length": 8,
        "pooling": None,
        "columns": ("text",),
        "precision": "fp32",
        **options,
    }
    return content, lambda path: extract_features(model, [path], path.with_name("features.jsonl"), **settings)


def of_ranking(kind: str, folder: Path) -> tuple[bytes, Read]:
    files = write_files(folder / "whole")
    tokenizer = read_tokenizer(write_tokenizer(folder / "tokenizer.json"))
    queries, passages = (read_texts(Path(files[name]), tokenizer) for name in ("queries", "collection"))
    content = Path(files[kind]).read_bytes()
    readers: dict[str, Read] = {
        "collection": lambda path: read_texts(path, tokenizer),
        "candidates": lambda path: read_candidates(path, queries, passages),
        "qrels": lambda path: read_judgements(path, queries, passages, 1),
        "triples": lambda path: read_triples(path, queries, passages, None),
    }
    return content, readers[kind]


def site(_: Path) -> tuple[bytes, Read]:
    return (ROOT / "profiles/slurm/site.example.yaml").read_bytes(), lambda path: read_site(path, SITE)


def configuration(_: Path) -> tuple[bytes, Read]:
    lines = (ROOT / "config/demo.yaml").read_bytes().splitlines(keepends=True)
    content = b"".join(line for line in lines if not line.lstrip().startswith(b"#"))
    return content, lambda path: plan_of_files([str(path)])


def own_table(make: Callable[..., bytes], *given: Any) -> Callable[[Path], tuple[bytes, Read]]:
    return lambda folder: (make(*given), lambda path: describe_table([str(path)], folder / "divided"))


def line_of(question: str) -> bytes:
    return json.dumps({"id": "1", "question": question, "context": "Ada was born in Tarn"}).encode() + b"\n"


PAIRS = {"premise": [row[0] for row in TABLE], "claim": [row[1] for row in TABLE], "verdict": [row[2] for row in TABLE]}
WORDS_OF_LINES = "".join(f"{word} ||| {word}\n" for word in WORDS).encode()
KINDS: dict[str, Callable[[Path], tuple[bytes, Read]]] = {
    "own.csv": own_table(csv_of, list(NAMES), TABLE),
    "own.tsv": own_table(tsv_of, list(NAMES), TABLE),
    "own.jsonl": own_table(jsonl_of, list(NAMES), TABLE),
    "own.parquet": own_table(parquet_of, list(PAIRS), list(PAIRS.values())),
    "texts.txt": lambda _: (TEXT.encode(), look),
    "texts.txt.gz": lambda _: (gzip.compress(TEXT.encode(), mtime=0), look),
    "texts.zip": lambda _: (zip_bytes({f"{n}.txt": TEXT.encode() for n in range(3)}), look),
    "texts.jsonl": lambda _: ("".join(json.dumps({"text": one}) + "\n" for one in TEXT.splitlines()).encode(), look),
    "texts.csv": lambda _: (csv_of(["n", "text"], [[n, one] for n, one in enumerate(TEXT.splitlines())]), look),
    "texts.arrow": lambda folder: (arrow(folder), look),
    "texts.parquet": lambda _: (parquet_of(["text"], [TEXT.splitlines()]), look),
    "configuration.yaml": configuration,
    "site.yaml": site,
    "predict.tsv": lambda folder: of_model("sequence", "t", tsv_of(list(NAMES), ROWS), folder),
    "predict.parquet": lambda folder: of_model("sequence", "p", parquet_of(list(PAIRS), list(PAIRS.values())), folder),
    "predict.conll": lambda folder: of_model("tokens", "c", b"Ada\nwas\nborn\n\nin\nTarn\n", folder),
    "predict.json": lambda folder: of_model("answer", "j", json.dumps(squad()).encode(), folder),
    "predict.jsonl": lambda folder: of_model("answer", "l", b"".join(map(line_of, WORDS)), folder),
    "features.txt": lambda folder: of_features(WORDS_OF_LINES, folder),
    "features.csv": lambda folder: of_features(csv_of(list(NAMES), ROWS), folder, columns=NAMES[:1]),
    **{f"{kind}.tsv": lambda folder, kind=kind: of_ranking(kind, folder) for kind in ("collection", "candidates")},
    **{f"{kind}.tsv": lambda folder, kind=kind: of_ranking(kind, folder) for kind in ("qrels", "triples")},
    "qrels.tsv.gz": lambda folder: (gzip.compress(of_ranking("qrels", folder)[0]), of_ranking("qrels", folder)[1]),
}


def outcome(read: Callable[[], Any]) -> str:
    """What was refused, in one line; empty for what was read."""
    try:
        with exit_on_errors():
            read()
    except SystemExit as refused:
        message = str(refused.code)
        assert message.isprintable(), message
        assert message.startswith("error: "), message
        assert 10 < len(message) < 2100, message
        return message
    return ""


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_of_what_people_hand_in_are_read_or_refused(
    tmp_path: Path, kind: str, no_hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    monkeypatch.chdir(ROOT)  # where the sample configuration's files are looked for
    content, read = KINDS[kind](tmp_path)
    path = tmp_path / kind
    path.write_bytes(content)
    assert outcome(partial(read, path)) == "", kind
    draw, results = drawing(f"what is handed in, {kind}"), Counter[bool]()
    for _ in range(MUTATIONS_OF_EACH_KIND):
        no_hang()
        path.write_bytes(mutate(content, draw))
        message = outcome(partial(read, path))
        assert not message or kind in message or kind == "configuration.yaml", message  # which names the key
        results[bool(message)] += 1
    assert results[True] > 0 or kind in ("texts.txt", "features.txt", "predict.conll", "collection.tsv"), results
    record_property("faults", MUTATIONS_OF_EACH_KIND)


def places_of(value: Any, *keys: Any) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [keys] * bool(keys) + [place for key, part in inner for place in places_of(part, *keys, key)]


def with_other(value: Any, keys: tuple[Any, ...], other: Any) -> Any:
    changed = json.loads(json.dumps(value))
    inner = changed
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = other
    return changed


@pytest.mark.fault(row="inputs")
def test_other_values_in_the_description_of_a_model_are_used_or_refused(tmp_path: Path, record_property: Any) -> None:
    folder, path = write_model(tmp_path, "sequence"), tmp_path / "in.jsonl"
    path.write_bytes(jsonl_of(list(NAMES), ROWS))
    table = {"texts": list(NAMES[:2]), "label": NAMES[2], "kind": "classification"}
    task = {"task": "table/mine", "settings": SETTINGS, "table": table, "null_threshold": 0.5}
    draw, count, refused = drawing("task.json"), 2 * MUTATIONS_OF_EACH_KIND, 0
    for _ in range(count):
        changed = with_other(task, draw.choice(places_of(task)), draw.choice(OTHERS))
        (folder / "task.json").write_text(json.dumps(changed))
        refused += bool(outcome(lambda: predict_files(load_finetuned(folder), [path], tmp_path / "out.jsonl")))
    assert count // 4 < refused < count
    record_property("faults", count)


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("file", ["configuration", "site"])
def test_other_values_in_yaml_and_on_a_command_line_are_used_or_refused(
    tmp_path: Path, file: str, no_hang: Callable[[], None], monkeypatch: pytest.MonkeyPatch, record_property: Any
) -> None:
    monkeypatch.chdir(ROOT)
    yaml_of, read = {"configuration": configuration, "site": site}[file](tmp_path)
    whole = yaml.safe_load(yaml_of)
    odd = ["!!int x", "!!timestamp y", "9" * 5000, "[" * 200, "? [a]\n: b", "*a", "&a [*a]", "{<<: 5}", "!!set {a}"]
    draw, refused = drawing(f"values of {file}"), 0
    for _ in range(MUTATIONS_OF_EACH_KIND):
        no_hang()
        keys, path = draw.choice(places_of(whole)), tmp_path / "my.yaml"
        if draw.random() < 0.5:
            path.write_text(json.dumps(with_other(whole, keys, draw.choice(OTHERS))))  # which is YAML, too
        else:
            text = json.dumps(with_other(whole, keys, "HERE"))
            path.write_text(text.replace('"HERE"', draw.choice(odd), 1))
        refused += bool(outcome(partial(read, path)))
        if file == "configuration":
            setting = f"{'.'.join(map(str, keys))}={draw.choice([*odd, *map(json.dumps, OTHERS)])}"
            outcome(partial(read_configuration, [ROOT / "config/demo.yaml"], SCHEMA, [setting]))
    assert refused > MUTATIONS_OF_EACH_KIND // 2
    record_property("faults", MUTATIONS_OF_EACH_KIND * (2 if file == "configuration" else 1))
