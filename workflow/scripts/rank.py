"""Rank the candidates of queries with a fine-tuned model.

example:
  python workflow/scripts/rank.py results/runs/demo/ranking/marco/model \\
    --collection collection.tsv \\
    --queries queries.tsv --candidates run.bm25.trec --output run.trec
"""

from pathlib import Path

from bertline.command_line import Threads, limit_threads, run_command
from bertline.finetuning.prediction_options import Precision
from bertline.settings.configuration import defaults_of

DEFAULTS = defaults_of("ranking_prediction")


def rank(
    model: Path,
    *,
    collection: Path,
    queries: Path,
    candidates: Path,
    output: Path,
    precision: Precision = DEFAULTS["precision"],
    threads: Threads = None,
) -> str:
    """Rank.

    Args:
        model: folder of a fine-tuned model in Hugging Face's layout.
        collection: the passages, lines of an id, a tab and a text.
        queries: lines of an id, a tab and a text.
        candidates: lines of a query and a passage, or a TREC run.
        output: a TREC run as .trec, or MS MARCO's ranking as .tsv.
        precision: of the matrix products.
        threads: of the CPU (default: all).
    """
    limit_threads(threads)

    from bertline.finetuning.prediction import load_finetuned
    from bertline.finetuning.ranking.reranking import rank_files
    from bertline.training.distributed.claims import claim_device

    device, _claim = claim_device()
    loaded = load_finetuned(model, precision=precision, device=device)
    return f"{rank_files(loaded, collection, queries, candidates, output):,} candidates ranked in {output}"


if __name__ == "__main__":
    run_command(rank, __doc__)
