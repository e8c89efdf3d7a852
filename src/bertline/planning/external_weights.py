"""External weights that a configuration names: a directory in Hugging Face's layout."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.encoding.tokenizer import TOKENIZER_FILES, find_tokenizer
from bertline.files import Json
from bertline.fingerprint import fingerprint
from bertline.planning.corpora import digests, expand

# Other files, such as a README or the same weights in another layout, change no result.
FILES = ("config.json", "model.safetensors", *TOKENIZER_FILES, "tokenizer_config.json")
# Layouts that workflow/scripts/convert_weights.py reads.
CONVERTIBLE = ("pytorch_model.bin", "*.ckpt.index")


def external_weights(problems: list[str], key: str, directory: str) -> Json:
    """Return the `directory` for the recipe, and the digest of its `content`.

    Args:
        problems: missing or unreadable files are appended.
        key: of the directory in the configuration.
    """
    folder = Path(directory)
    if not (folder / "model.safetensors").exists() and any(next(folder.glob(name), None) for name in CONVERTIBLE):
        problems.append(
            f"configuration: {key}: {folder} holds its weights as a pickle or a TensorFlow checkpoint, which are not "
            f"read; convert them: python workflow/scripts/convert_weights.py {folder} --output another-folder"
        )
    else:
        expand(problems, key, [f"{folder}/config.json", f"{folder}/model.safetensors"])
    found = [path for name in FILES if (path := folder / name).is_file()]
    return {"directory": str(folder), "content": fingerprint(sorted(digests(found).values()))}


def without_directory(initial: Json) -> Json:
    """Return initial weights without their location, which does not enter fingerprints."""
    return {key: value for key, value in initial.items() if key != "directory"}


def external_tokenizer(problems: list[str], key: str, directory: str) -> str:
    """Return the file of the tokenizer in `directory`."""
    try:
        return str(find_tokenizer(Path(directory)))
    except BertlineError as error:
        problems.append(f"configuration: {key}: {error}")
        return str(Path(directory, TOKENIZER_FILES[0]))
