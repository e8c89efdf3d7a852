"""Publication of a run's model on a Hub: the Hugging Face Hub, or another server that HF_ENDPOINT names.

    main      the model of the run's last phase, or a fine-tuned model, with its tokenizer and README.md
    step-N    a tag for each pretraining checkpoint, with the tokenizer; step-0 has the initial weights

N counts the steps of the whole run: those of earlier phases, as their recipes give them, are added. Step 0 of a later
phase is left out, since it has the weights of the phase before.

Each revision is one commit, so that it is complete or absent. Checkpoints are committed to a temporary branch and
tagged there; main is last. A tag that exists is never moved.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.sha import git_hash
from tabulate import tabulate

from bertline.console import BertlineError, without_credentials
from bertline.files import one_line_damage, sha256_of_file
from bertline.modeling.huggingface import FILES
from bertline.reporting.hub_check import compare_logits
from bertline.reporting.model_card import card_of_finetuned, card_of_run
from bertline.reporting.scores import unfinished_tasks
from bertline.results import paths
from bertline.results.records import Record, one_line_damage_of, read_record
from bertline.training.checkpoints import valid_checkpoints
from bertline.training.publishing import export_phase

UNFINISHED = "bertline-unfinished"  # the temporary branch of a push
CARD = "README.md"
ATTRIBUTES = ".gitattributes"  # the Hub's own
# The HTTP library's error includes a lost connection; the cause of a RuntimeError is a failed upload; a ValueError is a
# malformed answer or card.
REFUSALS = (cast(type[Exception], HfHubHTTPError.__mro__[1]), OSError, RuntimeError, ValueError)

Files = Mapping[str, Path | bytes]


@dataclass(frozen=True)
class Publication:
    """The published files of a run.

    Attributes:
        folder: the model in Hugging Face's layout.
        files: those of main by their names there.
        checkpoints: by revision, in the order of training: the folder of the phase and the step.
        is_finetuned: whether the model is that of a task.
        others: names in the folder that are not of an export, and are not sent.
        tasks_left_out: the tasks whose scores are not in the model card, as they are not finished.
    """

    folder: Path
    files: Files
    checkpoints: dict[str, tuple[Path, int]]
    is_finetuned: bool
    others: tuple[str, ...] = ()
    tasks_left_out: tuple[str, ...] = ()


def find_publication(run: str, task: str | None = None, repository: str = "user/name") -> Publication:
    """Find the files to publish of a run, or of its kept model of a task such as glue/cola.

    The example in the model card loads the model from `repository`. Raises BertlineError if the pretraining is not
    finished, if a checkpoint is damaged, or if a file is a link.
    """
    folder = Path(paths.RUN.format(run=run))
    if not run:
        raise BertlineError(f"RUN=: missing; name a run of {folder}")
    record = folder / paths.RUN_RECORD
    if not record.exists():
        raise BertlineError(f"{record} does not exist; name a run of {folder.parent} with RUN=")
    if task:
        model = folder / task / "model"
        if not (model / paths.WEIGHTS).exists():
            raise BertlineError(f"{model} is not the folder of a kept model; see which tasks {folder} has")
        files = _files_of(model)
        content = read_record(record)
        with one_line_damage_of(content):
            completed = {CARD: card_of_finetuned(files[CARD], content, repository)} if CARD in files else {}
        return Publication(model, {**files, **completed}, {}, is_finetuned=True, others=_others_in(model))
    content = read_record(record)
    if not content.phases:
        raise BertlineError(f"{folder} has no pretraining phase; publish a fine-tuned model of it with TASK=")
    last = content.phases[-1]
    export = last.path / paths.EXPORT
    if not last.finished or not (export / paths.WEIGHTS).exists():
        raise BertlineError(f"{last.path} is not finished and exported; run `snakemake pretrain`")
    checkpoints = _checkpoints(content)
    with one_line_damage_of(content):
        # That of a report may describe the run before its recipe was changed.
        card = card_of_run(content, repository).encode()
        left_out = tuple(unfinished_tasks(content).values())
    return Publication(export, {**_files_of(export), CARD: card}, checkpoints, False, _others_in(export), left_out)


def describe_publication(publication: Publication, repository: str, *, public: bool) -> str:
    """Return a table of the files, sizes and revisions that `publish` sends, and where to."""
    rows = [["main", name, _megabytes([path])] for name, path in sorted(publication.files.items())]
    step_files = [path for name, path in publication.files.items() if name != CARD]
    rows += [[step, f"{len(step_files)} files", _megabytes(step_files)] for step in publication.checkpoints]
    lines = [
        f"To {without_credentials(HfApi().endpoint)}/{_checked(repository)}, {_visibility(not public)}:",
        "",
        tabulate(rows, headers=["revision", "file", "size"], disable_numparse=True, colalign=("left", "left", "right")),
    ]
    if publication.checkpoints and "step-0" not in publication.checkpoints:
        lines += ["", "There is no checkpoint of step 0, which only --keep-every and --keep-steps 0 write."]
    if publication.others:
        lines += ["", f"Not sent, since no export has them: {', '.join(publication.others)}."]
    if publication.tasks_left_out:
        tasks = ", ".join(publication.tasks_left_out)
        lines += ["", f"Not finished, and therefore not in {CARD}: {tasks}. Run snakemake, then publish again."]
    if CARD in publication.files and not _names_licence(publication.files[CARD]):
        lines += [
            "",
            f"{CARD} names no licence. Set the run's model_card: {{license: cc-by-4.0}}, or another, and run snakemake "
            "again: it only writes the card anew.",
        ]
    return "\n".join(lines)


def publish(publication: Publication, repository: str, *, public: bool) -> str:
    """Push a run's model, and return the address of its commit. It is loaded in a clean process before and after that.

    Args:
        publication: the files to push; those that the repository already has are not sent again.
        repository: user/name, made if it does not exist.
        public: whether everyone can see it.

    Raises BertlineError if there is no token, a revision exists with other content, the Hub refuses something, or
    transformers computes other logits than Bertline, from the local model, before anything is sent, or from the pushed.
    """
    _checked(repository)
    for client in ("httpx", "httpx2"):  # whichever huggingface_hub uses; addresses of uploads are signed
        logging.getLogger(client).setLevel(logging.WARNING)
    if get_token() is None:
        raise BertlineError(
            "a push needs a token that may write, and there is none; set HF_TOKEN in the environment, or run "
            "`hf auth login`; nothing was sent"
        )
    api = HfApi()
    # Exports have the tokenizer's files with them.
    tokenizer = publication.folder / paths.TOKENIZER
    with _one_line(f"{api.endpoint}/{repository}"):
        api.whoami()
        existing = _existing_revisions(api, repository, public=public)
    for step, checkpoint in publication.checkpoints.items():
        if step in existing:
            with _exported(checkpoint, tokenizer) as files, _one_line(f"{repository}, {step}"):
                _check_unmoved(api, repository, step, files)
    check = partial(compare_logits, publication.folder, endpoint=api.endpoint, is_finetuned=publication.is_finetuned)
    check()
    missing = [step for step in publication.checkpoints if step not in existing]
    with _one_line(repository):
        api.create_repo(repository, private=not public, exist_ok=True)
        before = api.model_info(repository).sha
    if missing or UNFINISHED in existing:  # there after a push that was interrupted
        with _one_line(f"{repository}, branch {UNFINISHED}"):
            api.create_branch(repository, branch=UNFINISHED, exist_ok=True)
        for step in missing:
            with _exported(publication.checkpoints[step], tokenizer) as files, _one_line(f"{repository}, {step}"):
                commit = _commit(api, repository, files, UNFINISHED, message=step, only=True)
                api.create_tag(repository, tag=step, revision=commit)
        with _one_line(f"{repository}, branch {UNFINISHED}"):
            api.delete_branch(repository, branch=UNFINISHED)
    with _one_line(f"{repository}, main"):
        commit = _commit(api, repository, publication.files, "main", message="Publish the model", parent=before)
    check(repository, commit)
    return f"{without_credentials(api.endpoint)}/{repository}/commit/{commit}"


def _names_licence(card: Path | bytes) -> bool:
    content = card if isinstance(card, bytes) else card.read_bytes()
    return ModelCard(content.decode(), ignore_metadata_errors=True).data.get("license") is not None


def _checkpoints(record: Record) -> dict[str, tuple[Path, int]]:
    """Return the checkpoints of a run's phases by revision."""
    found, before = {}, 0
    for phase in record.phases:
        for step, _ in valid_checkpoints(phase.path / paths.CHECKPOINTS, phase.fingerprint):
            if step or not before:
                found[f"step-{before + step}"] = (phase.path, step)
        with one_line_damage(phase.recipe_path):
            before += int(phase.recipe["settings"]["steps"])
    return found


@contextmanager
def _exported(checkpoint: tuple[Path, int], tokenizer: Path) -> Iterator[dict[str, Path]]:
    """Yield a checkpoint's files in Hugging Face's layout, by name."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, (phase, step) = Path(temporary, "export"), checkpoint
        export_phase(phase, tokenizer, folder, step=step)
        yield _files_of(folder)


def _existing_revisions(api: HfApi, repository: str, *, public: bool) -> set[str]:
    """Return a repository's branches and tags, none if it does not exist; check who can see it."""
    try:
        info = api.model_info(repository)
    except RepositoryNotFoundError:
        return set()
    if bool(info.private) is public:
        where = f"{without_credentials(api.endpoint)}/{repository}"
        raise BertlineError(
            f"{where} exists and is {_visibility(bool(info.private))}; give the other value of PUBLIC=, or change it "
            "there; nothing was sent"
        )
    refs = api.list_repo_refs(repository)
    return {ref.name for ref in (*refs.branches, *refs.tags)}


def _check_unmoved(api: HfApi, repository: str, revision: str, files: Mapping[str, Path]) -> None:
    """Raise BertlineError unless a revision has these files."""
    remote = {entry.path: entry for entry in _remote_files(api, repository, revision)}
    for name in sorted({*files, *remote}):
        if name not in files or name not in remote or not _is_same(files[name], remote[name]):
            raise BertlineError(
                f"{repository}: {revision} exists, and its {name} differs from that of this run; delete {revision} "
                "there, or publish to another repository; nothing was sent"
            )


def _is_same(path: Path, remote: RepoFile) -> bool:
    if remote.lfs is not None:
        return sha256_of_file(path) == remote.lfs.sha256
    return path.stat().st_size == remote.size and git_hash(path.read_bytes()) == remote.blob_id


def _remote_files(api: HfApi, repository: str, revision: str) -> list[RepoFile]:
    entries = api.list_repo_tree(repository, revision=revision, recursive=True)
    return [entry for entry in entries if isinstance(entry, RepoFile) and entry.path != ATTRIBUTES]


def _commit(
    api: HfApi,
    repository: str,
    files: Files,
    branch: str,
    *,
    message: str,
    only: bool = False,
    parent: str | None = None,
) -> str:
    """Commit the files that changed, and return the commit.

    Args:
        only: delete all other files.
        parent: fail if the branch is no longer at this commit.
    """
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(name, path) for name, path in sorted(files.items())
    ]
    if only:
        others = {entry.path for entry in _remote_files(api, repository, branch)} - set(files)
        operations += [CommitOperationDelete(name) for name in sorted(others)]
    return api.create_commit(repository, operations, commit_message=message, revision=branch, parent_commit=parent).oid


@contextmanager
def _one_line(where: str) -> Iterator[None]:
    """Turn a refusal of the Hub into one line. Whatever is refused is absent there, not partly present."""
    try:
        yield
    except BertlineError:
        raise
    except REFUSALS as error:
        shown = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        reason = without_credentials(" ".join(str(shown).split()))[:300]
        raise BertlineError(
            f"{without_credentials(where)}: {reason}; check the address, the token's rights and the connection, then "
            "run the same command again, which sends what is missing"
        ) from None


def _checked(repository: str) -> str:
    if not repository:
        raise BertlineError("REPO=: missing; give the repository to publish in, user/name")
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise BertlineError(f"REPO=: {error}") from None
    if "/" not in repository:
        raise BertlineError(f"REPO=: '{repository}' names no owner; give user/name")
    return repository


def _files_of(folder: Path) -> dict[str, Path]:
    """Return an export's files by name. Raises BertlineError for a link, which may lead anywhere."""
    found = {name: folder / name for name in FILES}
    if link := next((path for path in found.values() if path.is_symlink()), None):
        raise BertlineError(f"{link} is a link; copy the file to its place, then publish again")
    return {name: path for name, path in found.items() if path.is_file()}


def _others_in(folder: Path) -> tuple[str, ...]:
    # Snakemake leaves a hidden file in the folders that it makes.
    return tuple(sorted(path.name for path in folder.iterdir() if path.name not in FILES and path.name[0] != "."))


def _megabytes(files: list[Path | bytes]) -> str:
    sizes = (len(file) if isinstance(file, bytes) else file.stat().st_size for file in files)
    return f"{sum(sizes) / 1e6:,.2f} MB"


def _visibility(private: bool) -> str:
    return "private" if private else "public"
