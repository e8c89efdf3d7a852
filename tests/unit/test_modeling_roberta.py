"""RoBERTa against transformers: the same logits from its folders, and from ours with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from roberta_folder import POSITIONS, SHAPE, train_vocabulary, write_roberta
from synthetic_dataset import write_tokenizer
from torch import Tensor
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)
from transformers import RobertaConfig as TheirConfig
from transformers import RobertaModel as TheirEncoder

from bertline.console import BertlineError
from bertline.encoding.tokenizer import load_tokenizer
from bertline.finetuning.prediction import classify, load_finetuned
from bertline.modeling.architectures import ARCHITECTURES, architecture_of
from bertline.modeling.attention import Packed
from bertline.modeling.conversion import convert_weights, export_tensorflow
from bertline.modeling.huggingface import export_huggingface, load_huggingface, to_huggingface, write_huggingface
from bertline.modeling.network_config import config_from_dict
from bertline.tasks.task import Head

TOLERANCE = {"rtol": 0.0, "atol": 1e-5}
AUTO = {
    "sequence": AutoModelForSequenceClassification,
    "tokens": AutoModelForTokenClassification,
    "answer": AutoModelForQuestionAnswering,
}


@pytest.fixture
def theirs(tmp_path: Path) -> RobertaForMaskedLM:
    return write_roberta(tmp_path / "theirs")


def random_inputs(words: int, padding: int, *, rows: int = 4, length: int = POSITIONS) -> tuple[Tensor, Tensor]:
    """Token ids of different lengths, one of all positions, and their mask."""
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(length // 4, length, (rows,), generator=generator)
    lengths[0] = length
    mask = torch.arange(length) < lengths[:, None]
    ids = torch.randint(4, words, (rows, length), generator=generator)
    return torch.where(mask, ids, padding), mask


def logits_of(folder: Path, ids: Tensor, mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
    """Our logits of every position."""
    config, weights = load_huggingface(folder)
    network = architecture_of(config).pretraining(config).eval()
    assert not network.load_state_dict(weights, strict=False).missing_keys
    types = torch.zeros_like(ids) if token_type_ids is None else token_type_ids
    with torch.no_grad():
        words, pair = network(ids, types, mask, torch.arange(ids.numel()))
    assert pair is None
    return words.view(*ids.shape, -1)[..., : config.vocab_size]


def test_what_transformers_saved_gives_the_same_logits(theirs: RobertaForMaskedLM, tmp_path: Path) -> None:
    ids, mask = random_inputs(theirs.config.vocab_size, padding=1)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    assert expected[mask].std() > 0.3
    torch.testing.assert_close(logits_of(tmp_path / "theirs", ids, mask)[mask], expected[mask], **TOLERANCE)
    # Token types, which RoBERTa does not have, change nothing.
    typed = logits_of(tmp_path / "theirs", ids, mask, torch.ones_like(ids))
    torch.testing.assert_close(typed[mask], expected[mask], **TOLERANCE)


def test_a_packed_batch_gives_the_same_logits(theirs: RobertaForMaskedLM, tmp_path: Path) -> None:
    ids, mask = random_inputs(theirs.config.vocab_size, padding=1)
    config, weights = load_huggingface(tmp_path / "theirs")
    network = architecture_of(config).pretraining(config).eval()
    network.load_state_dict(weights)
    ends = mask.sum(1).cumsum(0)
    starts = torch.cat([torch.zeros(1, dtype=torch.long), ends])
    positions = torch.cat([torch.arange(int(length)) for length in mask.sum(1)])
    packed = Packed(starts.int(), positions, POSITIONS)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits[mask]
        flat = ids[mask][None]
        found = network(flat, torch.zeros_like(flat), packed, torch.arange(flat.numel()))[0]
    torch.testing.assert_close(found[:, : config.vocab_size], expected, **TOLERANCE)


def test_an_export_is_what_transformers_saved(theirs: RobertaForMaskedLM, tmp_path: Path) -> None:
    config, weights = load_huggingface(tmp_path / "theirs")
    assert config.max_position_embeddings == POSITIONS
    export_huggingface(config, weights, tmp_path / "theirs/tokenizer.json", tmp_path / "ours")
    again, report = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert isinstance(again, RobertaForMaskedLM)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    for name, tensor in theirs.state_dict().items():
        # The two rows of no position differ: nothing reads them.
        rows = slice(2, None) if "position_embeddings" in name else slice(None)
        assert torch.equal(again.state_dict()[name][rows], tensor[rows]), name
    before, after = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("theirs", "ours"))
    shared = {*before, *after} - {"dtype", "transformers_version", "use_cache", "position_initialization"}
    assert {key: after[key] for key in shared & after.keys()} == {
        key: before.get(key, "absolute") for key in shared & after.keys()
    }
    assert (after["max_position_embeddings"], after["pad_token_id"], after["bos_token_id"]) == (POSITIONS + 2, 1, 0)
    texts = ["The river is deep .", "who died in <mask> ?"], ["a river", "n4 was"]
    for tokenizer in (AutoTokenizer.from_pretrained(tmp_path / folder) for folder in ("theirs", "ours")):
        found = tokenizer(*texts, padding=True)
        assert found.keys() == {"input_ids", "attention_mask"}
        assert tokenizer.decode(found.input_ids[0]).startswith("<s>The river is deep .</s></s>a river</s>")
    assert AutoTokenizer.from_pretrained(tmp_path / "theirs")(*texts).input_ids == tokenizer(*texts).input_ids


def test_a_network_of_ours_with_bert_s_names_of_tokens_is_loaded_by_transformers(tmp_path: Path) -> None:
    """Its [PAD] is 0, so that its positions begin at 1."""
    write_tokenizer(tmp_path / "tokenizer.json")
    words = load_tokenizer(tmp_path / "tokenizer.json").get_vocab_size()
    config = config_from_dict(
        {
            "architecture": "roberta",
            "vocab_size": words,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 48,
            "max_position_embeddings": POSITIONS,
            "initializer_range": 0.2,
        }
    )
    torch.manual_seed(3)
    network = architecture_of(config).pretraining(config).eval()
    export_huggingface(config, network.state_dict(), tmp_path / "tokenizer.json", tmp_path / "export")
    theirs = AutoModelForMaskedLM.from_pretrained(tmp_path / "export").eval()
    assert theirs.config.max_position_embeddings == POSITIONS + 1
    assert theirs.config.type_vocab_size == 1
    assert theirs.config.layer_norm_eps == 1e-5
    ids, mask = random_inputs(words, padding=0)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
        found = network(ids, torch.zeros_like(ids), mask, torch.arange(ids.numel()))[0].view(*ids.shape, -1)
    assert expected[mask].std() > 0.1
    torch.testing.assert_close(found[..., :words][mask], expected[mask], **TOLERANCE)
    torch.testing.assert_close(logits_of(tmp_path / "export", ids, mask)[mask], expected[mask], **TOLERANCE)


@pytest.mark.parametrize(("head", "outputs"), [("sequence", 3), ("sequence", 1), ("tokens", 5), ("answer", 2)])
def test_a_fine_tuned_network_has_the_same_outputs_in_transformers(
    theirs: RobertaForMaskedLM, tmp_path: Path, head: Head, outputs: int
) -> None:
    config, weights = load_huggingface(tmp_path / "theirs")
    torch.manual_seed(4)
    network = ARCHITECTURES["roberta"].task_network(config, head, outputs).eval()
    missing = network.load_state_dict(weights, strict=False).missing_keys
    assert all(name.startswith(("classifier", "encoder.pooler")) for name in missing)
    labels = [f"class {number}" for number in range(outputs)] if head != "answer" and outputs > 1 else []
    (tmp_path / "export").mkdir()
    tokenizer = tmp_path / "theirs/tokenizer.json"
    write_huggingface(config, network.state_dict(), tokenizer, tmp_path / "export", head=head, labels=labels)
    loaded, report = AUTO[head].from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids, mask = random_inputs(config.vocab_size, padding=1)
    with torch.no_grad():
        found = network(ids, torch.ones_like(ids), mask)
        output = loaded.eval()(input_ids=ids, attention_mask=mask.long())
    expected = torch.stack([output.start_logits, output.end_logits], dim=-1) if head == "answer" else output.logits
    assert expected.std() > 0.1
    if head != "sequence":
        found, expected = found[mask], expected[mask]
    torch.testing.assert_close(found, expected, **TOLERANCE)
    # And back.
    again = ARCHITECTURES["roberta"].task_network(config, head, outputs)
    again.load_state_dict(load_huggingface(tmp_path / "export", head)[1])
    for name, tensor in network.state_dict().items():
        assert torch.equal(again.state_dict()[name][: config.vocab_size], tensor[: config.vocab_size]), name


def test_an_encoder_saved_without_heads_is_loaded(tmp_path: Path, theirs: RobertaForMaskedLM) -> None:
    encoder = TheirEncoder(theirs.config, add_pooling_layer=True)
    encoder.save_pretrained(tmp_path / "encoder")
    _, weights = load_huggingface(tmp_path / "encoder")
    table = encoder.state_dict()["embeddings.position_embeddings.weight"]
    assert torch.equal(weights["encoder.embeddings.position.weight"], table[2:])
    assert "encoder.pooler.weight" not in weights  # transformers does not read it for a task, either


def test_names_go_there_and_back(tmp_path: Path, theirs: RobertaForMaskedLM) -> None:
    config, weights = load_huggingface(tmp_path / "theirs")
    names = to_huggingface(config, weights, padding=1).keys()
    tied = {"lm_head.decoder.weight", "lm_head.decoder.bias"}
    assert names == theirs.state_dict().keys() - tied


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"is_decoder": True}, "is_decoder is True, only False can be read; choose other weights"),
        ({"max_position_embeddings": 2}, "max_position_embeddings is 2, of which 2 are unused; choose other weights"),
        ({"max_position_embeddings": 99}, "have 66 positions, but max_position_embeddings of its configuration is 99"),
    ],
)
def test_another_roberta_is_refused_in_one_line(
    tmp_path: Path, theirs: RobertaForMaskedLM, changes: dict[str, int], message: str
) -> None:
    path = tmp_path / "theirs/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(BertlineError) as raised:
        load_huggingface(tmp_path / "theirs")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_initial_network_has_the_published_deviation() -> None:
    config = config_from_dict(
        {"architecture": "roberta", "vocab_size": 100, "hidden_size": 252, "num_hidden_layers": 1}
    )
    weights = architecture_of(config).pretraining(config).state_dict()
    assert np.isclose(weights["encoder.embeddings.position.weight"].std(), 0.02, rtol=0.02)
    assert weights["encoder.embeddings.token_type.weight"].shape == (1, 252)
    assert config.layer_norm_eps == 1e-5


def test_a_pickle_of_tensors_is_converted_and_google_s_layout_is_refused(
    theirs: RobertaForMaskedLM, tmp_path: Path
) -> None:
    (tmp_path / "theirs/model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "theirs/pytorch_model.bin")
    convert_weights(tmp_path / "theirs", tmp_path / "converted")
    ids, mask = random_inputs(theirs.config.vocab_size, padding=1)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(logits_of(tmp_path / "converted", ids, mask)[mask], expected[mask], **TOLERANCE)
    with pytest.raises(BertlineError, match="is not a BERT; only BERT has a TensorFlow checkpoint"):
        export_tensorflow(tmp_path / "converted", tmp_path / "tensorflow")


def test_a_classifier_that_transformers_fine_tuned_predicts_the_same(
    theirs: RobertaForMaskedLM, tmp_path: Path
) -> None:
    theirs.config.num_labels = 3
    model = RobertaForSequenceClassification(theirs.config).eval()
    model.roberta.load_state_dict(theirs.roberta.state_dict())
    model.save_pretrained(tmp_path / "theirs")
    texts = [("The river is deep .", "who died ?"), ("n4", "p3 was born")]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        expected = torch.cat([model(**tokenizer(*pair, return_tensors="pt")).logits for pair in texts]).softmax(1)
    found = classify(load_finetuned(tmp_path / "theirs"), texts)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_second_token_type_is_not_used_as_the_tokenizer_gives_none(tmp_path: Path) -> None:
    train_vocabulary().save_pretrained(tmp_path / "theirs")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "theirs")
    shape = {**SHAPE, "type_vocab_size": 2}
    torch.manual_seed(5)
    config = TheirConfig(vocab_size=len(tokenizer), max_position_embeddings=POSITIONS + 2, **shape)
    model = RobertaForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path / "theirs")
    pair = ("The river is deep .", "who died ?")
    with torch.no_grad():
        expected = model(**tokenizer(*pair, return_tensors="pt")).logits.softmax(1)
    np.testing.assert_allclose(classify(load_finetuned(tmp_path / "theirs"), [pair]), expected, atol=1e-5)
