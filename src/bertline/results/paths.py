"""Templates of the paths under resources/ and results/, and functions that find finished results.

A template contains Snakemake's wildcards in braces: rules use it unchanged, Python fills it in by `str.format`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from bertline.files import one_line_damage, read_object
from bertline.fingerprint import STAGE_VERSIONS

# Downloads, which are never deleted automatically.
WIKI = "resources/wikimedia/{wiki}"
DUMP_LISTING = f"{WIKI}/{{dump}}/parts.json"
DUMP_PART = f"{WIKI}/{{dump}}/{{part}}.xml.bz2"
HUB_WEIGHTS = "resources/weights/hub/{repository}/{revision}"
GOOGLE_WEIGHTS = "resources/weights/google/{google}"
EVALUATION_FILE = "resources/evaluation/{fingerprint}/{file}"  # the fingerprint of its source
TEXT_FILE = "resources/texts/{sha256}/{file}"
GUTENBERG_BOOK = "resources/gutenberg/{book}.txt"

CORPUS = "results/corpora/{corpus}"
EXTRACTED = f"{CORPUS}/extracted/{{part}}"
DOCUMENTS = f"{CORPUS}/documents/{{part}}.jsonl.zst"
COUNTS = f"{CORPUS}/documents/{{part}}.counts.json"
PUNKT = f"{CORPUS}/punkt"
SENTENCES = f"{CORPUS}/sentences/{{part}}.txt.zst"
SENTENCE_INDEX = f"{CORPUS}/sentences/{{part}}.index.npy"
# With the version in the path, changes of the signatures do not rebuild corpora.
SIGNATURES = f"{CORPUS}/signatures-{STAGE_VERSIONS['signatures']}/{{part}}.npy"
OVERLAP = f"{CORPUS}/overlap/{{evaluation}}/{{part}}.json"
# A collection of passages, tokenized: see finetuning/ranking/collection.py.
COLLECTION_CARD = "collection.json"
COLLECTION = "results/collections/{collection}"
EVALUATION = "results/evaluation/{evaluation}"
NGRAMS = f"{EVALUATION}/ngrams.npz"

# Files in a dataset's folder, which may be elsewhere than in results/.
CARD = "dataset.json"
TOKENIZER = "tokenizer.json"
SAMPLES = "seq{length}/{shard}.h5"
SHARD = "shards/{shard}.txt.zst"
HELD_OUT = "held_out"  # the shard, and the split, of held-out text
PLAN = "plan.jsonl"
DATASET = "results/datasets/{dataset}"
DATASET_CARD = f"{DATASET}/{CARD}"
DATASET_TOKENIZER = f"{DATASET}/{TOKENIZER}"
DATASET_SAMPLES = f"{DATASET}/{SAMPLES}"
DATASET_SHARD = f"{DATASET}/{SHARD}"
NVIDIA_COPIES = 5  # masked copies of each sample, in NVIDIA's own files
NVIDIA_SAMPLES_COPIED = f"{DATASET}/nvidia/seq_len_{{length}}_dupe_factor_{{copies}}/bertline_{{split}}_{{shard}}.hdf5"
NVIDIA_SAMPLES = NVIDIA_SAMPLES_COPIED.replace("{copies}", str(NVIDIA_COPIES))
# No held-out text: gpauloski's reader trains on every file below its folder, and has no evaluation.
GPAULOSKI_SAMPLES = f"{DATASET}/gpauloski/seq_len_{{length}}/train_{{shard}}.hdf5"
SHARD_PLAN = f"{DATASET}/{PLAN}"
REMOVED = f"{DATASET}/removed.jsonl.zst"

# Files of a network in Hugging Face's layout.
CONFIG = "config.json"
WEIGHTS = "model.safetensors"  # also of a phase
TOKENIZER_FILES = (TOKENIZER, "vocab.txt")  # the first one that exists
TOKENIZER_CONFIG = "tokenizer_config.json"
FILES_OF_WEIGHTS = (CONFIG, WEIGHTS, *TOKENIZER_FILES, TOKENIZER_CONFIG)  # all that determine a result
# Weights in other layouts, which are converted.
PICKLE = "pytorch_model.bin"
TENSORFLOW_INDEX = "*.ckpt*.index"  # bert_model.ckpt.index, or model.ckpt-343.index

# Files in the folder of a phase or a fine-tuning.
JOURNAL = "metrics.jsonl"
RECIPE = "recipe.json"
SCORES = "metrics.json"
EXPORT = "huggingface"
FINETUNED_TASK = "task.json"  # in the export of a fine-tuning
PREDICTIONS = "predictions*"  # of a fine-tuning, on its dev set; its suffix is the task's
TRIGRAM = "trigram.json"
# The same during training.
CHECKPOINTS = "checkpoints"
CHECKPOINT = "step-{step:08d}"  # in this folder
STATE = "state.json"  # of a checkpoint
DURABLE = f"{CHECKPOINTS}/durable.json"
STARTED_JOURNAL = f"{CHECKPOINTS}/journal.jsonl"
STARTED_RECIPE = f"{CHECKPOINTS}/{RECIPE}"
LOCK = f"{CHECKPOINTS}/lock.json"
ATTEMPTS = f"{CHECKPOINTS}/attempts.json"
TRAINING_LOG = f"{CHECKPOINTS}/training.log"
PROFILE = f"{CHECKPOINTS}/profile"
PHASE = "results/phases/{phase}"
PHASE_WEIGHTS = f"{PHASE}/{WEIGHTS}"
PHASE_JOURNAL = f"{PHASE}/{JOURNAL}"
PHASE_RECIPE = f"{PHASE}/{RECIPE}"
PHASE_EXPORT = f"{PHASE}/{EXPORT}"
CHECKPOINT_EXPORT = f"{PHASE}/exports/step-{{step}}"
PHASE_TRIGRAM = f"{PHASE}/{TRIGRAM}"
FINETUNING = "results/finetunings/{finetuning}"
FINETUNING_SCORES = f"{FINETUNING}/{SCORES}"
FINETUNING_JOURNAL = f"{FINETUNING}/{JOURNAL}"
FINETUNING_RECIPE = f"{FINETUNING}/{RECIPE}"
FINETUNED_MODEL = f"{FINETUNING}/{EXPORT}"

# The choice among the fine-tunings of a task and start, and a link to the chosen model: see results/kept.py.
KEPT = "results/kept/{kept}"
KEPT_CHOICE = f"{KEPT}/choice.json"
KEPT_MODEL = f"{KEPT}/model"

PREDICTION = "results/predictions/{name}.jsonl"
RANKING = "results/predictions/{name}.trec"
FEATURES = "results/features/{name}.jsonl"

# The parts of the plan that jobs read: see planning/recipes.py.
PLANNED_RECIPE = "results/recipes/{fingerprint}.json"
PLAN_OF_GRAPH = "results/recipes/plan-{fingerprint}.json"
DIGESTS_OF_INPUTS = "results/digests-of-inputs.json"  # see files.digest_of_files

RUN = "results/runs/{run}"
RUN_EXPORT = "export"  # links in a run's folder
RUN_RECORD = "record.json"
RECORD = f"{RUN}/record-{{fingerprint}}.json"
TRACKED_PRETRAINING = f"{RUN}/tracked-pretrain-{{fingerprint}}.json"
TRACKED_RUN = f"{RUN}/tracked-complete-{{fingerprint}}.json"
LOGGED_MODEL = f"{RUN}/logged-model-{{fingerprint}}.json"
SUBMISSION = f"{RUN}/glue-submission-{{fingerprint}}.zip"
SKIPPED_TASK = "results/skipped/{run}/{task}"  # never exists: its job fails
MLFLOW_IS_INITIALISED = "results/mlflow-is-initialised"
TIMED_STEP = "results/timed-steps/{fingerprint}.json"  # see planning/estimate.py
SWEEPS = "sweeps"  # beside the folder of the runs
SWEEP = "results/sweeps/{name}/{fingerprint}"
ORIGIN = "results/origin"  # see tracking/origin.py
REPORT = "results/report/{fingerprint}"
REPORT_PAGE = f"{REPORT}/index.html"

# The outputs that their rules declare; of a fine-tuning without the model, which is deleted if it is not kept.
DATASET_OUTPUTS = (CARD,)
PHASE_OUTPUTS = (WEIGHTS, JOURNAL, RECIPE)
FINETUNING_OUTPUTS = (SCORES, JOURNAL, RECIPE)

CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")


def is_finished(folder: Path | str, outputs: tuple[str, ...]) -> bool:
    """Return whether all `outputs` are in a result's folder; if one is absent, the graph makes the result again."""
    return all(Path(folder, output).exists() for output in outputs)


def finished_folders(template: str, outputs: tuple[str, ...]) -> list[Path]:
    """List the folders of finished results of one kind, such as `PHASE`, of any configuration."""
    return [folder for folder in sorted(Path(template).parent.glob("*")) if is_finished(folder, outputs)]


def checkpoints_in(directory: Path) -> dict[int, Path]:
    """List the checkpoints in a directory by step, in ascending order.

    Another folder that a user may have made, such as a copy, step-00000010.bak, is not a checkpoint, and no file is.
    """
    found = (path for path in directory.glob("step-*") if not os.path.isfile(path))  # keeps what cannot be looked up
    named = ((CHECKPOINT_NAME.fullmatch(path.name), path) for path in found)
    return dict(sorted((int(name[1]), path) for name, path in named if name is not None))


def durable_step(folder: Path | str) -> int:
    """Return the last step of a training that is saved, with a point of the journal that stays; 0 if there is none.

    It is that of the newest checkpoint, or one less if that step's evaluation was interrupted.
    """
    durable = Path(folder, DURABLE)
    if not durable.exists():
        return 0
    with one_line_damage(durable):
        return int(read_object(durable)["step"])
