"""Download of a model of the Hugging Face Hub, or of another server that HF_ENDPOINT names, at a pinned commit.

Only weights as safetensors, JSON and vocabularies are fetched: nothing that can run code.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from bertline.console import BertlineError
from bertline.corpus.download import download
from bertline.corpus.expected_file import Expected
from bertline.files import check_replaceable, fsync_directory
from bertline.modeling.huggingface_config import SEVERAL_FILES, WEIGHTS_INDEX
from bertline.results import paths

FILES = (*paths.FILES_OF_WEIGHTS, paths.FINETUNED_TASK)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_MODEL = 20_000_000_000  # bytes; the networks that are read have at most some billion


def fetch_hub_weights(repository: str, revision: str, output: Path, *, contact: str | None = None) -> None:
    """Download a model's weights, configuration and tokenizer. An interrupted download is continued by the next one.

    Args:
        repository: its id, owner/name. HF_TOKEN is used for a private or a gated one.
        revision: the commit, all 40 digits.
        output: the folder to write, complete or absent; one that contains nothing but a model is replaced.
        contact: an e-mail address or a URL, for the User-Agent.

    Raises BertlineError if the Hub does not have the commit, if that lacks a file or has its weights only as a pickle,
    and if a file differs from what the Hub states.
    """
    from huggingface_hub import HfApi, get_token

    check_replaceable(output, FILES)
    for client in ("httpx", "httpx2"):  # whichever huggingface_hub uses
        logging.getLogger(client).setLevel(logging.WARNING)
    name, api, token = f"{repository} at {revision[:12]}", HfApi(), get_token()
    with _one_line(repository, revision):
        found = api.model_info(repository, revision=revision, files_metadata=True)
    if found.sha != revision:
        raise BertlineError(f"{name}: the Hub answers with the commit {found.sha}; pin that one, all 40 digits")
    listed = {file.rfilename: file for file in found.siblings or ()}
    _check_files(name, set(listed))
    wanted = {file: listed[file] for file in FILES if file in listed}
    size = sum(file.size or 0 for file in wanted.values())
    if size > MAX_MODEL:
        raise BertlineError(f"{name} has {size:,} bytes, allowed are {MAX_MODEL:,}; choose a smaller model")
    unfinished = output.with_name(f".{output.name}.part")
    for file, described in wanted.items():
        path = unfinished / file
        expected = Expected(size=described.size, sha256=described.lfs.sha256 if described.lfs else None)
        if not path.exists() or expected.problem_of(path):
            url = f"{api.endpoint}/{repository}/resolve/{revision}/{file}"
            download([url], path, expected, contact=contact, token=token)
        _check_blob(path, described, name)
    for path in unfinished.iterdir():
        if path.name not in wanted:  # of an older attempt
            path.unlink()
    check_replaceable(output, FILES)
    shutil.rmtree(output, ignore_errors=True)
    unfinished.replace(output)
    fsync_directory(output.parent)


def _check_files(name: str, listed: set[str]) -> None:
    if paths.WEIGHTS not in listed:
        pickles = sorted(file for file in listed if file.endswith(PICKLES))
        if WEIGHTS_INDEX in listed:
            raise BertlineError(f"{name} {SEVERAL_FILES}")
        if pickles:
            raise BertlineError(
                f"{name} has its weights only in {pickles[0]}, a pickle, which can run any code when it is read and is "
                f"not fetched; choose a commit with {paths.WEIGHTS}, or download it yourself and convert it with "
                "workflow/scripts/convert_weights.py, which reads only tensors"
            )
        raise BertlineError(f"{name} has no {paths.WEIGHTS}; choose the commit of a model")
    if paths.CONFIG not in listed:
        raise BertlineError(f"{name} has no config.json; choose the commit of a model in Hugging Face's layout")
    if not listed & set(paths.TOKENIZER_FILES):
        raise BertlineError(
            f"{name} has neither {' nor '.join(paths.TOKENIZER_FILES)}; choose a commit with its tokenizer"
        )


def _check_blob(path: Path, described: Any, name: str) -> None:
    """Compare a small file, which has no SHA-256 on the Hub, with the id that git gives to its content."""
    if described.lfs is not None or not described.blob_id:
        return
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        hashlib.file_digest(file, lambda: digest)
    if digest.hexdigest() != described.blob_id:
        path.unlink()
        raise BertlineError(f"{name}: {path.name} is not the file of that commit; run the same command again")


@contextmanager
def _one_line(repository: str, revision: str) -> Iterator[None]:
    """Turn the errors of a request to the Hub into one line."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # The HTTP library's error includes a lost connection; a ValueError is a malformed answer.
    refusals = (cast(type[Exception], HfHubHTTPError.__mro__[1]), OSError, ValueError)
    try:
        yield
    except GatedRepoError:
        reason = "is given only to those who accepted its terms; accept them on its page and set HF_TOKEN"
    except RevisionNotFoundError:
        reason = f"has no commit {revision}: it was removed or is another model's; pin one that its history shows"
    except RepositoryNotFoundError:
        reason = "does not exist on the Hub, or is private; check its id, and set HF_TOKEN for a private one"
    except HFValidationError as error:
        reason = f"has an invalid id ({' '.join(str(error).split())[:300]}); give owner/name"
    except OfflineModeIsEnabled:
        reason = "cannot be fetched: HF_HUB_OFFLINE is set; unset it, or name a folder with the files"
    except refusals as error:
        text = " ".join(str(error).split())[:300]
        reason = f"could not be fetched: {text}; run the same command again later"
    else:
        return
    raise BertlineError(f"the model {repository} {reason}")
