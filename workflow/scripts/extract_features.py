"""Write the hidden states of a BERT for texts: vectors of each token, or one per text.

example:
  python workflow/scripts/extract_features.py results/runs/demo/export \\
    texts.txt --output features.jsonl
  python workflow/scripts/extract_features.py results/runs/demo/export \\
    texts.txt --output vectors.parquet \\
    --layers -1 --pooling mean
"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertline.command_line import Files, Threads, limit_threads, run_command
from bertline.finetuning.prediction_options import Precision, range_of
from bertline.settings.configuration import defaults_of

DEFAULTS = defaults_of("features")


def extract(
    model: Path,
    inputs: Files,
    *,
    output: Path,
    layers: list[int] = DEFAULTS["layers"],
    pooling: Literal["cls", "mean"] | None = DEFAULTS["pooling"],
    columns: list[str] = DEFAULTS["columns"],
    max_sequence_length: Annotated[int, Parameter(validator=range_of("features", "max_sequence_length"))] = DEFAULTS[
        "max_sequence_length"
    ],
    precision: Precision = DEFAULTS["precision"],
    threads: Threads = None,
) -> str:
    """Extract features.

    Args:
        model: folder of a model in Hugging Face's layout.
        inputs: .txt with a text, or a pair separated by ` ||| `, on each line; .tsv, .csv, .jsonl or .parquet.
        output: a .jsonl in Google's format, a .parquet or an .h5.
        layers: -1 is the last layer, 0 the embeddings.
        pooling: write one vector per input, that of [CLS] or the mean over its tokens, instead of one per token.
        columns: columns of the texts in tables.
        max_sequence_length: maximum number of tokens; longer inputs are truncated.
        precision: of the matrix products.
        threads: of the CPU (default: all).
    """
    limit_threads(threads)

    from bertline.finetuning.features import extract_features
    from bertline.training.distributed.claims import claim_device

    device, _claim = claim_device()
    done = extract_features(
        model,
        inputs,
        output,
        layers=layers,
        pooling=pooling,
        columns=columns,
        max_sequence_length=max_sequence_length,
        precision=precision,
        device=device,
    )
    return f"{done:,} inputs in {output}"


if __name__ == "__main__":
    run_command(extract, __doc__)
