"""Weights from elsewhere: what is damaged, lacks something or claims too much ends in one line that names the file."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoint_index import entry, write_index
from fault_counts import TIMES, drawing
from safetensors.torch import load_file, save_file
from test_corpus_damage import mutate
from test_modeling_conversion import CONFIG, VOCABULARY, WRITTEN, expected

from bertline.console import BertlineError
from bertline.modeling.architectures import architecture_of
from bertline.modeling.conversion import convert_weights
from bertline.modeling.huggingface import load_huggingface
from bertline.modeling.network_config import CONFIGURATIONS, LIMITS
from bertline.modeling.tensorflow_checkpoint import masked_checksum, read_checkpoint, write_checkpoint

MUTATIONS_OF_EACH_KIND = 60 * TIMES
Draw = random.Random
Tensors = dict[str, torch.Tensor]
WORDS, LAST = "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.output.dense.weight"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same weights as safetensors and as a pickle."""
    torch.manual_seed(5)
    folder = tmp_path_factory.mktemp("weights") / "whole"
    model = transformers.BertForPreTraining(transformers.BertConfig(**CONFIG))
    model.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "weights"))


def refused(read: Callable[[], Any], source: Path) -> bool:
    """Whether the source is refused, in a line with its name; anything else but a result is an error."""
    try:
        read()
    except BertlineError as error:
        message = str(error)
        assert str(source) in message
        assert "\n" not in message
        return True
    return False


def change_safetensors(folder: Path, change: Callable[[Tensors], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def change_pickle(folder: Path, change: Callable[[Tensors], None]) -> None:
    tensors = torch.load(folder / "pytorch_model.bin")
    change(tensors)
    torch.save(tensors, folder / "pytorch_model.bin")


def with_value(value: float) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors[LAST][3, 2] = value

    return change


WRONG: list[tuple[Callable[[Tensors], None], str]] = [
    (with_value(float("nan")), f"{LAST} contains NaN or infinity"),
    (with_value(float("-inf")), f"{LAST} contains NaN or infinity"),
    (lambda t: t.update({LAST: t[LAST].T.contiguous()}), rf"{LAST} has the shape \[12, 8\].* \[8, 12\]"),
    (lambda t: t.update({LAST: t[LAST].flatten()}), rf"{LAST} has the shape \[96\].* \[8, 12\]"),
    (lambda t: t.update({LAST: t[LAST].sum()}), rf"{LAST} has the shape \[\].* \[8, 12\]"),
    (lambda t: t.update({LAST: t[LAST].to(torch.int8)}), f"{LAST} is of type torch.int8"),
    (lambda t: t.update({LAST: t[LAST].double() * 1e300}), f"{LAST} contains NaN or infinity"),
    (lambda t: t.pop(LAST), f"lacks the weights {LAST} of its configuration, its first weights are .*; fetch it again"),
    (lambda t: t.update({WORDS: t[WORDS][:8].clone()}), "the weights have 8 words, but vocab_size"),
    (lambda t: t.update({WORDS: t[WORDS].sum()}), "the weights have 0 words, but vocab_size"),
    (lambda t: t.update({WORDS.removeprefix("bert."): t[WORDS].clone()}), f"{WORDS} is there twice"),
    (
        lambda t: t.update({"bert.embeddings.position_embeddings.weight": torch.zeros(9, 8)}),
        r"position_embeddings.weight has the shape \[9, 8\].* \[16, 8\]",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
@pytest.mark.parametrize("form", ["safetensors", "pickle"])
def test_weights_that_are_not_those_of_the_configuration_are_one_line(
    folder: Path, form: str, change: Callable[[Tensors], None], message: str
) -> None:
    (change_safetensors if form == "safetensors" else change_pickle)(folder, change)
    with pytest.raises(BertlineError, match=message) as caught:
        load_huggingface(folder) if form == "safetensors" else convert_weights(folder, folder / "out")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (folder / "out").exists()


@pytest.mark.parametrize(("kind", "layer"), [("Bert", "classifier"), ("Roberta", "classifier.out_proj")])
@pytest.mark.parametrize(("rows", "biases"), [(2, 3), (3, 2), (3, 1)])
def test_a_classifier_s_bias_has_as_many_values_as_its_weight_has_rows(
    tmp_path: Path, kind: str, layer: str, rows: int, biases: int
) -> None:
    config = getattr(transformers, f"{kind}Config")(**CONFIG)
    getattr(transformers, f"{kind}ForSequenceClassification")(config).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    given = {f"{layer}.weight": torch.zeros(rows, 8), f"{layer}.bias": torch.zeros(biases)}
    save_file({**load_file(path), **given}, path)
    with pytest.raises(BertlineError) as refused:
        load_huggingface(tmp_path, "sequence")
    assert str(refused.value) == (
        f"{tmp_path}: {layer}.bias has the shape [{biases}], its configuration implies [{rows}]; fetch it again"
    )


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module."])
@pytest.mark.parametrize("form", ["safetensors", "pickle"])
def test_a_prefix_of_names_is_named(folder: Path, form: str, prefix: str) -> None:
    def change(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[prefix + name] = tensors.pop(name)

    (change_safetensors if form == "safetensors" else change_pickle)(folder, change)
    message = f"lacks the weights {WORDS} of its configuration, but has {prefix}{WORDS}; remove the prefix {prefix} of"
    with pytest.raises(BertlineError, match=message):
        load_huggingface(folder) if form == "safetensors" else convert_weights(folder, folder / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(3)], "holds no table of tensors"),
        (torch.zeros(3), "holds no table of tensors"),
        (7, "holds no table of tensors"),
        ({7: torch.zeros(3)}, "lacks the weights .*: it has none; fetch it again"),
        ({"epoch": 3, "state_dict": {LAST: torch.zeros(8, 12)}}, "a table 'state_dict'; save the table of the tensors"),
        ({LAST: torch.zeros(8, 12).to_sparse()}, "sparse"),
        ({LAST: torch.zeros(8, 12, dtype=torch.complex64)}, "complex64"),
        ({LAST: torch.zeros(8, 12, device="meta")}, "meta"),
        ({LAST: torch.zeros(1).expand(8, 12)}, "claims 384 bytes, of which 4 are stored"),
        ({LAST: torch.zeros(1).expand(2**40, 2**10)}, "has the shape"),
    ],
)
def test_a_pickle_of_other_objects_is_one_line(folder: Path, content: Any, message: str) -> None:
    if isinstance(content, dict) and LAST in content:
        content = torch.load(folder / "pytorch_model.bin") | content
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(BertlineError, match=message) as caught:
        convert_weights(folder, folder / "out")
    assert "\n" not in str(caught.value)
    assert not (folder / "out").exists()


SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "type_vocab_size",
    "vocab_size",
)
NUMBERS = (*SIZES, "max_position_embeddings", "layer_norm_eps", "initializer_range")
RATES = ("hidden_dropout_prob", "attention_probs_dropout_prob")
NEVER = (float("nan"), float("inf"), -1, [[]], {"a": 1}, "8", True, 10**30, 1e300, 10**7, None)


@pytest.mark.parametrize("key", [*NUMBERS, *RATES, "hidden_act", "model_type"])
def test_a_configuration_beyond_the_limits_is_one_line_at_once(folder: Path, key: str) -> None:
    described = json.loads((folder / "config.json").read_text())
    for value in (*NEVER, *([] if key in RATES else [0])):
        (folder / "config.json").write_text(json.dumps(described | {key: value}))
        with pytest.raises(BertlineError, match=rf"config\.json: .*{key}") as caught:
            load_huggingface(folder)
        assert "\n" not in str(caught.value), value


@pytest.mark.parametrize("content", ["[]", "7", "null", '"bert"', "{}", "[" * 100_000, "9" * 5000, '{"a": 1, "a": 2}'])
def test_an_invalid_configuration_is_one_line(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content)
    assert refused(lambda: load_huggingface(folder), folder)


@pytest.mark.parametrize(
    "given",
    [
        {"model_type": "modernbert", "global_attn_every_n_layers": 0},
        {"model_type": "modernbert", "global_attn_every_n_layers": [1]},
        {"model_type": "modernbert", "global_attn_every_n_layers": 1, "layer_types": 7},
        {"model_type": "modernbert", "global_attn_every_n_layers": 1, "rope_parameters": [1]},
        {"model_type": "modernbert", "global_attn_every_n_layers": 1, "rope_parameters": {"full_attention": 7}},
        {"model_type": "modernbert", "global_attn_every_n_layers": 1, "classifier_activation": []},
        {"model_type": "roberta", "pad_token_id": "1"},
        {"model_type": "roberta", "pad_token_id": -5},
        {"model_type": "roberta", "pad_token_id": 10**12},
        {"model_type": "roberta", "pad_token_id": 1.5},
        {"model_type": "roberta", "pad_token_id": [1]},
        {"model_type": ["bert"]},
        {"model_type": {}},
        {"model_type": "bert", "is_decoder": []},
    ],
)
def test_keys_of_other_architectures_have_limits_too(folder: Path, given: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **given}))
    assert refused(lambda: load_huggingface(folder), folder)


def test_every_number_of_a_network_has_limits() -> None:
    for configuration in CONFIGURATIONS.values():
        config = configuration(vocab_size=99)
        for key, value in vars(config).items():
            assert isinstance(value, str) or key in LIMITS, key


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_checking_the_shapes_draws_no_random_number(name: str) -> None:
    """Otherwise a fine-tuning's head would begin with other values."""
    config = CONFIGURATIONS[name](vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with torch.device("meta"):
        architecture_of(config).pretraining(config)
        architecture_of(config).task_network(config, "sequence", 1)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.fault(row="inputs")
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "legacy.bin", "config.json"])
def test_changed_bytes_are_refused_or_give_finite_weights(folder: Path, name: str, record_property: Any) -> None:
    if name == "legacy.bin":
        torch.save(torch.load(folder / "pytorch_model.bin"), folder / name, _use_new_zipfile_serialization=False)
        (folder / name).replace(folder / "pytorch_model.bin")
    path = folder / name.replace("legacy", "pytorch_model")
    content, draw, found = path.read_bytes(), drawing(f"changes to {name}"), 0
    shapes = {key: tensor.shape for key, tensor in load_huggingface(folder)[1].items()}

    def read() -> None:
        if path.suffix == ".bin":
            shutil.rmtree(folder.parent / "out", ignore_errors=True)
            convert_weights(folder, folder.parent / "out")
        _, weights = load_huggingface(folder.parent / "out" if path.suffix == ".bin" else folder)
        assert all(tensor.isfinite().all() for tensor in weights.values())
        assert all(tensor.shape == shapes[key] for key, tensor in weights.items())

    for number in range(MUTATIONS_OF_EACH_KIND):
        changed = mutate(content, draw)
        if number % 2:  # in the part that describes the rest
            changed = mutate(content[:1500], draw) + content[1500:]
        path.write_bytes(changed)
        found += refused(read, folder)
    assert found > MUTATIONS_OF_EACH_KIND // 5
    record_property("faults", MUTATIONS_OF_EACH_KIND)


# TensorFlow


@pytest.fixture
def google(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WRITTEN, tmp_path / "google", ignore=shutil.ignore_patterns("*.py", "__pycache__")))


@pytest.mark.fault(row="inputs")
def test_every_changed_byte_of_a_checkpoint_s_values_is_found(google: Path, record_property: Any) -> None:
    path, draw = google / "bert_model.ckpt.data-00000-of-00001", drawing("values of a checkpoint")
    content = path.read_bytes()
    for place in draw.choices(range(len(content)), k=300 * TIMES):
        changed = bytearray(content)
        changed[place] ^= draw.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(BertlineError, match="does not have the checksum it was written with"):
            list(read_checkpoint(google / "bert_model.ckpt"))
    record_property("faults", 300 * TIMES)


@pytest.mark.fault(row="inputs")
def test_a_changed_byte_of_a_checkpoint_s_index_is_found_or_changes_nothing(google: Path, record_property: Any) -> None:
    path, draw, found = google / "bert_model.ckpt.index", drawing("index of a checkpoint"), 0
    content = path.read_bytes()
    for number in range(150 * TIMES):
        changed = bytearray(content)
        if number % 3:
            changed[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        else:
            changed = bytearray(mutate(content, draw))
        path.write_bytes(changed)
        tensors: dict[str, np.ndarray] = {}
        if refused(lambda tensors=tensors: tensors.update(read_checkpoint(google / "bert_model.ckpt")), google):
            found += 1
            continue
        assert all(np.array_equal(tensors[name], values) for name, values in expected().items()), number
    assert found > 100 * TIMES
    record_property("faults", 150 * TIMES)


def test_an_index_with_right_checksums_is_not_believed(google: Path) -> None:
    """Whoever makes an index can make its checksums."""
    prefix, draw, found = google / "made", Draw(13), 0
    write_checkpoint(prefix, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((), np.int64)})
    path = Path(f"{prefix}.index")
    content = path.read_bytes()
    size = next(
        size for size in range(8, len(content)) if content[size + 1 : size + 5] == masked_checksum(content[: size + 1])
    )
    for number in range(300):
        block = bytearray(content[:size])
        for _ in range(draw.choice((1, 1, 2, 4))):
            block[draw.randrange(size)] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        changed = bytes(block) + b"\0"
        path.write_bytes(changed + masked_checksum(changed) + content[size + 5 :])
        tensors: dict[str, np.ndarray] = {}
        found += refused(lambda tensors=tensors: tensors.update(read_checkpoint(prefix)), google)
        assert sum(values.nbytes for values in tensors.values()) <= 1000, number
    assert found > 100


@pytest.mark.parametrize(
    ("block", "times", "message"),
    [
        ([entry(b"a"), entry(b"b", shared=1)], 1, ""),
        ([entry(b"a"), entry(b"b", shared=1)], 5000, "its blocks overlap"),
        ([], 5000, "its blocks overlap"),
        ([entry(b"b"), entry(b"a")], 1, "its keys are not sorted"),
        ([entry(b"a"), entry(b"", shared=1)], 1, "its keys are not sorted"),
        ([entry(b"k" * 1001)], 1, "it has a key of more than 1000 bytes"),
        ([entry(b"k" * 900), entry(b"m" * 101, shared=900)], 1, "it has a key of more than 1000 bytes"),
        ([entry(b"a", b"\x08" + b"\xff" * 100_000 + b"\x01")], 1, "it has a number of more than 10 bytes"),
    ],
    ids=["whole", "repeated", "empty", "unsorted", "equal", "long", "shared", "number"],
)
def test_an_index_that_would_unfold_to_much_more_is_one_line(
    tmp_path: Path, block: list[bytes], times: int, message: str
) -> None:
    write_index(tmp_path / "made.index", block, times)
    (tmp_path / "made.data-00000-of-00001").write_bytes(bytes(4))
    # Of the values only the checksum is missing.
    expected = f"is not the index of a TensorFlow checkpoint .{message}" if message else "a does not have the checksum"
    with pytest.raises(BertlineError, match=rf"^{tmp_path}[^\n]*{expected}"):
        list(read_checkpoint(tmp_path / "made"))
