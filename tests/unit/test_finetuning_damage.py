"""Damaged files of tasks: each is read as it is or ends in one line, never in a traceback or with other content."""

from __future__ import annotations

import copy
import csv
import io
import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch
from fault_counts import TIMES, drawing
from finetuning_helpers import MODEL, write_tokenizer
from safetensors.torch import load_file, save_file
from test_corpus_damage import mutate

from bertline.console import BertlineError, exit_on_errors
from bertline.corpus.overlap import texts_of
from bertline.encoding.tokenizer import read_tokenizer
from bertline.finetuning.examples import read_examples
from bertline.finetuning.features import extract_features, load_encoder_of
from bertline.finetuning.prediction import load_finetuned
from bertline.finetuning.prediction_files import predict_files
from bertline.finetuning.squad_windows import read_squad
from bertline.finetuning.tag_task import read_conll
from bertline.finetuning.text_task import text_task_of
from bertline.modeling.bert import make_task_network
from bertline.modeling.huggingface import write_huggingface
from bertline.modeling.network_config import BertConfig
from bertline.tasks.task import Head

MUTATIONS_OF_EACH_KIND = 60 * TIMES
NAMES = ("premise", "claim", "verdict", "more")
ROWS = [[f"f\u00fcr {n}", f"claim, {n}", ("no", "yes", "maybe")[n % 3], str(n)] for n in range(12)]
TABLE = {"kind": "classification", "texts": ["premise", "claim"], "label": "verdict"}
# What is neither a text nor the name of a class.
NOT_TEXT = (None, [], ["no"], {}, {"no": 1}, float("nan"), float("inf"))
Draw = random.Random
Rows = list[list[Any]]


def tsv_of(names: list[str], rows: Rows) -> bytes:
    return "".join("\t".join(map(str, row)) + "\n" for row in [names, *rows]).encode()


def csv_of(names: list[str], rows: Rows) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([names, *rows])
    return text.getvalue().encode()


def jsonl_of(names: list[str], rows: Rows) -> bytes:
    objects = (", ".join(f"{json.dumps(n)}: {json.dumps(c)}" for n, c in zip(names, row, strict=False)) for row in rows)
    return "".join(f"{{{one}}}\n" for one in objects).encode()


def parquet_of(names: list[str], columns: list[Any]) -> bytes:
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(list(map(pyarrow.array, columns)), names), stream)
    return stream.getvalue()


def columns_of(rows: Rows) -> list[Any]:
    return [list(column) for column in zip(*rows, strict=True)]


# Each returns a changed file, and whether it still means the same; if not, it has to be refused.


def of_lines(write: Callable[[list[str], Rows], bytes], draw: Draw) -> tuple[bytes, bool]:
    """A .tsv or a .csv."""
    names, rows, place, column = list(NAMES), copy.deepcopy(ROWS), draw.randrange(len(ROWS)), draw.randrange(3)
    match draw.randrange(9):
        case 0:
            del rows[place][draw.randrange(4)]
        case 1:
            rows[place].insert(draw.randrange(5), "no")
        case 2:
            del names[column]
        case 3:
            names[3] = names[column]
        case 4:
            rows[place][2] = draw.choice(("", " ", "\N{NO-BREAK SPACE}"))
        case 5:
            rows, names[column] = [row[:column] + row[column + 1 :] for row in rows], names[3]
        case 6:
            return b"\xef\xbb\xbf" + write(names, rows), True
        case 7:
            return write(names, rows).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), True
        case 8:
            return write(names, rows).decode().encode(draw.choice(("utf-16", "utf-32", "latin-1"))), False
    return write(names, rows), False


def of_json_lines(draw: Draw) -> tuple[bytes, bool]:
    names, rows, place, column = list(NAMES), copy.deepcopy(ROWS), draw.randrange(len(ROWS)), draw.randrange(3)
    lines = jsonl_of(names, rows).splitlines(keepends=True)
    match draw.randrange(8):
        case 0 | 1:
            rows[place][column] = draw.choice(NOT_TEXT)
        case 2:
            rows[place][draw.randrange(2)] = draw.choice((3, 2.5, True, 10**400))
        case 3:
            lines[place] = jsonl_of(names[:column] + names[column + 1 :], [rows[place][:-1]])
            return b"".join(lines), False
        case 4:
            lines[place] = jsonl_of([*names, names[column]], [[*rows[place], rows[place][column]]])
            return b"".join(lines), False
        case 5:
            rows[place][column] = "\ud83d"
        case 6:
            wrong = (
                b"",
                b"null",
                b"[]",
                b"[" * 100_000,
                b"9" * 5000,
                b'{"premise": ' + b"9" * 5000 + b"}",
                b"\x00",
                b'"',
            )
            lines[place] = draw.choice(wrong) + b"\n"
            return b"".join(lines), False
        case 7:
            return b"\xef\xbb\xbf" + jsonl_of([*names, "other"], [[*row, draw.choice(NOT_TEXT)] for row in rows]), True
    return jsonl_of(names, rows), False


def of_parquet(draw: Draw) -> tuple[bytes, bool]:
    names, columns, place, column = list(NAMES), columns_of(ROWS), draw.randrange(len(ROWS)), draw.randrange(3)
    match draw.randrange(6):
        case 0:
            columns[column][place] = None
        case 1:
            value = draw.choice((3, True, 2.5, [1], {"a": 1}, b"no", datetime(2026, 1, 1), Decimal("1.5"), None))
            columns[draw.randrange(2)] = [value] * len(ROWS)
        case 2:
            value = draw.choice((float("nan"), [1], {"a": 1}, b"no", datetime(2026, 1, 1), Decimal("1.5"), None))
            columns[2] = [value] * len(ROWS)
        case 3:
            names[3] = names[column]
        case 4:
            del names[column], columns[column]
        case 5:
            columns[column] = pyarrow.array(columns[column]).cast(
                draw.choice((pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())))
            )
            return parquet_of(names, columns), True
    return parquet_of(names, columns), False


def squad() -> dict[str, Any]:
    paragraphs = []
    for n in range(4):
        context = f"Ada was born in Tarn in 182{n}."
        answer = {"text": "Tarn", "answer_start": context.index("Tarn")}
        asked = {"id": f"a{n}", "question": "Where?", "answers": [answer], "is_impossible": False}
        other = {
            "id": f"b{n}",
            "question": "Who?",
            "answers": [],
            "is_impossible": True,
            "plausible_answers": [dict(answer)],
        }
        paragraphs.append({"context": context, "qas": [asked, other]})
    return {"version": "v2.0", "data": [{"title": "Ada", "paragraphs": paragraphs}]}


def places_in(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, one in inner for found in places_in(one, (*place, key)))]


def of_squad(draw: Draw) -> tuple[bytes, bool]:
    document = squad()
    place = draw.choice([place for place in places_in(document) if place])
    *parents, last = place
    holder = document
    for key in parents:
        holder = holder[key]
    # Answers of an impossible question are not read.
    is_unused = bool({"version", "title", "plausible_answers"} & set(place)) or place[5:7] == (1, "answers")
    wrong: list[Any] = [None, "false", 2.5, [[]], {"text": "x"}, float("nan"), "\ud800"]
    wrong = [
        value for value in wrong if not isinstance(value, str) or value == "\ud800" or not isinstance(holder[last], str)
    ]
    match draw.randrange(3):
        case 0 if isinstance(last, str):
            del holder[last]
            return json.dumps(document).encode(), is_unused or last == "is_impossible"
        case 1 if isinstance(last, str):  # the key twice
            value = json.dumps(holder[last])
            holder[last] = "HERE"
            text = json.dumps(document).replace('"HERE"', f"{value}, {json.dumps(last)}: {value}")
            return text.encode(), False
    holder[last] = draw.choice(wrong)
    return json.dumps(document).encode(), is_unused and holder[last] != "\ud800"


CONLL = "-DOCSTART- -X- O\n\n" + "\n".join("Ada NNP B-PER\nmet VB O\nin IN O\nTarn NNP B-LOC\n" for _ in range(5))


def of_conll(draw: Draw) -> tuple[bytes, bool]:
    lines = CONLL.split("\n")
    place = draw.choice([place for place, line in enumerate(lines) if line and not line.startswith("-")])
    match draw.randrange(7):
        case 0:
            columns = lines[place].split()
            del columns[draw.randrange(3)]
            lines[place] = " ".join(columns)
        case 1:
            lines[place] += " O"
        case 2:
            return "\n".join(line.partition(" ")[0] for line in lines).encode(), False
        case 3:
            columns = lines[place].split()
            columns[draw.choice((0, 2))] = ""
            lines[place] = "\t".join(columns)
        case 4:
            return "\n".join(lines).replace("\n", "\r\n").encode("utf-8-sig"), True
        case 5:
            lines[place] = lines[place].replace(" ", "\t")
            return "\n".join(lines).encode(), True
        case 6:
            lines[place] += draw.choice(("\x00", "", "\N{ZERO WIDTH SPACE}")) + "\xff"
            return "\n".join(lines).encode("latin-1", "replace"), False
    return "\n".join(lines).encode(), False


def table_in(path: Path) -> Any:
    task = text_task_of(TABLE, str(path))
    read = read_examples(path, task)
    return [(*texts, task.labels[target]) for texts, target in zip(read.texts, read.targets, strict=True)]


def squad_in(path: Path) -> Any:
    read = read_squad(path, version_2=True)
    return [(one.id, one.text, read.contexts[one.context], one.answers) for one in read.questions]


def conll_in(path: Path) -> Any:
    read = read_conll(path, word=0, tag=-1)
    return list(zip(read.words, read.tags, strict=True))


Kind = tuple[Callable[[], bytes], Callable[[Draw], tuple[bytes, bool]], Callable[[Path], Any]]
KINDS: dict[str, Kind] = {
    "table.tsv": (lambda: tsv_of(list(NAMES), ROWS), lambda draw: of_lines(tsv_of, draw), table_in),
    "table.csv": (lambda: csv_of(list(NAMES), ROWS), lambda draw: of_lines(csv_of, draw), table_in),
    "table.jsonl": (lambda: jsonl_of(list(NAMES), ROWS), of_json_lines, table_in),
    "table.parquet": (lambda: parquet_of(list(NAMES), columns_of(ROWS)), of_parquet, table_in),
    "squad.json": (lambda: json.dumps(squad()).encode(), of_squad, squad_in),
    "tags.conll": (lambda: CONLL.encode(), of_conll, conll_in),
}


def test_damaged_evaluation_sets_are_refused_before_documents_are_compared_with_them(tmp_path: Path) -> None:
    path, content, draw, refused = tmp_path / "dev.parquet", KINDS["table.parquet"][0](), Draw("overlap"), 0
    for _ in range(MUTATIONS_OF_EACH_KIND):
        refused += outcome(path, mutate(content, draw), lambda path: list(texts_of(path))) is None
    assert refused > MUTATIONS_OF_EACH_KIND // 3


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("config.json", {"architectures": 7}),
        ("config.json", {"architectures": {}}),
        ("config.json", {"id2label": 1e300}),
        ("config.json", {"id2label": ["a", "b"]}),
        ("tokenizer_config.json", {"model_max_length": "512"}),
        ("tokenizer_config.json", {"model_max_length": 0}),
        ("tokenizer_config.json", {"model_max_length": True}),
        ("task.json", {"settings": "short"}),
        ("task.json", {"settings": {"max_sequence_length": "8"}}),
        ("task.json", {"settings": {"max_sequence_length": -8}}),
        ("task.json", {"table": ["text"]}),
        ("task.json", {"task": ["cola"]}),
        ("task.json", {"table": {"texts": 5}}),
        ("task.json", {"table": {"texts": []}}),
        ("task.json", {"table": {"texts": [1]}}),
        ("task.json", {"table": {"texts": "text"}}),
        ("task.json", {"null_threshold": "x"}),
        ("task.json", {"null_threshold": [1]}),
    ],
)
def test_a_description_of_a_model_by_another_hand_is_one_line(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    folder = write_model(tmp_path, "sequence")
    task = {"task": "table/mine", "table": {"texts": ["text"]}}
    (folder / "task.json").write_text(json.dumps(task))
    assert load_finetuned(folder).labels == ("no", "yes")
    (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))
    with pytest.raises(BertlineError, match=name) as caught:
        load_finetuned(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "weight", "bias", "message"),
    [
        ("sequence", (3, 32), (2,), r"classifier\.bias has the shape \[2\], .* \[3\]"),
        ("sequence", (2, 31), (2,), r"classifier\.weight has the shape \[2, 31\], .* \[2, 32\]"),
        ("sequence", (0, 32), (0,), "has 0 outputs"),
        ("sequence", (), (2,), r"classifier\.weight has the shape \[\]"),
        ("answer", (3, 32), (3,), "has 3 outputs"),
    ],
)
def test_a_head_that_does_not_fit_is_one_line(
    tmp_path: Path, head: Head, weight: tuple[int, ...], bias: tuple[int, ...], message: str
) -> None:
    folder = write_model(tmp_path, head)
    tensors = load_file(folder / "model.safetensors")
    for name, shape in (("weight", weight), ("bias", bias)):
        key = next(key for key in tensors if key.endswith((f"classifier.{name}", f"qa_outputs.{name}")))
        tensors[key] = torch.zeros(shape)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(BertlineError, match=message) as caught:
        load_finetuned(folder)
    assert str(folder) in str(caught.value)


def test_a_tokenizer_with_more_entries_than_the_network_is_one_line(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "sequence")
    path = folder / "tokenizer.json"
    described = json.loads(path.read_text())
    size = len(described["model"]["vocab"])
    described["model"]["vocab"]["another"] = size
    path.write_text(json.dumps(described))
    for load in (load_finetuned, lambda folder: load_encoder_of(folder, 8, torch.device("cpu"))):
        with pytest.raises(BertlineError, match=rf"its 'another' has the id {size}, but the network has {size} tokens"):
            load(folder)


def test_what_a_model_cannot_predict_is_one_line(tmp_path: Path) -> None:
    model, path = load_finetuned(write_model(tmp_path, "sequence")), tmp_path / "in.jsonl"
    path.write_text('{"a": "x", "b": "y", "c": "z"}\n')
    with pytest.raises(BertlineError, match="columns: given 3; this model needs one, of the text, or two, of a pair"):
        predict_files(model, [path], tmp_path / "out.jsonl", columns=("a", "b", "c"))
    with pytest.raises(BertlineError, match=r"in\.jsonl is one of the inputs and would be overwritten"):
        predict_files(model, [path], path, columns=("a",))
    options = {"pooling": None, "columns": ("a",), "max_sequence_length": 8, "precision": "fp32"}
    with pytest.raises(BertlineError, match=r"in\.jsonl is one of the inputs and would be overwritten"):
        extract_features(tmp_path / "model", [path], path, layers=(-1,), **options)
    with pytest.raises(BertlineError, match="layers: given none; name one or more"):
        extract_features(tmp_path / "model", [path], tmp_path / "out.jsonl", layers=(), **options)
    (tmp_path / "out.jsonl").mkdir()
    with pytest.raises(SystemExit, match=r"out\.jsonl: Is a directory; name another path"), exit_on_errors():
        predict_files(model, [path], tmp_path / "out.jsonl", columns=("a",))


def write_model(folder: Path, head: Head) -> Path:
    """Write a fine-tuned model of two classes, or of answers, with random weights."""
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    config = BertConfig.from_dict({**MODEL, "vocab_size": read_tokenizer(tokenizer).get_vocab_size()})
    network, output = make_task_network(config, head, 2), folder / "model"
    output.mkdir()
    labels = () if head == "answer" else ("no", "yes")
    write_huggingface(config, network.state_dict(), tokenizer, output, head=head, labels=labels)
    return output


def outcome(path: Path, content: bytes, read: Callable[[Path], Any]) -> Any:
    """What a file is read as; None for one that is refused in a line with its name."""
    path.write_bytes(content)
    try:
        found = read(path)
    except BertlineError as error:
        message = str(error)
        assert message.startswith(str(path)) and "\n" not in message  # noqa: PT018
        return None
    json.dumps(found, default=repr, ensure_ascii=False).encode()  # half of a surrogate pair cannot be tokenized
    return found


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", KINDS)
def test_another_structure_is_refused_and_another_form_is_the_same(
    tmp_path: Path, kind: str, record_property: Any
) -> None:
    make, change, read = KINDS[kind]
    whole = outcome(tmp_path / kind, make(), read)
    draw, results = drawing(f"structure of {kind}"), Counter[bool]()
    for number in range(MUTATIONS_OF_EACH_KIND):
        content, is_same = change(draw)
        assert outcome(tmp_path / kind, content, read) == (whole if is_same else None), (number, content[:2000])
        results[is_same] += 1
    assert min(results[True], results[False]) >= 3, results
    record_property("faults", MUTATIONS_OF_EACH_KIND)


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_are_read_as_they_are_or_refused(tmp_path: Path, kind: str, record_property: Any) -> None:
    make, _, read = KINDS[kind]
    whole, draw, refused = outcome(tmp_path / kind, make(), read), drawing(f"bytes of {kind}"), 0
    for number in range(MUTATIONS_OF_EACH_KIND):
        found = outcome(tmp_path / kind, mutate(make(), draw), read)
        refused += found is None
        cut = outcome(tmp_path / kind, make()[: draw.randrange(len(make()))], read)
        # The end of a text file is nowhere told; but nothing before the cut changes.
        assert cut is None or cut[:-1] == whole[: len(cut) - 1], number
        assert cut is None or kind not in ("squad.json", "table.parquet"), number
    assert refused > MUTATIONS_OF_EACH_KIND // 10
    record_property("faults", 2 * MUTATIONS_OF_EACH_KIND)
