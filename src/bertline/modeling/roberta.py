"""RoBERTa (Liu et al. 2019, arXiv 1907.11692): BERT's layers, trained on masked words only, without token types."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from bertline.modeling.attention import AttentionMask
from bertline.modeling.bert import BertModel, initialize
from bertline.modeling.heads import MaskedLanguageHead, look_up
from bertline.modeling.network_config import RobertaConfig


class RobertaForPreTraining(nn.Module):
    """The encoder with the masked language head."""

    scores_pairs: ClassVar[bool] = False

    def __init__(self, config: RobertaConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = BertModel(config, with_pooler=False)
        # transformers uses GELU here whatever the layers use.
        self.masked_language_head = MaskedLanguageHead(
            config, activation="gelu", epsilon=config.layer_norm_eps, bias=True
        )
        initialize(self, config)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: AttentionMask, masked_positions: Tensor
    ) -> tuple[Tensor, None]:
        """Score the masked positions as `BertForPreTraining.forward` does; None takes the place of pair logits."""
        words, table = look_up(self.encoder.embeddings.word, input_ids)
        hidden = self.encoder.encode(words, token_type_ids, attention_mask, masked_positions)
        return self.masked_language_head.score(hidden, table), None
