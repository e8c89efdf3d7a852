"""The modern network against transformers' ModernBERT: same logits, same losses while it trains, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from synthetic_dataset import write_tokenizer
from torch import Tensor
from torch.nn import functional as F
from transformers import (
    AutoTokenizer,
    ModernBertForMaskedLM,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
)
from transformers import ModernBertConfig as TheirConfig
from transformers import ModernBertModel as TheirEncoder

from bertline.console import BertlineError
from bertline.modeling.attention import Packed
from bertline.modeling.huggingface import export_huggingface, load_encoder, load_huggingface, to_huggingface
from bertline.modeling.modern import ModernForPreTraining, make_task_network, rotation_of
from bertline.modeling.network_config import BertConfig, ModernConfig, config_from_dict
from bertline.training.optimizers.registry import make_optimizer

WORDS = 75
SHAPE: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 48,
    "global_rope_theta": 500.0,  # not transformers' default: it must come through
}
SPECIAL = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
THEIR_SHAPE = {**SHAPE, **SPECIAL, "global_attn_every_n_layers": 1}
TOLERANCE = {"rtol": 0.0, "atol": 1e-5}


def sharp_model(seed: int) -> ModernForPreTraining:
    """Weights large enough that a wrong one shows in the logits."""
    torch.manual_seed(seed)
    model = ModernForPreTraining(ModernConfig.from_dict({**SHAPE, "initializer_range": 0.3})).eval()
    blur(model)
    return model


def blur(model: torch.nn.Module) -> None:
    """Scales that are not 1 and biases that are not 0."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)


def random_batch(generator: torch.Generator, *, rows: int = 4, length: int = 24) -> dict[str, Tensor]:
    lengths = torch.randint(length // 2, length + 1, (rows,), generator=generator)
    attention_mask = torch.arange(length) < lengths[:, None]
    return {
        "input_ids": torch.randint(5, WORDS, (rows, length), generator=generator) * attention_mask,
        "token_type_ids": (torch.arange(length) >= 10).long().expand(rows, length) * attention_mask,
        "attention_mask": attention_mask,
        "masked_positions": torch.tensor([row * length + position for row in range(rows) for position in (1, 5, 9)]),
        "labels": torch.randint(5, WORDS, (rows * 3,), generator=generator),
    }


def inputs_of(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    return batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]


def compare_logits(ours: ModernForPreTraining, theirs: ModernBertForMaskedLM) -> None:
    batch = random_batch(torch.Generator().manual_seed(7))
    with torch.no_grad():
        logits, pair = ours(*inputs_of(batch), batch["masked_positions"])
        output = theirs(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"].long())
    expected = output.logits.reshape(-1, WORDS)[batch["masked_positions"]]
    assert expected.std() > 0.3
    assert pair is None
    torch.testing.assert_close(logits[:, :WORDS], expected, **TOLERANCE)


@pytest.fixture
def tokenizer_json(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    return path


@pytest.fixture
def export(tmp_path: Path, tokenizer_json: Path) -> tuple[ModernForPreTraining, Path]:
    ours = sharp_model(1)
    export_huggingface(ours.config, ours.state_dict(), tokenizer_json, tmp_path / "export")
    return ours, tmp_path / "export"


# Beside transformers


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_transformers_loads_the_export_with_the_same_logits(export, attention):
    ours, directory = export
    theirs, report = ModernBertForMaskedLM.from_pretrained(
        directory, output_loading_info=True, attn_implementation=attention
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert theirs.config.layer_types == ["full_attention"] * 3
    compare_logits(ours, theirs.eval())


def test_we_load_what_transformers_saved_with_the_same_logits(tmp_path):
    torch.manual_seed(2)
    theirs = ModernBertForMaskedLM(TheirConfig(**THEIR_SHAPE, initializer_range=0.3)).eval()
    blur(theirs)
    theirs.save_pretrained(tmp_path / "theirs")
    config, weights = load_huggingface(tmp_path / "theirs")
    ours = ModernForPreTraining(config).eval()
    assert load_encoder(ours, weights) == []
    compare_logits(ours, theirs)


def test_twenty_steps_give_the_same_loss_as_transformers():
    ours = ModernForPreTraining(ModernConfig.from_dict(SHAPE))
    theirs = ModernBertForMaskedLM(TheirConfig(**THEIR_SHAPE))
    missing, unexpected = theirs.load_state_dict(to_huggingface(ours.config, ours.state_dict()), strict=False)
    assert (missing, unexpected) == (["decoder.weight"], [])
    theirs.tie_weights()
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=5e-3, eps=1e-6, weight_decay=0.01) for model in (ours, theirs)
    ]
    generator = torch.Generator().manual_seed(2)
    batches = [random_batch(generator) for _ in range(2)]
    losses = []
    for step in range(20):
        batch = batches[step % 2]
        labels = torch.full_like(batch["input_ids"], -100)
        labels.view(-1)[batch["masked_positions"]] = batch["labels"]
        our_loss = F.cross_entropy(ours(*inputs_of(batch), batch["masked_positions"])[0], batch["labels"])
        their_loss = theirs(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"].long(), labels=labels
        ).loss
        for loss, optimizer in zip((our_loss, their_loss), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append((our_loss.item(), their_loss.item()))
    assert max(abs(ours - theirs) for ours, theirs in losses) < 1e-4
    assert losses[-1][0] < 0.8 * losses[0][0]


def test_random_weights_spread_as_those_of_transformers():
    shape = {**SHAPE, "hidden_size": 96, "intermediate_size": 64}
    torch.manual_seed(3)
    ours = ModernForPreTraining(ModernConfig.from_dict(shape))
    theirs = ModernBertForMaskedLM(TheirConfig(**{**THEIR_SHAPE, **shape})).state_dict()
    for name, tensor in to_huggingface(ours.config, ours.state_dict()).items():
        assert tensor.std().item() == pytest.approx(theirs[name].std().item(), rel=0.05), name
        assert tensor.abs().max().item() == pytest.approx(theirs[name].abs().max().item(), rel=0.05), name
    assert not ours.encoder.embeddings.word.weight[WORDS:].any()


@pytest.mark.parametrize("task", ["classes", "spans"])
def test_a_task_continues_from_the_pretrained_head_as_in_transformers(export, task):
    directory = export[1]
    config, weights = load_huggingface(directory)
    batch = random_batch(torch.Generator().manual_seed(8))
    their_class = {"classes": ModernBertForSequenceClassification, "spans": ModernBertForQuestionAnswering}[task]
    theirs = their_class.from_pretrained(directory, num_labels=2).eval()
    ours = make_task_network(config, "sequence" if task == "classes" else "answer", 2)
    assert load_encoder(ours, weights) == ["classifier.weight", "classifier.bias"]
    ours.classifier.load_state_dict(theirs.classifier.state_dict())
    with torch.no_grad():
        found = ours(*inputs_of(batch))
        expected = theirs(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"].long())
    if task == "classes":
        torch.testing.assert_close(found, expected.logits, **TOLERANCE)
    else:
        inside = batch["attention_mask"]
        torch.testing.assert_close(found[inside][:, 0], expected.start_logits[inside], **TOLERANCE)
        torch.testing.assert_close(found[inside][:, 1], expected.end_logits[inside], **TOLERANCE)


def test_the_exported_tokenizer_gives_what_the_model_takes(export):
    ours, directory = export
    encoded = AutoTokenizer.from_pretrained(directory)("word3 word4", "word5", return_tensors="pt")
    assert encoded.keys() == {"input_ids", "attention_mask"}
    assert encoded["input_ids"][0].tolist() == [2, 8, 9, 3, 10, 3]
    theirs = ModernBertForMaskedLM.from_pretrained(directory).eval()
    with torch.no_grad():
        expected = theirs(**encoded).logits[0]
        found, _ = ours(encoded["input_ids"], torch.zeros_like(encoded["input_ids"]), None, torch.arange(6))
    torch.testing.assert_close(found[:, :WORDS], expected, **TOLERANCE)


def test_export_and_import_give_the_same_weights_back(export):
    ours, directory = export
    config, weights = load_huggingface(directory)
    assert config == ours.config
    expected = ours.state_dict()
    expected["head.bias"][WORDS:] = 0
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_export_holds_no_padding_rows(export):
    weights = load_file(export[1] / "model.safetensors")
    assert weights["model.embeddings.tok_embeddings.weight"].shape == (WORDS, 32)
    assert weights["decoder.bias"].shape == (WORDS,)


def test_an_encoder_saved_without_heads_starts_a_task(tmp_path):
    torch.manual_seed(7)
    theirs = TheirEncoder(TheirConfig(**THEIR_SHAPE))
    theirs.save_pretrained(tmp_path / "encoder")
    config, weights = load_huggingface(tmp_path / "encoder")
    model = make_task_network(config, "answer", 2)
    assert load_encoder(model, weights) == [
        "head.dense.weight",
        "head.normalization.weight",
        "classifier.weight",
        "classifier.bias",
    ]
    assert torch.equal(model.encoder.layers[2].qkv.weight, theirs.layers[2].attn.Wqkv.weight)


def test_a_missing_encoder_weight_is_an_error():
    model = sharp_model(8)
    weights = {name: tensor for name, tensor in model.state_dict().items() if "final_normalization" not in name}
    with pytest.raises(BertlineError, match=r"encoder\.final_normalization\.weight is missing"):
        load_encoder(make_task_network(model.config, "answer", 2), weights)


# Forms of a batch


def test_packed_padded_and_one_by_one_give_the_same_loss_and_gradients():
    model = sharp_model(4).double()
    generator = torch.Generator().manual_seed(5)
    lengths, width = [9, 16, 4], 16
    sequences = [torch.randint(5, WORDS, (length,), generator=generator) for length in lengths]
    masked = [torch.randperm(length, generator=generator)[:3].sort().values for length in lengths]
    labels = torch.randint(5, WORDS, (9,), generator=generator)

    def loss_and_gradients(*batches: tuple[Tensor, Any, Tensor]) -> list[Tensor]:
        model.zero_grad()
        logits = [model(ids, torch.zeros_like(ids), mask, positions)[0] for ids, mask, positions in batches]
        loss = F.cross_entropy(torch.cat(logits), labels)
        loss.backward()
        return [loss.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]

    alone = loss_and_gradients(
        *((ids[None], None, positions) for ids, positions in zip(sequences, masked, strict=True))
    )
    padded = loss_and_gradients(
        (
            torch.stack([F.pad(ids, (0, width - len(ids))) for ids in sequences]),
            torch.arange(width) < torch.tensor(lengths)[:, None],
            torch.cat([row * width + positions for row, positions in enumerate(masked)]),
        )
    )
    starts = torch.tensor([0, 9, 25, 29, 29])  # the last one is not a sequence
    packed = loss_and_gradients(
        (
            torch.cat(sequences)[None],
            Packed(starts.int(), torch.cat([torch.arange(length) for length in lengths]), width),
            torch.cat([start + positions for start, positions in zip(starts, masked, strict=False)]),
        )
    )
    assert len(alone) == 1 + len(list(model.parameters()))
    for one, two, three in zip(alone, padded, packed, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-9)
        torch.testing.assert_close(one, three, rtol=0, atol=1e-9)


def test_packed_sequences_are_classified_one_by_one():
    torch.manual_seed(6)
    model = make_task_network(ModernConfig.from_dict({**SHAPE, "initializer_range": 0.3}), "sequence", 3).eval()
    ids = torch.randint(5, WORDS, (1, 20))
    packed = Packed(torch.tensor([0, 8, 20]).int(), torch.cat([torch.arange(8), torch.arange(12)]), 12)
    with torch.no_grad():
        together = model(ids, torch.zeros_like(ids), packed)
        alone = [model(part, torch.zeros_like(part), None) for part in (ids[:, :8], ids[:, 8:])]
    assert (together[0] - together[1]).abs().max() > 0.01
    torch.testing.assert_close(together, torch.cat(alone), **TOLERANCE)


def test_padding_logits_are_minus_infinity_and_padding_rows_never_move():
    ours = sharp_model(5)
    batch = random_batch(torch.Generator().manual_seed(3))
    logits, _ = ours(*inputs_of(batch), batch["masked_positions"])
    assert logits.shape == (12, 128)
    assert torch.isinf(logits[:, WORDS:]).all()
    F.cross_entropy(logits, batch["labels"]).backward()
    gradient = ours.encoder.embeddings.word.weight.grad
    assert gradient is not None
    assert not gradient[WORDS:].any()
    assert gradient[5:WORDS].any()


def test_autocast_leaves_rotations_in_full_precision():
    """In bfloat16 the positions 256 and 257 would be one."""
    exact = rotation_of(torch.arange(300), 8, 500.0)
    with torch.autocast("cpu", torch.bfloat16):
        found = rotation_of(torch.arange(300), 8, 500.0)
    assert all(torch.equal(one, other) for one, other in zip(found, exact, strict=True))


def test_normalisations_are_not_decayed():
    settings = {"optimizer": "adamw", "betas": [0.9, 0.999], "epsilon": 1e-6, "weight_decay": 0.1, "learning_rate": 0.1}
    decayed, others = make_optimizer(sharp_model(7), settings).param_groups
    assert all(weight.ndim == 2 for weight in decayed["params"])
    assert all(weight.ndim == 1 for weight in others["params"])


# Configurations


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden_size": 32}, "unknown key 'hiden_size'"),
        (
            {"hidden_act": "gelu"},
            "unknown key 'hidden_act'; of the architecture modern allowed are .*hidden_activation",
        ),
        ({"hidden_size": "32"}, "hidden_size: given '32'"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"num_attention_heads": 32}, "hidden_size 32 divided by num_attention_heads 32 is odd"),
        ({"hidden_activation": "swish"}, "hidden_activation: given 'swish', allowed are gelu"),
        ({"architecture": "moderm"}, "architecture: given 'moderm', allowed are bert, modern"),
    ],
)
def test_a_wrong_key_of_the_model_is_named(change, message):
    with pytest.raises(BertlineError, match=message) as caught:
        config_from_dict({"architecture": "modern", **SHAPE, **change})
    assert "\n" not in str(caught.value)


def test_the_architecture_chooses_the_network():
    config = config_from_dict({"architecture": "modern", **SHAPE})
    assert config == ModernConfig(**SHAPE)
    assert config_from_dict(config.to_dict()) == config
    assert config_from_dict({"vocab_size": 9}) == config_from_dict({"architecture": "bert", "vocab_size": 9})
    assert isinstance(config_from_dict({"vocab_size": 9}), BertConfig)


def test_defaults_are_those_of_transformers():
    ours, theirs = ModernConfig(vocab_size=WORDS), TheirConfig()
    for key in ours.to_dict().keys() - {"architecture", "vocab_size", "global_rope_theta"}:
        assert getattr(ours, key) == getattr(theirs, key), key
    assert ours.global_rope_theta == theirs.rope_parameters["full_attention"]["rope_theta"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"global_attn_every_n_layers": 2}, r"1 of 3 layers attend to a window only.*global_attn_every_n_layers: 1"),
        ({"layer_types": ["sliding_attention"] * 3}, "3 of 3 layers attend to a window only"),
        ({"norm_bias": True}, "norm_bias is True, only False can be read"),
        ({"classifier_activation": "relu"}, "classifier_activation is 'relu', only 'gelu' can be read"),
        ({"hidden_activation": "relu"}, "classifier_activation is 'gelu', only 'relu' can be read"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "of the type 'default'"),
        ({"rope_parameters": ["full_attention"]}, "of the type 'default'"),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, "of the type 'default'"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 4, "rope_theta": 77}},
            "rope_parameters has 'rope_type', 'factor', 'rope_theta', allowed are full_attention and sliding_attention",
        ),
    ],
)
def test_a_directory_that_we_would_compute_differently_is_refused_in_one_line(tmp_path, change, message):
    (tmp_path / "config.json").write_text(json.dumps({**THEIR_SHAPE, "model_type": "modernbert", **change}))
    with pytest.raises(BertlineError, match=message) as caught:
        load_huggingface(tmp_path)
    assert "\n" not in str(caught.value)
