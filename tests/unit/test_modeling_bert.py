"""The network against transformers' BERT: same logits, same losses while it trains."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig as TheirConfig
from transformers import BertForPreTraining as TheirBert

from bertline.console import BertlineError
from bertline.modeling.bert import BertForPreTraining, BertModel, initialize, make_task_network
from bertline.modeling.huggingface import to_huggingface
from bertline.modeling.network_config import BertConfig

SHAPE = {
    "vocab_size": 131,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def random_batch(generator: torch.Generator, *, rows: int = 4, length: int = 24) -> dict[str, torch.Tensor]:
    input_ids = torch.randint(5, 131, (rows, length), generator=generator)
    lengths = torch.randint(length // 2, length + 1, (rows,), generator=generator)
    attention_mask = torch.arange(length) < lengths[:, None]
    return {
        "input_ids": input_ids * attention_mask,
        "token_type_ids": (torch.arange(length) >= 10).long().expand(rows, length) * attention_mask,
        "attention_mask": attention_mask,
        "masked_positions": torch.tensor([row * length + position for row in range(rows) for position in (1, 5, 9)]),
        "mlm_labels": torch.randint(5, 131, (rows * 3,), generator=generator),
        "pair_labels": torch.randint(0, 2, (rows,), generator=generator),
    }


def our_loss(model: BertForPreTraining, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    mlm_logits, pair_logits = model(
        batch["input_ids"], batch["token_type_ids"], batch["attention_mask"], batch["masked_positions"]
    )
    return F.cross_entropy(mlm_logits, batch["mlm_labels"]) + F.cross_entropy(pair_logits, batch["pair_labels"])


def their_loss(model: TheirBert, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    labels = torch.full_like(batch["input_ids"], -100)
    labels.view(-1)[batch["masked_positions"]] = batch["mlm_labels"]
    return model(
        input_ids=batch["input_ids"],
        token_type_ids=batch["token_type_ids"],
        attention_mask=batch["attention_mask"].long(),
        labels=labels,
        next_sentence_label=batch["pair_labels"],
    ).loss


def both_models() -> tuple[BertForPreTraining, TheirBert]:
    torch.manual_seed(1)
    config = BertConfig.from_dict(SHAPE)
    ours = BertForPreTraining(config)
    theirs = TheirBert(TheirConfig(**SHAPE))
    theirs.load_state_dict(to_huggingface(config, ours.state_dict()), strict=False)
    theirs.tie_weights()
    return ours, theirs


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), [(torch.float32, 20, 1e-4), (torch.float64, 200, 1e-8)])
def test_training_gives_the_loss_of_transformers_at_every_step(dtype, steps, tolerance):
    """AdamW with eps 1e-6 at learning rate 2e-3, no dropout."""
    ours, theirs = (model.to(dtype) for model in both_models())
    optimizers = [
        torch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-6, weight_decay=0.01) for model in (ours, theirs)
    ]
    generator = torch.Generator().manual_seed(2)
    losses = []
    batches = [random_batch(generator) for _ in range(2)]
    for step in range(steps):
        batch = batches[step % 2]
        pair = []
        for loss, optimizer in zip((our_loss(ours, batch), their_loss(theirs, batch)), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pair.append(loss.item())
        losses.append(pair)
    assert max(abs(ours - theirs) for ours, theirs in losses) < tolerance
    assert losses[-1][0] < losses[0][0]


def test_padding_logits_are_minus_infinity_and_padding_rows_never_move():
    ours, _ = both_models()
    batch = random_batch(torch.Generator().manual_seed(3))
    logits, _ = ours(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"], batch["masked_positions"])
    assert logits.shape == (12, 192)
    assert torch.isinf(logits[:, 131:]).all()
    assert torch.isfinite(logits[:, :131]).all()
    our_loss(ours, batch).backward()
    gradient = ours.encoder.embeddings.word.weight.grad
    assert gradient is not None
    assert not gradient[131:].any()
    assert gradient[5:131].any()


def test_padding_changes_nothing():
    ours, _ = both_models()
    generator = torch.Generator().manual_seed(4)
    input_ids = torch.randint(5, 131, (2, 16), generator=generator)
    types = torch.zeros_like(input_ids)
    positions = torch.tensor([3, 7])
    alone, pair_alone = ours(input_ids, types, None, positions)
    padded_ids = F.pad(input_ids, (0, 8))
    mask = F.pad(torch.ones_like(input_ids), (0, 8)).bool()
    padded, pair_padded = ours(padded_ids, F.pad(types, (0, 8)), mask, positions)
    torch.testing.assert_close(alone, padded, rtol=0, atol=1e-5)
    torch.testing.assert_close(pair_alone, pair_padded, rtol=0, atol=1e-5)


def test_question_answering_scores_every_position():
    model = make_task_network(BertConfig.from_dict(SHAPE), "answer", 2)
    batch = random_batch(torch.Generator().manual_seed(5))
    logits = model(batch["input_ids"], batch["token_type_ids"], batch["attention_mask"])
    assert logits.shape == (4, 24, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden_size": 32}, "unknown key 'hiden_size'"),
        ({"hidden_size": "32"}, "hidden_size: given '32'"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"hidden_act": "swish"}, "hidden_act: given 'swish'"),
    ],
)
def test_a_wrong_key_of_the_model_is_named(change, message):
    with pytest.raises(BertlineError, match=message):
        BertConfig.from_dict({**SHAPE, **change})


def test_configuration_survives_its_dictionary():
    config = BertConfig.from_dict(SHAPE)
    assert BertConfig.from_dict(config.to_dict()) == config


def test_sinusoidal_positions_start_with_neighbours_alike() -> None:
    config = BertConfig(
        vocab_size=100,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        position_initialization="sinusoidal",
    )
    model = BertModel(config)
    initialize(model, config)
    table = model.embeddings.position.weight
    # The longest wavelength is 50 tokens: the last pair of numbers is the same again 50 places on.
    assert torch.allclose(table[7, 14:16], table[57, 14:16], atol=1e-5)
    assert table.square().mean().sqrt().item() == pytest.approx(0.02, rel=1e-3)
    similarity = torch.nn.functional.cosine_similarity(table[50], table[:100])
    assert sorted(similarity.argsort(descending=True)[:3].tolist()) == [49, 50, 51]
