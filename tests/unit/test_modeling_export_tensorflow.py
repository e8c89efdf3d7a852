"""The vocabulary that goes with a network to Google's code."""

from __future__ import annotations

from pathlib import Path

import pytest
import transformers
from test_modeling_conversion import CONFIG, VOCABULARY, write_model

from bertline.console import BertlineError
from bertline.encoding.tokenizer import make_unigram, save_tokenizer
from bertline.modeling.conversion import convert_weights, export_tensorflow


def test_the_vocabulary_that_is_written_is_that_of_the_tokenizer_that_is_read(tmp_path: Path) -> None:
    model = write_model(tmp_path)
    expected = (model / "vocab.txt").read_bytes()
    (model / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY[:5]))  # beside tokenizer.json
    export_tensorflow(model, tmp_path / "out")
    (model / "vocab.txt").unlink()
    export_tensorflow(model, tmp_path / "again")
    for folder in ("out", "again"):
        assert (tmp_path / folder / "vocab.txt").read_bytes() == expected
    convert_weights(tmp_path / "out", tmp_path / "back", lowercase=True)


@pytest.mark.parametrize("kind", ["BertForPreTraining", "BertForSequenceClassification"])
def test_a_damaged_vocabulary_is_not_written_for_google_s_code(tmp_path: Path, kind: str) -> None:
    model = tmp_path / "theirs"
    getattr(transformers, kind)(transformers.BertConfig(**{**CONFIG, "vocab_size": 300})).save_pretrained(model)
    (model / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    for words in ([*VOCABULARY, *map(str, range(291))], [*VOCABULARY, *map(str, range(280))]):
        (model / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
        export_tensorflow(model, tmp_path / "out")
        convert_weights(tmp_path / "out", tmp_path / f"back{len(words)}", lowercase=True)
    for words in (VOCABULARY, [*VOCABULARY, *map(str, range(292))]):
        (model / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
        message = f"^{model}/vocab.txt has {len(words)} entries where {model}/config.json has 300; get them again$"
        with pytest.raises(BertlineError, match=message):
            export_tensorflow(model, tmp_path / "other")
        assert not (tmp_path / "other").exists()


def test_google_s_code_has_no_other_tokenizer_than_wordpiece(tmp_path: Path) -> None:
    words = [(word, -1.0) for word in ("▁a", "▁b", "▁c", "a")]
    transformers.BertForPreTraining(transformers.BertConfig(**CONFIG)).save_pretrained(tmp_path / "theirs")
    save_tokenizer(make_unigram(words, lowercase=True), tmp_path / "theirs/tokenizer.json")
    with pytest.raises(BertlineError, match=r"tokenizer\.json is not WordPiece, which Google's code needs; choose"):
        export_tensorflow(tmp_path / "theirs", tmp_path / "out")
