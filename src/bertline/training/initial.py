"""Initial weights of a phase: random, from the phase before it, or from a Hugging Face directory."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from bertline.console import BertlineError
from bertline.encoding.hashing import mix_integers
from bertline.files import one_line_damage, read_object
from bertline.modeling.architectures import PreTrainingNetwork, architecture_of
from bertline.modeling.bert import BertForPreTraining
from bertline.modeling.huggingface import load_encoder, load_huggingface
from bertline.modeling.network_config import NetworkConfig, check_same_network, config_from_dict
from bertline.modeling.vocabulary import ADVICE, check_vocabulary
from bertline.modeling.weights import load_tensors
from bertline.results import paths
from bertline.training.checkpoints import checkpoint_at, load_checkpoint
from bertline.training.data.opening import TrainingData
from bertline.training.given_files import check_initial_weights
from bertline.training.optimizers.kfac import Kfac
from bertline.training.optimizers.registry import OPTIMIZERS, load_optimizer_tensors
from bertline.training.scaling import LossScale

logger = logging.getLogger(__name__)


def make_model(recipe: dict[str, Any], data: TrainingData) -> PreTrainingNetwork:
    """Make the network of a recipe, on the CPU, with random weights that depend only on its seed."""
    given = recipe["model"]
    if given.get("vocab_size", data.vocab_size) != data.vocab_size:
        raise BertlineError(
            f"model: vocab_size is {given['vocab_size']} but the dataset's tokenizer has {data.vocab_size} entries; "
            "leave vocab_size out"
        )
    config = config_from_dict({**given, "vocab_size": data.vocab_size})
    length = recipe["settings"]["sequence_length"]
    if length > config.max_position_embeddings:
        raise BertlineError(
            f"model: max_position_embeddings is {config.max_position_embeddings}, too few for sequences of {length}"
        )
    torch.manual_seed(mix_integers(recipe["seed"]))
    model = architecture_of(config).pretraining(config)
    if isinstance(model, BertForPreTraining) and not data.has_pairs:
        # Without a gradient, weight decay alone would change them, with LAMB in full steps.
        model.leave_out_pairs()
    return model


def load_initial_weights(
    model: PreTrainingNetwork, recipe: dict[str, Any], path: Path | None, data: TrainingData
) -> None:
    """Load the weights that the recipe's `initial_weights` names into `model`; do nothing if it is null.

    Args:
        path: their path on this machine: a phase's folder or a Hugging Face directory, or the model.safetensors in it.
    """
    initial = recipe.get("initial_weights")
    if initial is None:
        return
    folder = _folder(initial, path)
    check_initial_weights(recipe, folder)
    if "phase" in initial:
        if read_object(folder / paths.RECIPE).get("tokenizer_sha256") != data.tokenizer_sha256:
            raise BertlineError(f"initial weights: {folder} and the dataset have different tokenizers; choose others")
        weights = load_tensors(folder / paths.WEIGHTS)
    else:
        config, weights = load_huggingface(folder)
        check_same_network(config.to_dict(), recipe["model"], f"initial weights: {folder}")
        _report_theta(config, model.config, folder)
        tokenizer = Tokenizer.from_file(str(data.tokenizer_json))
        check_vocabulary(tokenizer, data.tokenizer_json, config.vocab_size, folder, advice=ADVICE)
    missing = load_encoder(model, weights)
    if missing:
        logger.warning("%s has no %s: trained from random values", folder, ", ".join(missing))


def _report_theta(theirs: NetworkConfig, ours: NetworkConfig, folder: Path) -> None:
    there, here = (getattr(config, "global_rope_theta", None) for config in (theirs, ours))
    if there != here:
        logger.warning("%s was trained with global_rope_theta %g; training continues with %g", folder, there, here)


def load_carried_over_moments(
    optimizer: torch.optim.Optimizer,
    kfac: Kfac,
    scale: LossScale,
    model: PreTrainingNetwork,
    recipe: dict[str, Any],
    path: Path | None,
) -> None:
    """Load the moments that the recipe carries over, from the checkpoint of the step that the previous phase published.

    K-FAC's factors are among them, if the previous phase had any. If everything is carried over, so is fp16's loss
    scale, and bias correction does not restart, as it does otherwise if the optimizer's entry in the registry requires.
    """
    initial, settings = recipe.get("initial_weights") or {}, recipe["settings"]
    if "phase" not in initial or settings["carry_over"] == "weights":
        return
    folder = _folder(initial, path)
    before = read_object(folder / paths.RECIPE, "settings")
    with one_line_damage(folder / paths.RECIPE):
        theirs, steps = str(before["settings"]["optimizer"]), int(before["settings"]["steps"])
        published, precision = int(before.get("published_step", steps)), before["settings"]["precision"]
    if theirs != settings["optimizer"]:
        raise BertlineError(
            f"carry_over: the moments of {theirs} in {folder} cannot be used by {settings['optimizer']}; "
            "set carry_over: weights, or the same optimizer in both phases"
        )
    checkpoints = folder / paths.CHECKPOINTS
    found = checkpoint_at(checkpoints, initial["phase"], published)
    if found is None:
        raise BertlineError(
            f"carry_over: {checkpoints} no longer has the moments of step {published}; set carry_over: weights"
        )
    _, moments = load_checkpoint(found[0])
    resets = OPTIMIZERS[theirs].restarts_bias_correction and settings["carry_over"] != "everything"
    try:
        load_optimizer_tensors(optimizer, model, moments, kind=theirs, reset_step=resets)
        kfac.carry_over(moments)
    except BertlineError as error:
        raise BertlineError(f"carry_over: {found[0]}: {error}; set carry_over: weights") from None
    if settings["carry_over"] == "everything" and precision == settings["precision"]:
        scale.restore(found[1]["loss_scale"])


def carried_over_position(recipe: dict[str, Any], path: Path | None) -> int:
    """Return a phase's first position in the order of samples.

    It is where an earlier phase with the same samples ended: the phase that the recipe names in `continues_data_of`,
    or, with carry_over: everything, the previous phase. Otherwise it is 0. Raises BertlineError if everything is
    carried over and the phases have different datasets, sequence lengths, seeds or weights of corpora.
    """
    initial, settings = recipe.get("initial_weights") or {}, recipe["settings"]
    earlier = recipe.get("continues_data_of")
    if "phase" not in initial or (earlier is None and settings["carry_over"] != "everything"):
        return 0
    folder = _folder(initial, path)
    if earlier is not None:
        return _next_position((folder if earlier == initial["phase"] else _next_to(folder, earlier)) / paths.RECIPE)
    before = read_object(folder / paths.RECIPE, "dataset_without_lengths", "seed")
    with one_line_damage(folder / paths.RECIPE):
        length, weights = before["settings"]["sequence_length"], before["settings"].get("corpus_weights", {})
    for name, theirs, ours in (
        ("dataset", before["dataset_without_lengths"], recipe.get("dataset_without_lengths")),
        ("sequence_length", length, settings["sequence_length"]),
        ("seed", before["seed"], recipe["seed"]),
        ("corpus_weights", weights, settings.get("corpus_weights", {})),
    ):
        if theirs != ours:
            raise BertlineError(
                f"carry_over: everything: {name} was {theirs} in {folder} and is {ours}; data cannot continue where "
                "that phase ended: set carry_over: weights+moments"
            )
    return _next_position(folder / paths.RECIPE)


def _next_to(folder: Path, phase: str) -> Path:
    """Return the folder of another phase: they are next to each other, named by their fingerprints."""
    # `folder` may be a run's link to a phase, or the phase's own folder one to another disk.
    for parent in (folder.parent, folder.resolve().parent):
        if (parent / phase / paths.RECIPE).exists():
            return parent / phase
    raise BertlineError(
        f"the recipe continues in the data of phase {phase}: its folder with {paths.RECIPE} is not next to "
        f"{folder.resolve()}; put it there"
    )


def _next_position(path: Path) -> int:
    with one_line_damage(path):
        return int(read_object(path)["next_position"])


def _folder(initial: dict[str, Any], path: Path | None) -> Path:
    if path is None and "directory" in initial:
        path = Path(initial["directory"])
    if path is None:
        raise BertlineError(f"the recipe starts from phase {initial['phase']}; name its folder with --initial-weights")
    return path.parent if path.name == paths.WEIGHTS else path
