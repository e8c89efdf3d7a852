"""Exports that transformers loads, and directories of transformers' that we load."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from test_modeling_bert import SHAPE, random_batch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer
from transformers import BertConfig as TheirConfig
from transformers import BertForPreTraining as TheirBert
from transformers import BertModel as TheirEncoder

from bertline.console import BertlineError
from bertline.encoding.tokenizer import ROBERTA_NAMES, SPECIAL_TOKENS, make_tokenizer, read_tokenizer, save_tokenizer
from bertline.modeling.architectures import architecture_of
from bertline.modeling.bert import BertForPreTraining, make_task_network
from bertline.modeling.huggingface import export_huggingface, load_encoder, load_huggingface, write_huggingface
from bertline.modeling.huggingface_config import read_configuration
from bertline.modeling.network_config import BertConfig, config_from_dict

TOLERANCE = {"rtol": 0.0, "atol": 1e-5}


@pytest.fixture
def tokenizer_json(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    words += [f"##{letter}" for letter in words[5:]]
    words += [f"word{number}" for number in range(131 - len(words))]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(words[:5])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def sharp_model(seed: int) -> BertForPreTraining:
    """Weights large enough that a wrong one shows in the logits."""
    torch.manual_seed(seed)
    model = BertForPreTraining(BertConfig.from_dict({**SHAPE, "initializer_range": 0.2})).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.1)
    return model


def compare_logits(ours: BertForPreTraining, theirs: TheirBert) -> None:
    batch = random_batch(torch.Generator().manual_seed(7))
    with torch.no_grad():
        mlm, pair = ours(
            batch["input_ids"], batch["token_type_ids"], batch["attention_mask"], batch["masked_positions"]
        )
        output = theirs(
            input_ids=batch["input_ids"],
            token_type_ids=batch["token_type_ids"],
            attention_mask=batch["attention_mask"].long(),
        )
    expected = output.prediction_logits.reshape(-1, 131)[batch["masked_positions"]]
    assert expected.std() > 0.1
    torch.testing.assert_close(mlm[:, :131], expected, **TOLERANCE)
    torch.testing.assert_close(pair, output.seq_relationship_logits, **TOLERANCE)


def test_transformers_loads_the_export_with_the_same_logits(tmp_path, tokenizer_json):
    ours = sharp_model(1)
    export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    theirs, report = TheirBert.from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    compare_logits(ours, theirs.eval())


def test_an_export_replaces_nothing_but_a_model(tmp_path, tokenizer_json):
    ours = sharp_model(1)
    for _ in range(2):
        export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    (tmp_path / "export/thesis").mkdir()
    with pytest.raises(BertlineError, match="export contains thesis, which would be deleted"):
        export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    with pytest.raises(BertlineError, match="the output contains the source"):
        export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tokenizer_json.parent)


def test_an_output_matrix_of_its_own_is_refused(tmp_path):
    TheirBert(TheirConfig(**SHAPE)).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for given in ({"tie_word_embeddings": True}, {}):
        without = {key: value for key, value in config.items() if key != "tie_word_embeddings"}
        (tmp_path / "config.json").write_text(json.dumps(without | given))
        load_huggingface(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(BertlineError, match="tie_word_embeddings is False, only True can be read"):
        load_huggingface(tmp_path)


SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12, "vocab_size": 9}
SMALL_MODERN = {**SMALL, "global_attn_every_n_layers": 1, "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
SMALL_MODERN |= {"bos_token_id": 2, "eos_token_id": 3}


@pytest.mark.parametrize(
    ("made", "shape", "output", "words"),
    [
        ("Bert", SMALL, "cls.predictions.decoder", "bert.embeddings.word_embeddings"),
        ("Roberta", SMALL, "lm_head.decoder", "roberta.embeddings.word_embeddings"),
        ("ModernBert", SMALL_MODERN, "decoder", "model.embeddings.tok_embeddings"),
    ],
)
def test_an_output_matrix_of_its_own_that_only_the_weights_show_is_refused(tmp_path, made, shape, output, words):
    config = getattr(transformers, f"{made}Config")(**shape)
    getattr(transformers, f"{made}ForMaskedLM")(config).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    matrix = weights[f"{words}.weight"]
    for given in (matrix, matrix.double()):
        save_file({**weights, f"{output}.weight": given.clone()}, tmp_path / "model.safetensors")
        load_huggingface(tmp_path)
    other = matrix.clone()
    other[-1, -1] += 1e-3
    for given, message in (
        (other, rf"{tmp_path}: {output}\.weight is not {words}\.weight, and a network [^\n]*; choose other weights"),
        (
            other[:-1].clone(),
            rf"{tmp_path}: {output}\.weight has the shape \[8, 8\], its configuration implies \[9, 8\]",
        ),
    ):
        save_file({**weights, f"{output}.weight": given}, tmp_path / "model.safetensors")
        with pytest.raises(BertlineError, match=message):
            load_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("made", "bias"), [("Bert", "cls.predictions.bias"), ("Roberta", "lm_head.bias")], ids=["bert", "roberta"]
)
def test_the_output_bias_is_read_under_both_of_its_names(tmp_path, made, bias):
    config = getattr(transformers, f"{made}Config")(**SMALL)
    getattr(transformers, f"{made}ForMaskedLM")(config).save_pretrained(tmp_path)
    weights, given = load_file(tmp_path / "model.safetensors"), torch.randn(9)
    other = bias.replace("bias", "decoder.bias")
    without = {name: tensor for name, tensor in weights.items() if name not in (bias, other)}
    for names in ((bias,), (other,), (bias, other)):
        save_file({**without, **{name: given.clone() for name in names}}, tmp_path / "model.safetensors")
        assert torch.equal(load_huggingface(tmp_path)[1]["masked_language_head.bias"][:9], given), names
    save_file({**without, bias: given, other: given + 1}, tmp_path / "model.safetensors")
    with pytest.raises(BertlineError, match=f"{other} is not {bias}, and a network in which they differ cannot be"):
        load_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("made", "given"),
    [("Bert", {}), ("Roberta", {}), ("ModernBert", {"global_attn_every_n_layers": 1})],
)
def test_a_key_that_a_configuration_lacks_has_transformers_value(tmp_path, made, given):
    config = getattr(transformers, f"{made}Config")(vocab_size=99, **given)
    config.to_json_file(tmp_path / "whole.json", use_diff=False)
    (tmp_path / "short.json").write_text(json.dumps({"vocab_size": 99, "model_type": config.model_type, **given}))
    assert read_configuration(tmp_path / "short.json") == read_configuration(tmp_path / "whole.json")


def test_we_load_what_transformers_saved_with_the_same_logits(tmp_path):
    torch.manual_seed(2)
    theirs = TheirBert(TheirConfig(**SHAPE, initializer_range=0.2)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    config, weights = load_huggingface(tmp_path / "theirs")
    ours = BertForPreTraining(config).eval()
    assert load_encoder(ours, weights) == []
    compare_logits(ours, theirs)


def test_export_and_import_give_the_same_weights_back(tmp_path, tokenizer_json):
    ours = sharp_model(3)
    export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    config, weights = load_huggingface(tmp_path / "export")
    assert config == ours.config
    expected = ours.state_dict()
    expected["masked_language_head.bias"][131:] = 0
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_export_holds_no_padding_rows(tmp_path, tokenizer_json):
    ours = sharp_model(4)
    export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    weights = load_file(tmp_path / "export" / "model.safetensors")
    assert weights["bert.embeddings.word_embeddings.weight"].shape == (131, 32)
    assert weights["cls.predictions.bias"].shape == (131,)


def test_transformers_tokenizes_as_the_exported_tokenizer_does(tmp_path, tokenizer_json):
    ours = sharp_model(5)
    export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    text = "Abc zoÉ 中x unknown-word!"
    theirs = AutoTokenizer.from_pretrained(tmp_path / "export")
    encoded = theirs(text, "Word5 a")
    expected = Tokenizer.from_file(str(tokenizer_json)).encode(text, add_special_tokens=False).ids
    assert encoded["input_ids"][: len(expected) + 2] == [2, *expected, 3]
    assert encoded["token_type_ids"][-1] == 1
    alone = Tokenizer.from_file(str(tmp_path / "export" / "tokenizer.json")).encode(text, "Word5 a")
    assert alone.ids == encoded["input_ids"]
    assert alone.type_ids == encoded["token_type_ids"]
    assert (tmp_path / "export" / "vocab.txt").read_text().split("\n")[:5] == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    ]  # fmt: skip


@pytest.mark.parametrize("architecture", ["bert", "modern", "roberta"])
@pytest.mark.parametrize("names", [SPECIAL_TOKENS, tuple(ROBERTA_NAMES.values())], ids=["bert", "roberta"])
def test_transformers_reads_an_export_with_byte_level_bpe(tmp_path, names, architecture):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=list(names), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["the old river and the town"] * 5, trainer=trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = config_from_dict({**SMALL, "architecture": architecture, "vocab_size": tokenizer.get_vocab_size()})
    model = architecture_of(config).pretraining(config)
    export_huggingface(config, model.state_dict(), tmp_path / "tokenizer.json", tmp_path / "export")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "export")
    expected = tokenizer.encode("The river é", add_special_tokens=False).ids
    cls, sep = tokenizer.token_to_id(names[2]), tokenizer.token_to_id(names[3])
    assert theirs("The river é")["input_ids"] == [cls, *expected, sep]
    assert (theirs.mask_token_id, theirs.pad_token_id) == (4, 0)
    pair = read_tokenizer(tmp_path / "export").encode("The river é", "The river é")
    assert pair.ids == theirs("The river é", "The river é")["input_ids"] == [cls, *expected, sep, *expected, sep]
    assert (pair.tokens[0], pair.tokens[-1]) == (names[2], names[3])


def test_an_export_of_another_tokenizer_is_refused_and_leaves_nothing(tmp_path, tokenizer_json):
    torch.manual_seed(6)
    model = BertForPreTraining(BertConfig.from_dict({**SHAPE, "vocab_size": 140}))
    with pytest.raises(BertlineError, match="131 entries where the model has 140"):
        export_huggingface(model.config, model.state_dict(), tokenizer_json, tmp_path / "export")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json"]


def test_an_encoder_saved_without_heads_starts_a_task(tmp_path):
    torch.manual_seed(7)
    theirs = TheirEncoder(TheirConfig(**SHAPE), add_pooling_layer=False)
    theirs.save_pretrained(tmp_path / "encoder")
    config, weights = load_huggingface(tmp_path / "encoder")
    model = make_task_network(config, "answer", 2)
    assert load_encoder(model, weights) == ["classifier.weight", "classifier.bias"]
    assert torch.equal(model.encoder.embeddings.word.weight[:131], theirs.embeddings.word_embeddings.weight)


def test_a_missing_encoder_weight_is_an_error():
    model = sharp_model(8)
    weights = {name: tensor for name, tensor in model.state_dict().items() if name != "encoder.layers.1.qkv.bias"}
    with pytest.raises(BertlineError, match=r"encoder\.layers\.1\.qkv\.bias is missing"):
        load_encoder(make_task_network(model.config, "answer", 2), weights)


def test_weights_of_another_vocabulary_are_an_error():
    model = sharp_model(9)
    other = BertForPreTraining(BertConfig.from_dict({**SHAPE, "vocab_size": 1000}))
    with pytest.raises(BertlineError, match="start from weights of the same model and vocabulary"):
        load_encoder(other, model.state_dict())


def test_a_directory_that_is_not_a_bert_is_refused_in_one_line(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**SHAPE, "model_type": "electra"}))
    with pytest.raises(BertlineError, match="model_type is 'electra', only bert, modernbert and roberta can be read"):
        load_huggingface(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(SHAPE))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(BertlineError, match="is a pickle"):
        load_huggingface(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(BertlineError, match="not a complete safetensors file"):
        load_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("strip_accents", "longest", "joiners"),
    [
        *((False, 100, False), (True, 100, False), (None, 100, False), (False, 1000, False)),
        *((False, 100, True), (None, 1000, True)),
    ],
)
def test_transformers_tokenizes_text_as_the_dataset_s_tokenizer(tmp_path, strip_accents, longest, joiners):
    words = [*SPECIAL_TOKENS, "the", "caf", "##é", "##e", "น", "##น", "##้", "##ำ", "می", "##\u200c", "##خ"]
    ours = make_tokenizer(words, lowercase=True, strip_accents=strip_accents, joiners=joiners, source="the test")
    ours.model.max_input_chars_per_word = longest
    save_tokenizer(ours, tmp_path / "tokenizer.json")
    config = BertConfig.from_dict({**SHAPE, "vocab_size": len(words)})
    weights = BertForPreTraining(config).state_dict()
    write_huggingface(config, weights, tmp_path / "tokenizer.json", tmp_path / "export")
    text = f"The café น้ำ of Café {'น้ำ' * 50} می\u200cخ \u200eمیخ"
    theirs = AutoTokenizer.from_pretrained(tmp_path / "export")
    assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert ("\u200c" in theirs.decode(theirs(text)["input_ids"])) == joiners
