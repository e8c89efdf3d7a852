"""Models in MLflow's layout, made from folders in Hugging Face's layout; they load without Bertline's code."""

from __future__ import annotations

import inspect
import logging
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from bertline.files import one_line_damage, read_object
from bertline.results import paths
from bertline.tasks.registry import texts_of_task

REQUIREMENTS = ["mlflow", "torch", "transformers"]
# Kinds by the suffixes of the classes of transformers.
_KINDS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}


def kind_of(folder: Path) -> str:
    """Return the purpose of a model in Hugging Face's layout: fill-mask or the name of a task's pipeline."""
    with one_line_damage(folder / paths.CONFIG):
        architecture = read_object(folder / paths.CONFIG)["architectures"][0]
    return next((kind for suffix, kind in _KINDS.items() if architecture.endswith(suffix)), "fill-mask")


def load_expression(kind: str, address: str) -> str:
    """Return the Python expression that loads a saved model of this kind, such as models:/m-0123."""
    return f'mlflow.{"pyfunc" if kind == "question-answering" else "transformers"}.load_model("{address}")'


def save_model(folder: Path, saved: Path) -> None:
    """Save a model in Hugging Face's layout to a new folder `saved` in MLflow's layout.

    It is a pipeline of transformers and a `mlflow.pyfunc` model. One for fill-mask is also a network for
    `mlflow.pytorch`; one for question answering is a `mlflow.pyfunc` model only, as transformers has no such pipeline.
    """
    import mlflow.pyfunc
    import mlflow.transformers
    import transformers
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    # Their warnings concern models from the Hub: a missing card, an unknown licence.
    logging.getLogger("mlflow.transformers").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = kind_of(folder)
    if kind == "question-answering":
        columns = Schema([ColSpec("string", "question"), ColSpec("string", "context")])
        with warnings.catch_warnings(action="ignore"):  # an example of the input would only check the signature
            mlflow.pyfunc.save_model(
                str(saved),
                python_model=str(Path(__file__).with_name("question_answering.py")),
                artifacts={"model": str(folder)},
                signature=ModelSignature(columns, Schema([ColSpec("string")])),
                pip_requirements=REQUIREMENTS,
            )
        _remove_places(saved)
        return
    options: dict[str, Any] = {}
    if kind == "text-classification":
        options["model_config"] = {"truncation": True}  # as in training; the other pipelines do it unasked, or never
        # The signature that MLflow infers is a column without a name: it would leave out a second text, and MLflow
        # would take a text such as 1984 or 'a quotation' for a Python literal.
        names = ["text", "text_pair"] if _reads_pairs(folder) else ["text"]
        predicted = Schema([ColSpec("string", "label"), ColSpec("double", "score")])
        options["signature"] = ModelSignature(Schema([ColSpec("string", name) for name in names]), predicted)
    pipeline = transformers.pipeline(cast(Any, kind), model=str(folder))
    mlflow.transformers.save_model(pipeline, str(saved), pip_requirements=REQUIREMENTS, **options)
    if kind == "fill-mask":
        _add_network(pipeline, saved)
    _remove_places(saved)


def _reads_pairs(folder: Path) -> bool:
    path = folder / paths.FINETUNED_TASK
    if not path.exists():
        return False
    with one_line_damage(path):
        task = read_object(path)
        return len(texts_of_task(task.get("task", ""), task.get("table"))) > 1


def _remove_places(saved: Path) -> None:
    """Remove what MLflow writes about this machine: absolute paths, and a LICENSE.txt that says that it found none."""
    from mlflow.models import Model

    (saved / "LICENSE.txt").unlink(missing_ok=True)
    model = Model.load(str(saved))
    for flavor in model.flavors.values():
        for key in ("source_model_name", "model_code_path"):
            if key in flavor:
                flavor[key] = Path(flavor[key]).name
        for artifact in flavor.get("artifacts", {}).values():
            artifact["uri"] = artifact["path"]
    model.save(str(saved / "MLmodel"))


def _add_network(pipeline: Any, saved: Path) -> None:
    """Make a saved pipeline readable by `mlflow.pytorch.load_model`, too: its network from token ids to logits.

    It is saved as an exported graph, the only format without pickles, with a second copy of the weights.
    """
    import mlflow.pytorch
    import numpy as np
    import torch
    from mlflow.models import Model, ModelSignature
    from mlflow.types import Schema, TensorSpec
    from torch import Tensor

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = pipeline.model.eval()

        def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
            segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            return self.network(input_ids, attention_mask, **segments).logits

    # Two texts: with a batch of one, the exported batch size would be fixed to one.
    example = pipeline.tokenizer(["one text", "and another text"], padding=True, return_tensors="pt")
    taken = inspect.signature(pipeline.model.forward).parameters
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in taken and name in example]
    inputs = Schema([TensorSpec(np.dtype("int64"), (-1, -1), name) for name in names])
    with TemporaryDirectory(prefix="bertline-network-") as folder:
        network = Path(folder, "network")
        mlflow.pytorch.save_model(
            Logits(),
            str(network),
            serialization_format="pt2",
            input_example=tuple(example[name] for name in names),
            signature=ModelSignature(inputs, Schema([TensorSpec(np.dtype("float32"), (-1, -1, -1), "logits")])),
            pip_requirements=["mlflow", "torch"],
        )
        flavor = Model.load(str(network)).flavors["pytorch"]
        (saved / flavor["model_data"]).mkdir()
        exported = Path(flavor["model_data"], "model.pt2")
        _copy_without_places(network / exported, saved / exported)
    both = Model.load(str(saved))
    both.add_flavor("pytorch", **flavor)
    both.save(str(saved / "MLmodel"))


def _copy_without_places(exported: Path, copy: Path) -> None:
    """Copy an exported network without the lines of code behind its operations, which name files of this machine."""
    import torch

    program = torch.export.load(exported)  # written by this process
    for part in program.graph_module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                node.meta.pop("stack_trace", None)
    torch.export.save(program, copy)
