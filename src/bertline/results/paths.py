"""The paths under resources/ and results/ that more than one place uses, and what of the results is finished.

A template keeps Snakemake's wildcards in braces: a rule takes it as it is, Python fills it in by `str.format`.
"""

from __future__ import annotations

from pathlib import Path

from bertline.files import read_json
from bertline.fingerprint import STAGE_VERSIONS

# What was downloaded. Nothing here is ever deleted by us.
WIKI = "resources/wikimedia/{wiki}"
DUMP_LISTING = f"{WIKI}/{{dump}}/parts.json"
DUMP_PART = f"{WIKI}/{{dump}}/{{part}}.xml.bz2"
EVALUATION_FILE = "resources/evaluation/{file}"

CORPUS = "results/corpora/{corpus}"
EXTRACTED = f"{CORPUS}/extracted/{{part}}"
DOCUMENTS = f"{CORPUS}/documents/{{part}}.jsonl.zst"
COUNTS = f"{CORPUS}/documents/{{part}}.counts.json"
PUNKT = f"{CORPUS}/punkt"
SENTENCES = f"{CORPUS}/sentences/{{part}}.txt.zst"
SENTENCE_INDEX = f"{CORPUS}/sentences/{{part}}.index.npy"
# With the version in the path, corpora are not made again when the way to compare them changes.
SIGNATURES = f"{CORPUS}/signatures-{STAGE_VERSIONS['signatures']}/{{part}}.npy"
OVERLAP = f"{CORPUS}/overlap/{{evaluation}}/{{part}}.json"
EVALUATION = "results/evaluation/{evaluation}"
NGRAMS = f"{EVALUATION}/ngrams.npz"

# Files in a dataset's folder, which may be elsewhere than in results/.
CARD = "dataset.json"
TOKENIZER = "tokenizer.json"
SAMPLES = "seq{length}/{shard}.h5"
SHARD = "shards/{shard}.txt.zst"
DATASET = "results/datasets/{dataset}"

# Files in the folder of a phase or a fine-tuning.
WEIGHTS = "model.safetensors"
JOURNAL = "metrics.jsonl"
RECIPE = "recipe.json"
SCORES = "metrics.json"
EXPORT = "huggingface"
TRIGRAM = "trigram.json"
# The same while it is trained.
CHECKPOINTS = "checkpoints"
DURABLE = f"{CHECKPOINTS}/durable.json"
STARTED_JOURNAL = f"{CHECKPOINTS}/journal.jsonl"
STARTED_RECIPE = f"{CHECKPOINTS}/recipe.json"
LOCK = f"{CHECKPOINTS}/lock.json"
PHASE = "results/phases/{phase}"
FINETUNING = "results/finetunings/{finetuning}"

RUN = "results/runs/{run}"
RECORD = f"{RUN}/record-{{fingerprint}}.json"
REPORT = "results/report/{fingerprint}"
PAGE = "index.html"

# The outputs that the graph declares. Each is written atomically, in an order that nobody has to know.
DATASET_OUTPUTS = (CARD,)
PHASE_OUTPUTS = (WEIGHTS, JOURNAL, RECIPE)
FINETUNING_OUTPUTS = (SCORES, JOURNAL, RECIPE)


def is_finished(folder: Path | str, outputs: tuple[str, ...]) -> bool:
    """Return whether all `outputs` are in a result's folder; the graph makes a result again of which one is absent."""
    return all(Path(folder, output).exists() for output in outputs)


def finished_folders(template: str, outputs: tuple[str, ...]) -> list[Path]:
    """List the folders of finished results of one kind, such as `PHASE`, of whatever configuration."""
    return [folder for folder in sorted(Path(template).parent.glob("*")) if is_finished(folder, outputs)]


def durable_step(folder: Path | str) -> int:
    """Return the step of the last complete checkpoint of a training; 0 without one."""
    durable = Path(folder, DURABLE)
    return int(read_json(durable)["step"]) if durable.exists() else 0
