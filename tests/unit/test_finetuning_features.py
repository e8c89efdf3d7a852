"""Features are the hidden states of transformers, whatever the file's format, its order and the chunks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet
import pytest
import torch
import transformers
from finetuning_helpers import WORDS, write_tokenizer

from bertline.console import BertlineError
from bertline.encoding.tokenizer import load_tokenizer
from bertline.finetuning import features
from bertline.finetuning.features import extract_features
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import export_huggingface
from bertline.modeling.network_config import config_from_dict
from bertline.settings.configuration import defaults_of

LAYERS = (-1, -2, 0)
OPTIONS: dict[str, Any] = {
    "layers": LAYERS,
    "pooling": None,
    "columns": ("text",),
    "max_sequence_length": 64,
    "precision": "fp32",
}
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module", params=["bert", "modern"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    size = load_tokenizer(tokenizer).get_vocab_size()
    settings = {"architecture": request.param, "vocab_size": size, "max_position_embeddings": 64, **SHAPE}
    torch.manual_seed(1)
    network = architecture_of(config_from_dict(settings)).pretraining(config_from_dict(settings))
    export_huggingface(network.config, network.state_dict(), tokenizer, folder / "model")
    return folder / "model"


def write_texts(path: Path) -> list[tuple[str, ...]]:
    """Texts and pairs of many lengths, with an empty one."""
    generator = np.random.default_rng(1)
    texts: list[tuple[str, ...]] = [("",)]
    for number in range(30):
        words = [" ".join(generator.choice(WORDS, generator.integers(1, 12))) for _ in range(1 + number % 2)]
        texts.append(tuple(words))
    path.write_text("".join(" ||| ".join(text) + "\n" for text in texts))
    return texts


def states_of_transformers(model: Path, texts: list[tuple[str, ...]]) -> list[list[np.ndarray]]:
    """Of each text alone, for each of LAYERS: float32 [tokens, H]."""
    network = transformers.AutoModel.from_pretrained(model).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    with torch.inference_mode():
        states = [
            network(**tokenizer(*text, return_tensors="pt"), output_hidden_states=True).hidden_states for text in texts
        ]
    return [[of_text[layer][0].numpy() for layer in LAYERS] for of_text in states]


def read_jsonl(path: Path) -> list[list[np.ndarray]]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["linex_index"] for row in rows] == list(range(len(rows)))
    for token in (token for row in rows for token in row["features"]):
        assert [layer["index"] for layer in token["layers"]] == list(LAYERS)
    return [
        [
            np.array([token["layers"][number]["values"] for token in row["features"]], dtype=np.float32)
            for number in range(len(LAYERS))
        ]
        for row in rows
    ]


def read_parquet(path: Path) -> list[list[np.ndarray]]:
    rows = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["index"] for row in rows] == list(range(len(rows)))
    return [[np.array(row[f"layer_{layer}"], dtype=np.float32) for layer in LAYERS] for row in rows]


def read_hdf5(path: Path) -> list[list[np.ndarray]]:
    with h5py.File(path) as file:
        offsets = file["offsets"][:]
        assert offsets[-1] == len(file["input_ids"]) == len(file["layer_-1"])
        return [[file[f"layer_{layer}"][begin:end] for layer in LAYERS] for begin, end in pairwise(offsets)]


@pytest.mark.parametrize(("suffix", "read"), [(".jsonl", read_jsonl), (".parquet", read_parquet), (".h5", read_hdf5)])
def test_features_are_the_hidden_states_of_transformers(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, read: Any
) -> None:
    monkeypatch.setattr(features, "MAX_CHUNK", 7)
    texts = write_texts(tmp_path / "texts.txt")
    output = tmp_path / f"out{suffix}"
    done = extract_features(model, [tmp_path / "texts.txt"], output, **OPTIONS)
    found, expected = read(output), states_of_transformers(model, texts)
    assert done == len(found) == len(texts)
    for ours, theirs in zip(found, expected, strict=True):
        for layer, given in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(layer, given, atol=1e-5)


NO_TYPES = {"model_input_names": ["input_ids", "attention_mask"]}


@pytest.mark.parametrize(
    ("settings", "trained"),
    [
        (NO_TYPES, False),
        ({**NO_TYPES, "tokenizer_class": "PreTrainedTokenizerFast"}, False),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, False),  # types are not among this class's inputs by default
        ({"tokenizer_class": "BertTokenizer"}, False),
        (NO_TYPES, True),
    ],
)
def test_the_second_text_has_the_types_that_transformers_gives_or_that_it_was_trained_with_here(
    tmp_path: Path, settings: dict[str, Any], trained: bool
) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    config = config_from_dict({"vocab_size": load_tokenizer(tokenizer).get_vocab_size(), **SHAPE})
    torch.manual_seed(1)
    network, folder = architecture_of(config).pretraining(config), tmp_path / "model"
    torch.nn.init.normal_(network.encoder.embeddings.token_type.weight)
    export_huggingface(config, network.state_dict(), tokenizer, folder)
    given = json.loads((folder / "tokenizer_config.json").read_text())
    without = {key: value for key, value in given.items() if key not in ("tokenizer_class", "model_input_names")}
    expected = states_of_transformers(folder, [("born in", "where died")])
    (folder / "tokenizer_config.json").write_text(json.dumps(without | settings))
    if trained:  # as our own, whose old templates give no types
        (folder / "task.json").write_text(json.dumps({"task": "cola"}))
    else:
        expected = states_of_transformers(folder, [("born in", "where died")])
    (tmp_path / "texts.txt").write_text("born in ||| where died\n")
    extract_features(folder, [tmp_path / "texts.txt"], tmp_path / "out.h5", **OPTIONS)
    np.testing.assert_allclose(read_hdf5(tmp_path / "out.h5")[0], expected[0], atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooled_features_are_one_vector_per_input(model: Path, tmp_path: Path, pooling: Any) -> None:
    texts = write_texts(tmp_path / "texts.txt")
    expected = [
        [layer[0] if pooling == "cls" else layer.mean(axis=0) for layer in of_text]
        for of_text in states_of_transformers(model, texts)
    ]
    for suffix in (".jsonl", ".parquet", ".h5"):
        output = tmp_path / f"out{suffix}"
        extract_features(model, [tmp_path / "texts.txt"], output, **{**OPTIONS, "pooling": pooling})
    with h5py.File(tmp_path / "out.h5") as file:
        in_hdf5 = np.stack([file[f"layer_{layer}"][:] for layer in LAYERS], axis=1)
    np.testing.assert_allclose(in_hdf5, expected, atol=1e-5)
    np.testing.assert_allclose(read_parquet(tmp_path / "out.parquet"), expected, atol=1e-5)
    np.testing.assert_allclose(np.array(read_jsonl(tmp_path / "out.jsonl"))[:, :, 0], expected, atol=1e-5)
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert [token["token"] for token in first["features"]] == [pooling]


def test_the_second_text_of_a_line_follows_the_last_separator(model: Path, tmp_path: Path) -> None:
    """As in Google's extract_features.py."""
    (tmp_path / "t.txt").write_text("born ||| was ||| died\n")
    extract_features(
        model, [tmp_path / "t.txt"], tmp_path / "out.jsonl", **{**OPTIONS, "layers": (-1,), "max_sequence_length": 16}
    )
    row = json.loads((tmp_path / "out.jsonl").read_text())
    first = ["born", *["[UNK]"] * 3, "was"]
    assert [token["token"] for token in row["features"]] == ["[CLS]", *first, "[SEP]", "died", "[SEP]"]


def test_empty_texts_are_reported(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "texts.tsv"
    path.write_text("text\nn1\n\n")
    extract_features(model, [path], tmp_path / "out.jsonl", **OPTIONS)
    assert f"{path}: line 3: an empty text; 1 of 2 inputs of the file have one" in caplog.messages


def test_tokens_are_named_and_long_texts_are_cut_off(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text\n" + " ".join(["born"] * 40) + "\n")
    extract_features(model, [tmp_path / "t.csv"], tmp_path / "out.jsonl", **{**OPTIONS, "max_sequence_length": 16})
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert [token["token"] for token in row["features"]] == ["[CLS]", *["born"] * 14, "[SEP]"]


def test_the_default_layers_are_all_of_a_small_network(model: Path, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("born\n")
    options = {**OPTIONS, "layers": defaults_of("features")["layers"]}
    extract_features(model, [tmp_path / "t.txt"], tmp_path / "out.jsonl", **options)
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert [layer["index"] for layer in row["features"][0]["layers"]] == [-1, -2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": (-4,)}, r"layers: given -4, allowed for .* are -3 to 2"),
        ({"layers": (-1, -1)}, r"layers: given -1, -1; name each once"),
        ({"columns": ("a", "b", "c")}, r"columns: given a, b, c, allowed are one or two: a text or a pair"),
        ({"columns": ("a",)}, r"^columns: given a, but \.txt files have no named columns; leave it out$"),
        ({"max_sequence_length": 65}, r"max_sequence_length: given 65, allowed for .* is at most 64"),
        ({"output": "out.npy"}, r"out\.npy: given '\.npy', allowed are \.jsonl, \.parquet, \.h5"),
        ({"inputs": "empty.txt"}, r"empty\.txt: no input; name files with at least one"),
        ({"inputs": "latin.txt"}, r"latin\.txt: line 1: not UTF-8"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_no_file(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "latin.txt").write_bytes("Bär\n".encode("latin-1"))
    (tmp_path / "good.txt").write_text("born\n")
    options = {**OPTIONS, **changes}
    inputs, output = tmp_path / options.pop("inputs", "good.txt"), tmp_path / options.pop("output", "out.h5")
    with pytest.raises(BertlineError, match=message):
        extract_features(model, [inputs], output, **options)
    assert not output.exists()
