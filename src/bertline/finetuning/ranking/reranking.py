"""Ranking of new candidates by a fine-tuned model."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.finetuning.prediction import FinetunedModel
from bertline.finetuning.prediction_files import check_output
from bertline.finetuning.prediction_options import check_ranks
from bertline.finetuning.ranking.collection import open_collection, write_collection
from bertline.finetuning.ranking.evaluation import write_rankings
from bertline.finetuning.ranking.lists import read_candidates
from bertline.finetuning.ranking.task import join, report, scores_of
from bertline.finetuning.ranking.texts import read_texts
from bertline.finetuning.tables import check_exists
from bertline.unfinished import unfinished_folder


def rank_files(model: FinetunedModel, collection: Path, queries: Path, candidates: Path, output: Path) -> int:
    """Write the ranking of candidates.

    Args:
        model: a model of a ranking, or of another program with one output or two classes, the second for relevant.
        collection: lines of an id, a tab and a text. It is tokenized into a temporary folder next to `output`.
        queries: lines of an id, a tab and a text.
        candidates: lines of a query and a passage, or a TREC run.
        output: a TREC run as .trec, or MS MARCO's ranking as .tsv.

    Returns the number of candidates. Raises BertlineError for a bad file, or a model of another kind.
    """
    check_ranks(model.head, model.task.get("task", ""))
    if len(model.network.classifier.weight) > 2:
        raise BertlineError("model: more than two classes do not rank passages; name a model of a ranking")
    if output.suffix.lower() not in (".trec", ".tsv"):
        raise BertlineError(f"{output}: given '{output.suffix}', allowed for rankings are .trec, .tsv")
    files = [collection, queries, candidates]
    for file in files:  # tokenizing takes minutes
        check_exists(file)
    check_output(output, files)
    asked = read_texts(queries, model.tokenizer)
    with unfinished_folder(output) as folder:
        write_collection(collection, model.tokenizer, folder)
        passages = open_collection(folder, model.tokenizer).passages
        found = read_candidates(candidates, asked, passages)
        pairs = join(asked, passages, found, model.settings, model.tokenizer)
        report(str(candidates), asked, found, pairs, model.settings["max_query_length"])
        scores = scores_of(model.outputs(pairs))
        is_run = output.suffix.lower() == ".trec"
        write_rankings(found, scores, None if is_run else output, output if is_run else None)
    return len(found)
