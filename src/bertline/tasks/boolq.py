"""BoolQ (Clark et al. 2019, arXiv 1905.10044): is the answer to a question about a passage yes? As in SuperGLUE."""

from bertline.tasks.task import TextTask

BOOLQ = TextTask(
    title="BoolQ",
    settings="boolq",
    archive="https://dl.fbaipublicfiles.com/glue/superglue/data/v2/BoolQ.zip",
    files={"train": "BoolQ/train.jsonl", "dev": "BoolQ/val.jsonl", "test": "BoolQ/test.jsonl"},
    texts=("question", "passage"),
    labels=("false", "true"),
    submissions={"test": "BoolQ.jsonl"},
)
