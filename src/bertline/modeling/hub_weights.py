"""Download of a model of the Hugging Face Hub, or of another server that HF_ENDPOINT names, at a pinned commit.

Only weights as safetensors, JSON and vocabularies are fetched: nothing that can run code.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from bertline.console import BertlineError
from bertline.corpus.download import download, obtain
from bertline.corpus.download_lock import lock_of
from bertline.corpus.expected_file import Expected, SourceRefused
from bertline.corpus.http_download import http_session
from bertline.files import SNAKEMAKES, Json, check_replaceable, fsync_directory, parse_json
from bertline.modeling.huggingface_config import SEVERAL_FILES, WEIGHTS_INDEX
from bertline.results import paths

FILES = (*paths.FILES_OF_WEIGHTS, paths.FINETUNED_TASK)
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MAX_MODEL = 20_000_000_000  # bytes; the networks that are read have at most some billion
MAX_DESCRIPTION = 1 << 24  # bytes of what the Hub states about a commit: some hundred for each file


@dataclass(frozen=True)
class _Stated:
    """What the Hub states about a file: SHA-256 if Git LFS stores it, else the id that git gives to its content."""

    size: int | None
    sha256: str | None
    git_id: str | None

    @property
    def expected(self) -> Expected:
        return Expected(size=self.size, sha256=self.sha256, max_size=MAX_MODEL)

    def is_of(self, path: Path) -> bool:
        return self.expected.problem_of(path) is None and self.has_git_id_of(path)

    def has_git_id_of(self, path: Path) -> bool:
        if self.sha256 or not self.git_id:
            return True
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest() == self.git_id


def fetch_hub_weights(repository: str, revision: str, output: Path, *, contact: str | None = None) -> None:
    """Download a model's weights, configuration and tokenizer. An interrupted download is continued by the next one.

    Args:
        repository: its id, owner/name. HF_TOKEN is used for a private or a gated one.
        revision: the commit, all 40 digits.
        output: the folder to write, complete or absent; one that contains nothing but another model is replaced.
        contact: an e-mail address or a URL, for the User-Agent.

    Raises BertlineError if the Hub does not have the commit, if that lacks a file or has its weights only as a pickle,
    and if a file differs from what the Hub states.
    """
    from huggingface_hub import constants, get_token

    check_replaceable(output, FILES)
    token = get_token()
    listed = _stated_files(repository, revision, contact, token)
    name = f"{repository} at {revision[:12]}"
    _check_files(name, set(listed))
    wanted = {file: listed[file] for file in FILES if file in listed}
    size = sum(stated.size or 0 for stated in wanted.values())
    if size > MAX_MODEL:
        raise BertlineError(f"{name} has {size:,} bytes, allowed are {MAX_MODEL:,}; choose a smaller model")
    with lock_of(output):
        if _is_complete(output, wanted):  # by another process, perhaps
            return
        unfinished = output.with_name(f".{output.name}.part")
        for file, stated in wanted.items():
            path = unfinished / file
            if not path.exists() or stated.expected.problem_of(path):
                url = f"{constants.ENDPOINT}/{repository}/resolve/{revision}/{file}"
                download([url], path, stated.expected, contact=contact, token=token)
            if not stated.has_git_id_of(path):
                path.unlink()
                raise BertlineError(f"{name}: {file} is not the file of that commit; run the same command again")
        for path in unfinished.iterdir():
            if path.name not in wanted:  # of an older attempt
                path.unlink()
        check_replaceable(output, FILES)
        shutil.rmtree(output, ignore_errors=True)
        unfinished.replace(output)
        fsync_directory(output.parent)


def _is_complete(folder: Path, wanted: Mapping[str, _Stated]) -> bool:
    """Return whether a folder has the wanted files, and no others of a model."""
    found = {path.name for path in folder.iterdir()} if folder.exists() else set()
    return found - {SNAKEMAKES} == set(wanted) and all(stated.is_of(folder / name) for name, stated in wanted.items())


def _stated_files(repository: str, revision: str, contact: str | None, token: str | None) -> dict[str, _Stated]:
    """Return what the Hub states about the files of a commit, by name; of those that are fetched, checked."""
    described = _description(repository, revision, contact, token)
    try:
        commit, files = described["sha"], {file["rfilename"]: file for file in described["siblings"]}
        if not re.fullmatch("[0-9a-f]{40}", commit):
            raise ValueError(f"the commit {commit[:50]!r}")
        if not all(isinstance(name, str) for name in files):
            raise TypeError("the name of a file is not a string")
        stated = {name: _stated(file) if name in FILES else _Stated(None, None, None) for name, file in files.items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BertlineError(
            f"the model {repository}: the Hub describes it in an unknown form ({error!r}); try again later, or name "
            "another server in HF_ENDPOINT"
        ) from None
    if commit != revision:
        raise BertlineError(
            f"{repository} at {revision[:12]}: the Hub answers with the commit {commit}; pin that one, all 40 digits"
        )
    return stated


def _stated(file: Json) -> _Stated:
    """Return what the Hub states about one file. Raises the errors of an unexpected form."""
    size, lfs, git_id = file.get("size"), file.get("lfs"), file.get("blobId")
    sha256 = lfs["sha256"] if lfs is not None else None
    if size is not None and (type(size) is not int or size < 0):
        raise ValueError(f"a size of {str(size)[:50]}")
    for digest, digits in ((sha256, 64), (git_id, 40)):
        if digest is not None and not re.fullmatch(f"[0-9a-f]{{{digits}}}", digest):
            raise ValueError(f"the digest {digest[:70]!r}")
    return _Stated(size, sha256, git_id)


def _description(repository: str, revision: str, contact: str | None, token: str | None) -> Json:
    """Return the Hub's answer about a commit, with the sizes and digests of its files."""
    from huggingface_hub import constants
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        text = " ".join(str(error).split())[:300]
        raise BertlineError(f"the model {repository} has an invalid id ({text}); give owner/name") from None
    if constants.HF_HUB_OFFLINE:
        raise BertlineError(
            f"the model {repository} cannot be fetched: HF_HUB_OFFLINE is set; unset it, or name a folder with the "
            "files"
        )
    url = f"{constants.ENDPOINT}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
    with http_session(contact, token) as session, tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "description.json")
        try:
            obtain(session, url, answer, Expected(max_size=MAX_DESCRIPTION))
            described = parse_json(answer.read_text(encoding="utf-8"))
        except SourceRefused as refusal:
            raise BertlineError(f"the model {repository} {_reason_of(refusal, revision)}") from None
        except ValueError:
            described = None
    if not isinstance(described, dict):
        raise BertlineError(f"the model {repository}: the Hub's answer is not a JSON object; try again later")
    return described


def _reason_of(refusal: SourceRefused, revision: str) -> str:
    """Return why the Hub does not describe a commit, by the codes that it gives to its errors."""
    code, said = (refusal.headers.get(f"X-Error-{name}", "") for name in ("Code", "Message"))
    if code == "GatedRepo":
        return "is given only to those who accepted its terms; accept them on its page and set HF_TOKEN"
    if code == "RevisionNotFound":
        return f"has no commit {revision}: it was removed or is another model's; pin one that its history shows"
    # Without a token the Hub does not tell which models exist.
    if code == "RepoNotFound" or (str(refusal) == "HTTP 401" and said != "Invalid credentials in Authorization header"):
        return "does not exist on the Hub, or is private; check its id, and set HF_TOKEN for a private one"
    return f"could not be fetched: {refusal}{f' ({said[:200]})' if said else ''}; run the same command again later"


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
