"""The pretraining objective: what counts as right."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from bertline.training.objective import make_loss_fn


class Fixed(nn.Module):
    """Gives the same scores whatever it reads."""

    def __init__(self, words: Tensor, pairs: Tensor) -> None:
        super().__init__()
        self.words, self.pairs = words, pairs

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.words + 0 * inputs[0].sum(), self.pairs


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_tie_is_right_only_for_the_first_token_as_by_argmax(compiled: bool) -> None:
    """Scores in bf16 tie often: then every tied token had the highest score, and one is predicted."""
    torch.manual_seed(1)
    words = torch.randn(400, 50).mul(2).round()  # many ties
    pairs = torch.tensor([[1.0, 1.0], [0.0, 2.0], [3.0, 3.0]])
    labels = torch.randint(50, (400,))
    labels[::7] = -100
    pair_labels = torch.tensor([0, 1, 1])
    loss_fn = make_loss_fn(Fixed(words, pairs), precision="fp32", compiled=compiled)
    ids = torch.zeros(1, 1, dtype=torch.long)
    found = loss_fn(ids, ids, ids, ids, labels, pair_labels)
    assert float(found.mlm_correct) == float((words.argmax(1) == labels).sum())
    assert float((words.gather(1, labels.clamp(min=0)[:, None])[:, 0] == words.amax(1)).sum()) > float(
        found.mlm_correct
    )
    assert float(found.pair_correct) == 2
