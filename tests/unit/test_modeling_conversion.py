"""Google's release and pickles become directories that transformers loads; TensorFlow wrote the files."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoint_index import entry, write_index
from safetensors.torch import load_file, save_file
from tensorflow_checkpoint.make import shapes, values

from bertline.console import BertlineError
from bertline.encoding.tokenizer import make_tokenizer, save_tokenizer
from bertline.finetuning.prediction import load_finetuned
from bertline.modeling.bert import make_task_network
from bertline.modeling.conversion import convert_weights, export_tensorflow
from bertline.modeling.huggingface import load_huggingface, write_huggingface
from bertline.modeling.network_config import BertConfig
from bertline.modeling.tensorflow_checkpoint import masked_checksum, read_checkpoint, write_checkpoint
from bertline.tasks.task import Head

WRITTEN = Path(__file__).parent / "tensorflow_checkpoint"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "river", "##s", "."]
CONFIG = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "vocab_size": 9,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
}


def expected() -> dict[str, np.ndarray]:
    """The content that the script next to the checkpoint wrote into it."""
    return {name: values(name, shape) for name, shape in shapes().items()}


@pytest.fixture
def google(tmp_path: Path) -> Path:
    """A folder as Google released them."""
    folder = tmp_path / "uncased_L-2_H-8_A-2"
    shutil.copytree(WRITTEN, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    return folder


def test_a_checkpoint_of_tensorflow_is_read_to_the_last_bit() -> None:
    found = dict(read_checkpoint(WRITTEN / "bert_model.ckpt"))
    for name, written in expected().items():
        assert np.array_equal(found[name], written), name
    assert found["global_step"] == 7
    assert len(found) > len(expected()) + 1  # the optimizer's


def test_a_checkpoint_in_several_files_is_read(tmp_path: Path) -> None:
    numbers = [np.array([1.5, 2.5], "<f4"), np.array([3.5, 4.5], "<f4")]
    entries = [entry(b"", b"\x08\x02")]  # two files
    for shard, content in enumerate(array.tobytes() for array in numbers):
        (tmp_path / f"made.data-{shard:05d}-of-00002").write_bytes(content)
        place = b"\x08\x01\x12\x04\x12\x02\x08\x02\x18" + bytes([shard]) + b"\x28\x08\x35"
        entries.append(entry(f"values{shard}".encode(), place + masked_checksum(content)))
    write_index(tmp_path / "made.index", entries)
    found = dict(read_checkpoint(tmp_path / "made"))
    assert {name: array.tolist() for name, array in found.items()} == {"values0": [1.5, 2.5], "values1": [3.5, 4.5]}


def test_google_s_release_becomes_what_transformers_loads(google: Path, tmp_path: Path) -> None:
    convert_weights(google, tmp_path / "out", lowercase=True)
    model, report = transformers.BertForPreTraining.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs, written = model.state_dict(), expected()
    layer = "layer.1.attention.self.value"
    for name, key in {
        "bert.embeddings.word_embeddings.weight": "bert/embeddings/word_embeddings",
        "bert.embeddings.LayerNorm.weight": "bert/embeddings/LayerNorm/gamma",
        f"bert.encoder.{layer}.weight": "bert/encoder/layer_1/attention/self/value/kernel",
        f"bert.encoder.{layer}.bias": "bert/encoder/layer_1/attention/self/value/bias",
        "bert.encoder.layer.0.intermediate.dense.weight": "bert/encoder/layer_0/intermediate/dense/kernel",
        "cls.predictions.bias": "cls/predictions/output_bias",
        "cls.predictions.transform.LayerNorm.bias": "cls/predictions/transform/LayerNorm/beta",
        "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    }.items():
        # A kernel multiplies from the other side than a Linear's weight.
        wanted = written[key].T if key.endswith("kernel") else written[key]
        assert np.array_equal(theirs[name].numpy(), wanted), name
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("A Rivers .").input_ids == [2, 5, 6, 7, 8, 3]


def test_a_release_goes_to_hugging_face_s_layout_and_back_to_the_same_tensors(google: Path, tmp_path: Path) -> None:
    convert_weights(google, tmp_path / "ours", lowercase=True)
    export_tensorflow(tmp_path / "ours", tmp_path / "back")
    found = dict(read_checkpoint(tmp_path / "back/bert_model.ckpt"))
    assert found.keys() == expected().keys()
    for name, written in expected().items():
        assert np.array_equal(found[name], written), name
    assert (tmp_path / "back/vocab.txt").read_bytes() == (google / "vocab.txt").read_bytes()
    described = json.loads((tmp_path / "back/bert_config.json").read_text())
    assert {key: described[key] for key in CONFIG} == CONFIG
    convert_weights(tmp_path / "back", tmp_path / "again", lowercase=True)
    weights = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("ours", "again")]
    assert weights[0] == weights[1]


# BERTLINE_TENSORFLOW=python of an environment with tensorflow or tensorflow-cpu.
TENSORFLOW = os.environ.get("BERTLINE_TENSORFLOW")
READ = """
import sys, numpy, tensorflow
reader = tensorflow.train.load_checkpoint(sys.argv[1])
numpy.savez(sys.argv[2], **{name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})
"""


@pytest.mark.skipif(TENSORFLOW is None, reason="BERTLINE_TENSORFLOW names no Python with TensorFlow")
def test_tensorflow_reads_what_is_written(tmp_path: Path) -> None:
    tensors = expected() | {"global_step": np.array(7, dtype=np.int64), "x" * 300: np.zeros((0, 3), dtype=np.float32)}
    write_checkpoint(tmp_path / "bert_model.ckpt", tensors)
    arguments = [str(TENSORFLOW), "-c", READ, str(tmp_path / "bert_model.ckpt"), str(tmp_path / "read.npz")]
    subprocess.run(arguments, check=True, capture_output=True)
    with np.load(tmp_path / "read.npz") as found:
        assert set(found) == set(tensors)
        assert all(np.array_equal(found[name], values) for name, values in tensors.items())


@pytest.mark.parametrize(("suffix", "place"), [("index", 200), ("data-00000-of-00001", 1000)])
def test_a_flipped_bit_of_a_checkpoint_is_one_line(google: Path, tmp_path: Path, suffix: str, place: int) -> None:
    path = google / f"bert_model.ckpt.{suffix}"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(BertlineError, match="checksum"):
        convert_weights(google, tmp_path / "out", lowercase=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("head", ["sequence", "tokens", "answer"])
def test_a_fine_tuned_head_has_google_s_names(tmp_path: Path, head: Head) -> None:
    save_tokenizer(make_tokenizer(VOCABULARY, lowercase=True, source="x"), tmp_path / "tokenizer.json")
    network = make_task_network(BertConfig.from_dict(CONFIG), head, 2)
    (tmp_path / "model").mkdir()
    write_huggingface(
        network.config, network.state_dict(), tmp_path / "tokenizer.json", tmp_path / "model", head=head, labels="ab"
    )
    export_tensorflow(tmp_path / "model", tmp_path / "out")
    found = dict(read_checkpoint(tmp_path / "out/bert_model.ckpt"))
    name = "cls/squad/output_weights" if head == "answer" else "output_weights"
    assert np.array_equal(found[name], network.state_dict()["classifier.weight"].numpy())
    # As run_classifier.py and run_squad.py name what they save; and back, with the head.
    for path in (tmp_path / "out").glob("bert_model.ckpt.*"):
        path.rename(path.with_name(path.name.replace("bert_model.ckpt", "model.ckpt-343")))
    convert_weights(tmp_path / "out", tmp_path / "back", lowercase=True)
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "back"))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert load_finetuned(tmp_path / "back").labels == (() if head == "answer" else ("LABEL_0", "LABEL_1"))
    (tmp_path / "out/model.ckpt-0.index").touch()
    with pytest.raises(BertlineError, match=r"several checkpoints \(model.ckpt-0.index, model.ckpt-343.index\)"):
        convert_weights(tmp_path / "out", tmp_path / "second", lowercase=True)


def test_a_network_with_one_type_of_tokens_reads_pairs_in_transformers(tmp_path: Path) -> None:
    save_tokenizer(make_tokenizer(VOCABULARY, lowercase=True, source="x"), tmp_path / "tokenizer.json")
    network = make_task_network(BertConfig.from_dict({**CONFIG, "type_vocab_size": 1}), "sequence", 2).eval()
    model = tmp_path / "model"
    model.mkdir()
    weights, tokenizer_json = network.state_dict(), tmp_path / "tokenizer.json"
    write_huggingface(network.config, weights, tokenizer_json, model, head="sequence", labels="ab")
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    inputs = tokenizer("a river", "rivers .", return_tensors="pt")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(model)(**inputs).logits
    ours = network(inputs["input_ids"], torch.zeros_like(inputs["input_ids"]), inputs["attention_mask"].bool())
    torch.testing.assert_close(theirs, ours)


def test_an_encoder_without_heads_has_google_s_names(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = transformers.BertModel(transformers.BertConfig(**CONFIG))
    model.save_pretrained(tmp_path / "bare")
    (tmp_path / "bare/vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    export_tensorflow(tmp_path / "bare", tmp_path / "out")
    assert {name for name, _ in read_checkpoint(tmp_path / "out/bert_model.ckpt")} == {
        name for name in expected() if name.startswith("bert/") and "adam" not in name
    }
    convert_weights(tmp_path / "out", tmp_path / "back", lowercase=True)
    again = transformers.BertModel.from_pretrained(tmp_path / "back").state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in model.state_dict().items())


def test_a_modern_network_has_no_checkpoint_of_google_s(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "modernbert", "global_attn_every_n_layers": 1, "vocab_size": 9})
    )
    with pytest.raises(BertlineError, match="is not a BERT; only BERT has a TensorFlow checkpoint"):
        export_tensorflow(tmp_path, tmp_path / "out")


def test_a_pickle_of_tensors_becomes_safetensors(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = transformers.BertForPreTraining(transformers.BertConfig(**CONFIG))
    source = tmp_path / "theirs"
    model.config.save_pretrained(source)
    torch.save(model.state_dict(), source / "pytorch_model.bin")
    (source / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    (source / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    convert_weights(source, tmp_path / "out")
    again = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in model.state_dict().items())


def test_rows_of_the_word_embeddings_without_a_word_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Many pretrained networks have a multiple of 8 rows."""
    caplog.set_level("INFO")
    model = transformers.BertForPreTraining(transformers.BertConfig(**{**CONFIG, "vocab_size": 16}))
    write_pickle(tmp_path / "theirs", model)
    convert_weights(tmp_path / "theirs", tmp_path / "out")
    assert "theirs: the word embeddings have 16 rows for 9 entries; the others are left out" in caplog.text
    words = transformers.BertForPreTraining.from_pretrained(tmp_path / "out").bert.embeddings.word_embeddings.weight
    assert torch.equal(words, model.bert.embeddings.word_embeddings.weight[:9])


@pytest.mark.parametrize("rows", [8, 10, 144])
def test_a_vocabulary_of_another_size_is_named(tmp_path: Path, rows: int) -> None:
    write_pickle(
        tmp_path / "theirs", transformers.BertForPreTraining(transformers.BertConfig(**{**CONFIG, "vocab_size": rows}))
    )
    message = f"theirs/vocab.txt has 9 entries where {tmp_path}/theirs/config.json has {rows}; fetch them again"
    with pytest.raises(BertlineError, match=message):
        convert_weights(tmp_path / "theirs", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["SequenceClassification", "TokenClassification", "QuestionAnswering"])
def test_a_pickle_of_a_fine_tuned_network_keeps_its_head_and_its_classes(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(3)
    names = {} if kind == "QuestionAnswering" else {"id2label": {0: "bad", 1: "good", 2: "none"}}
    model = getattr(transformers, f"BertFor{kind}")(transformers.BertConfig(**CONFIG, **names))
    source = tmp_path / "theirs"
    model.config.architectures = [f"BertFor{kind}"]
    model.config.save_pretrained(source)
    torch.save(model.state_dict(), source / "pytorch_model.bin")
    (source / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    (source / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    convert_weights(source, tmp_path / "out")
    again = getattr(transformers, f"BertFor{kind}").from_pretrained(tmp_path / "out")
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in model.state_dict().items())
    assert load_finetuned(tmp_path / "out").labels == tuple(names.get("id2label", {}).values())
    # Old files give a number of classes without names.
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "id2label": None, "num_labels": 3}))
    convert_weights(source, tmp_path / "old")
    classes = () if kind == "QuestionAnswering" else ("LABEL_0", "LABEL_1", "LABEL_2")
    assert load_finetuned(tmp_path / "old").labels == classes
    with pytest.raises(BertlineError, match="its tokenizer's files say lowercase; leave out --no-lowercase"):
        convert_weights(source, tmp_path / "cased", lowercase=False)


def write_pickle(source: Path, model: Any, **config: Any) -> None:
    """A folder as older versions of transformers wrote it."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(source)
    given = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(given | config))
    torch.save(model.state_dict(), source / "pytorch_model.bin")
    (source / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    (source / "tokenizer_config.json").write_text('{"do_lower_case": true}')


MODERN = {key: value for key, value in CONFIG.items() if key not in ("type_vocab_size", "hidden_act")} | {
    "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3,
    "global_attn_every_n_layers": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "config", "message"),
    [
        (
            lambda: transformers.ModernBertForSequenceClassification(
                transformers.ModernBertConfig(**MODERN, classifier_pooling="mean")
            ),
            {},
            "classifier_pooling is 'mean', only 'cls' can be read",
        ),
        (
            lambda: transformers.BertForSequenceClassification(transformers.BertConfig(**CONFIG)),
            {"problem_type": "multi_label_classification"},
            "problem_type is 'multi_label_classification', only 'single_label_classification' can be read",
        ),
        (
            lambda: transformers.BertForMultipleChoice(transformers.BertConfig(**CONFIG)),
            {},
            "its architecture is BertForMultipleChoice, whose head cannot be read; allowed are BertForSequence",
        ),
        (
            lambda: transformers.BertForPreTraining(transformers.BertConfig(**CONFIG)),
            {"architectures": ["BertForSequenceClassification"]},
            "lacks the weights classifier.weight of its fine-tuned network; fetch it again",
        ),
        (
            lambda: transformers.BertModel(transformers.BertConfig(**CONFIG)),
            {"architectures": "BertModel"},
            "architectures is not a list; get it again",
        ),
    ],
    ids=["mean", "labels", "choice", "incomplete", "text"],
)
def test_a_network_that_the_conversion_would_change_is_refused_in_one_line(
    tmp_path: Path, model: Any, config: dict[str, Any], message: str
) -> None:
    write_pickle(tmp_path / "theirs", model(), **config)
    with pytest.raises(BertlineError, match=rf"^[^\n]*{message}[^\n]*$"):
        convert_weights(tmp_path / "theirs", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["BertModel", "BertForMaskedLM", "BertForPreTraining"])
def test_a_pretrained_network_is_converted_under_each_of_its_names(tmp_path: Path, kind: str) -> None:
    model = getattr(transformers, kind)(transformers.BertConfig(**CONFIG))
    write_pickle(tmp_path / "theirs", model)
    convert_weights(tmp_path / "theirs", tmp_path / "out")
    again = transformers.BertModel.from_pretrained(tmp_path / "out").state_dict()
    weights = model.base_model.state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in weights.items() if "pooler" not in name)


ACCENTS = "accents with this setting, and the model's tokenizer"


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"lowercase": True}, None),
        ({"lowercase": False}, None),
        ({"lowercase": True, "strip_accents": True}, None),
        ({"lowercase": False, "strip_accents": False}, None),
        ({"lowercase": True, "strip_accents": False}, f"strips {ACCENTS} keeps them: accented words"),
        ({"lowercase": False, "strip_accents": True}, f"keeps {ACCENTS} strips them: accented words"),
        (
            {"lowercase": True, "joiners": True},
            "removes joiners (U+200C, U+200D), and the model's tokenizer keeps them: words with joiners",
        ),
        ({"lowercase": True, "max_word_length": 200}, None),
        (
            {"lowercase": True, "max_word_length": 2000},
            "takes words of more than 200 characters for [UNK], and the model's tokenizer those of more than 2000: "
            "words between",
        ),
    ],
)
def test_a_release_whose_text_is_divided_otherwise_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], warned: str | None
) -> None:
    export_tensorflow(write_model(tmp_path, tokenizer=settings), tmp_path / "out")
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert messages == ([f"{tmp_path}/out: Google's code {warned} get other tokens"] if warned else [])


def test_a_tokenizer_that_does_not_divide_chinese_text_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = write_model(tmp_path)
    (model / "tokenizer.json").unlink()
    described = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(described | {"tokenize_chinese_chars": False}))
    export_tensorflow(model, tmp_path / "out")
    (message,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "Google's code divides Chinese text into characters, and the model's tokenizer does not" in message


def write_model(tmp_path: Path, name: str = "model", tokenizer: dict[str, Any] | None = None, **config: Any) -> Path:
    """A classifier in Hugging Face's layout."""
    settings = tokenizer or {"lowercase": True}
    save_tokenizer(make_tokenizer(VOCABULARY, **settings, source="x"), tmp_path / "tokenizer.json")
    network = make_task_network(BertConfig.from_dict({**CONFIG, **config}), "sequence", 2)
    (tmp_path / name).mkdir(parents=True)
    file, head = tmp_path / "tokenizer.json", {"head": "sequence", "labels": "ab"}
    write_huggingface(network.config, network.state_dict(), file, tmp_path / name, **head)
    return tmp_path / name


def contents_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("source", "output", "message"),
    [
        ("theirs/model", "mine", "mine contains thesis, which would be deleted; name another output"),
        ("theirs/model", "theirs", "theirs: the output contains the source"),
        ("theirs/model", "theirs/model", "model: the output is the source"),
        ("theirs/model", ".", "the output has no name of its own"),
        ("theirs/model", "mine/..", "the output has no name of its own"),
    ],
)
@pytest.mark.parametrize("command", ["convert", "export"])
def test_no_command_deletes_what_it_has_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, source: str, output: str, message: str
) -> None:
    weights = load_file(write_model(tmp_path, "theirs/model") / "model.safetensors")
    torch.save(weights, tmp_path / "theirs/model/pytorch_model.bin")
    (tmp_path / "theirs/other").mkdir()
    (tmp_path / "theirs/other/model.safetensors").touch()
    (tmp_path / "mine/thesis").mkdir(parents=True)
    (tmp_path / "mine/thesis/chapter1.txt").write_text("precious")
    before = contents_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertlineError, match=message):
        (convert_weights if command == "convert" else export_tensorflow)(Path(source), Path(output))
    assert contents_of(tmp_path) == before
    for name in ("out", "out"):  # what it has written itself is replaced
        (convert_weights if command == "convert" else export_tensorflow)(Path(source), Path(name))


@pytest.mark.parametrize(("given", "expected"), [(12, 12), (512, 16), (int(1e30), 16), (None, 16)])
def test_a_converted_tokenizer_truncates_as_its_source(tmp_path: Path, given: int | None, expected: int) -> None:
    write_pickle(tmp_path / "theirs", transformers.BertForSequenceClassification(transformers.BertConfig(**CONFIG)))
    settings = tmp_path / "theirs/tokenizer_config.json"
    settings.write_text(json.dumps({"do_lower_case": True} | ({"model_max_length": given} if given else {})))
    convert_weights(tmp_path / "theirs", tmp_path / "out")
    assert json.loads((tmp_path / "out/tokenizer_config.json").read_text())["model_max_length"] == expected
    assert load_finetuned(tmp_path / "out").settings["max_sequence_length"] == expected
    settings.write_text(json.dumps({"do_lower_case": True, "truncation_side": "left"}))
    with pytest.raises(BertlineError, match="truncation_side is 'left', but long inputs are cut off at the right"):
        convert_weights(tmp_path / "theirs", tmp_path / "left")


def test_an_epsilon_that_google_s_code_has_not_is_written_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export_tensorflow(write_model(tmp_path), tmp_path / "usual")
    assert "layer_norm_eps" not in (tmp_path / "usual/bert_config.json").read_text()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    export_tensorflow(write_model(tmp_path, "other", layer_norm_eps=0.05), tmp_path / "out")
    (message,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "out: Google's code normalises with an epsilon of 1e-12, and this network with 0.05" in message
    convert_weights(tmp_path / "out", tmp_path / "back", lowercase=True)
    assert json.loads((tmp_path / "back/config.json").read_text())["layer_norm_eps"] == 0.05


@pytest.mark.parametrize(("ours", "theirs"), [("gelu_new", "gelu"), ("gelu", "gelu"), ("relu", "relu")])
def test_google_s_gelu_is_the_tanh_approximation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ours: str, theirs: str
) -> None:
    caplog.set_level("INFO")
    export_tensorflow(write_model(tmp_path, hidden_act=ours), tmp_path / "out")
    assert json.loads((tmp_path / "out/bert_config.json").read_text())["hidden_act"] == theirs
    differs = "out: Google's code computes gelu by its tanh approximation, this network by erf"
    assert (differs in caplog.text) == (ours == "gelu")


LAYER, WORDS = "bert.encoder.layer.0.output.dense.weight", "bert.embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("weights", "config", "message"),
    [
        ({LAYER: torch.full((8, 12), torch.nan)}, {}, f"{LAYER} contains NaN or infinity; choose other weights"),
        (
            {LAYER: None},
            {},
            f"lacks the weights {LAYER} of its configuration, its first weights are .*; fetch it again",
        ),
        ({"classifier.bias": None}, {}, "lacks the weights classifier.bias of its fine-tuned network; fetch it again"),
        (
            {"bert.pooler.dense.bias": None},
            {},
            "lacks the weights encoder.pooler.bias of its fine-tuned network; fetch",
        ),
        ({}, {"hidden_size": 10}, r"has the shape \[9, 8\], its configuration implies \[9, 10\]; fetch it again"),
        (
            {"cls.predictions.decoder.weight": torch.zeros(9, 8)},
            {},
            f"cls.predictions.decoder.weight is not {WORDS}, and a network in which they differ cannot be read; choose",
        ),
        (
            {},
            {"architectures": ["BertForMultipleChoice"]},
            "its architecture is BertForMultipleChoice, whose head cannot be read; allowed are BertForSequence",
        ),
    ],
    ids=["nan", "layer", "bias", "pooler", "size", "decoder", "choice"],
)
def test_weights_that_cannot_be_read_are_not_written_for_google_s_code(
    tmp_path: Path, weights: dict[str, torch.Tensor | None], config: dict[str, Any], message: str
) -> None:
    model = write_model(tmp_path)
    changed = load_file(model / "model.safetensors") | weights
    save_file({name: tensor for name, tensor in changed.items() if tensor is not None}, model / "model.safetensors")
    described = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(described | config))
    with pytest.raises(BertlineError, match=rf"^{model}[^\n]*{message}[^\n]*$"):
        export_tensorflow(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_google_s_code_has_not_and_old_names_are_not_written(tmp_path: Path) -> None:
    model = write_model(tmp_path)
    export_tensorflow(model, tmp_path / "expected")
    weights = load_file(model / "model.safetensors")
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): value for name, value in weights.items()}
    matrix = {"cls.predictions.decoder.weight": old[WORDS].clone()}
    save_file({**old, **matrix, "bert.embeddings.position_ids": torch.arange(16)[None]}, model / "model.safetensors")
    export_tensorflow(model, tmp_path / "out")
    found, written = (dict(read_checkpoint(tmp_path / name / "bert_model.ckpt")) for name in ("out", "expected"))
    assert found.keys() == written.keys()
    assert all(np.array_equal(found[name], values) for name, values in written.items())


class Malicious:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("was-run",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "theirs"
    source.mkdir()
    (source / "config.json").write_text(json.dumps({**CONFIG, "model_type": "bert"}))
    for content in (pickle.dumps({"weight": Malicious()}, protocol=2), b"not a pickle"):
        (source / "pytorch_model.bin").write_bytes(content)
        with pytest.raises(BertlineError, match=r"^\S+pytorch_model\.bin is not a file of tensors alone [^\n]*$"):
            convert_weights(source, tmp_path / "out")
    torch.save({"weight": Malicious()}, source / "pytorch_model.bin")
    with pytest.raises(BertlineError, match="is not a file of tensors alone"):
        convert_weights(source, tmp_path / "out")
    assert not Path("was-run").exists()
    assert not (tmp_path / "out").exists()


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("spoil", "lowercase", "message"),
    [
        (lambda folder: cut(folder / "bert_model.ckpt.index", 300), True, r"\.index is not the index of a TensorFlow"),
        (lambda folder: cut(folder / "bert_model.ckpt.index", 20), True, r"\.index is not the index of a TensorFlow"),
        (lambda folder: cut(folder / "bert_model.ckpt.data-00000-of-00001", 900), True, r"00001 is cut off: .* fetch"),
        (lambda folder: (folder / "bert_model.ckpt.data-00000-of-00001").unlink(), True, "00001 does not exist"),
        (lambda folder: (folder / "bert_config.json").unlink(), True, r"bert_config\.json does not exist"),
        (lambda folder: (folder / "vocab.txt").unlink(), True, r"neither tokenizer\.json nor vocab\.txt"),
        (lambda folder: None, None, "give --lowercase for an uncased model, --no-lowercase for a cased one"),
        (
            lambda folder: (folder / "bert_model.ckpt.index").unlink(),
            True,
            r"neither \*\.ckpt\*\.index nor pytorch_model",
        ),
        (
            lambda folder: (folder / "vocab.txt").write_text("\n".join([*VOCABULARY[:-1], "Paris"])),
            True,
            "has words in upper case, such as 'Paris'; give --no-lowercase",
        ),
        (
            lambda folder: (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "", ""])),
            True,
            r"vocab\.txt: line 10 is empty; remove it, or get the file again",
        ),
        (
            lambda folder: (folder / "vocab.txt").write_text("\n".join(VOCABULARY[:-1])),
            True,
            "vocab.txt has 8 entries where .*/bert_config.json has 9; fetch them again",
        ),
        (
            lambda folder: (folder / "bert_config.json").write_text(json.dumps({**CONFIG, "vocab_size": 10})),
            True,
            "the weights have 9 words, but vocab_size of its configuration is 10",
        ),
        (
            lambda folder: (folder / "bert_config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 3})),
            True,
            r"lacks the weights bert\.encoder\.layer\.2\.",
        ),
    ],
)
def test_a_bad_release_is_one_line_and_leaves_nothing(
    google: Path, tmp_path: Path, spoil: Any, lowercase: bool | None, message: str
) -> None:
    spoil(google)
    with pytest.raises(BertlineError, match=message) as caught:
        convert_weights(google, tmp_path / "out", lowercase=lowercase)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_source_that_is_no_folder_is_named_as_such(google: Path, tmp_path: Path) -> None:
    for source, message in (
        (tmp_path / "nodir", "nodir does not exist; name a folder with a TensorFlow checkpoint or pytorch_model.bin"),
        (google / "vocab.txt", "vocab.txt is not a folder; name a folder with a TensorFlow checkpoint or pytorch_mode"),
    ):
        with pytest.raises(BertlineError, match=f"^{tmp_path}.*{message}"):
            convert_weights(source, tmp_path / "out", lowercase=True)


def test_the_error_for_a_directory_with_only_a_pickle_explains_how_to_convert_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "bert"}))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(
        BertlineError, match=r"is a pickle, which is not read; convert it: python workflow/scripts/conv"
    ):
        load_huggingface(tmp_path)
