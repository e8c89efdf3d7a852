"""Checkpoints: a directory per step, complete or absent, next to a phase's declared outputs.

    checkpoints/step-00000100/model.safetensors      weights, in Bertline's names
                              optimizer.safetensors  {parameter}.{state tensor}, as the optimizer's entry declares
                              state.json             fingerprint, step, digest of the samples, the best step so far,
                                                     how it was computed, digests of the other two files and of itself
    checkpoints/durable.json                         {"step": n}: journal points up to n will not be retracted
    checkpoints/recipe.json                          the recipe during training, and the jobs so far: see started.py

A checkpoint is written to a temporary directory, flushed to the disk and renamed. The newest valid one is used: a
damaged one, and one that the disk cannot read, is reported and the one before it is used; one of another fingerprint is
not changed: a phase refuses its folder, a fine-tuning reports it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from torch import Tensor

from bertline.console import BertlineError
from bertline.files import read_json, sha256_of_file, write_folder_atomically, write_json
from bertline.modeling.weights import load_tensors, save_tensors
from bertline.results import paths
from bertline.training.distributed.fsdp import whole
from bertline.training.distributed.process_group import Group

logger = logging.getLogger(__name__)

LAYOUT_VERSION = 2
FILES = (paths.WEIGHTS, "optimizer.safetensors")


@dataclass(frozen=True)
class Retention:
    """Which checkpoints are kept when a new one is there.

    Attributes:
        newest: how many of the newest ones.
        every: keep those whose step is a multiple of this, too; 0 for none.
        steps: keep those of these steps, too.
    """

    newest: int
    every: int = 0
    steps: Collection[int] = ()

    def has_step(self, step: int) -> bool:
        """Return whether the checkpoint of `step` is kept however old it is."""
        return step in self.steps or (self.every > 0 and step % self.every == 0)


def save_checkpoint(
    directory: Path,
    *,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: Retention,
    before: Callable[[], None] = lambda: None,
) -> Path:
    """Write the checkpoint of `state["step"]`, point durable.json to it, and remove those of later steps and old ones.

    Later ones were damaged, or training resumed before them. Raises as `write_checkpoint` does.
    """
    path = write_checkpoint(directory, weights=weights, optimizer=optimizer, state=state, before=before)
    _write_durable_step(directory, _reported_step(state))
    own = _own_checkpoints(directory, state["fingerprint"])
    for later, _ in takewhile(lambda found: found[0] != path, own):
        _remove(later)
    remove_old(directory, state["fingerprint"], keep)
    return path


def write_checkpoint(
    directory: Path,
    *,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
    state: Mapping[str, Any],
    before: Callable[[], None] = lambda: None,
) -> Path:
    """Write the checkpoint of `state["step"]`, in place of another one of this step.

    `before` is called when all is written, before anything is replaced.

    Raises BertlineError if another model's checkpoint of this step is there.
    """
    path = _path_of(directory, state["step"])
    if _state_of(path).get("fingerprint", state["fingerprint"]) != state["fingerprint"]:
        raise BertlineError(f"{path} is a checkpoint of another model; move it away, and run the same command again")
    replaced = path.with_name(f".{path.name}.replaced")
    with write_folder_atomically(path) as aside:
        for name, tensors in zip(FILES, (weights, optimizer), strict=True):
            save_tensors(aside / name, tensors)
        digests = {name: sha256_of_file(aside / name) for name in FILES}
        described = {**state, "layout_version": LAYOUT_VERSION, "digests": digests}
        write_json(aside / paths.STATE, {**described, "digests": {**digests, paths.STATE: _digest_of(described)}})
        before()
        if path.exists():  # damaged, without the step's report, or saved after a skipped global batch
            path.rename(replaced)
    shutil.rmtree(replaced, ignore_errors=True)
    return path


def remove_old(directory: Path, fingerprint: str, keep: Retention) -> None:
    """Delete all checkpoints of `fingerprint` except those that `keep` names and those that they need.

    Kept are the `newest` ones; the newest one without skipped global batches, for a rollback; the best ones that any
    of these names; and those of `steps` and of multiples of `every`.
    """
    own = _own_checkpoints(directory, fingerprint)
    for_rollback = [(path, state) for path, state in own if state and not state.get("skipped_in_a_row")][:1]
    resumable = own[: keep.newest] + for_rollback
    # The best ones of all of these: if the newest is damaged, that of the one before is still available.
    kept = {path for path, _ in resumable} | {_best_of(directory, state) for _, state in resumable}
    kept |= {path for step, path in paths.checkpoints_in(directory).items() if keep.has_step(step)}
    for path, _ in own:
        if path not in kept:
            _remove(path)


class CheckpointWriter:
    """Writes checkpoints in a thread, one at a time, while training continues."""

    def __init__(self, directory: Path, *, keep: Retention, before: Callable[[], None]) -> None:
        """Start the thread, which calls `before` ahead of each checkpoint, and before it replaces others.

        `wait` reraises its exceptions.
        """
        self._save = partial(save_checkpoint, directory, keep=keep, before=before)
        self._before = before
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._written: Future[Path] | None = None

    def start(self, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Copy the current state and write it in the thread. Waits for the previous checkpoint first.

        The other ranks call `gather_with_rank_zero` at the same time.
        """
        self.wait()
        content = {"weights": _copied(weights), "optimizer": _copied(optimizer), "state": dict(state)}
        self._written = self._thread.submit(self._write, content)

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk. Reraises the thread's exceptions."""
        if self._written is not None:
            self._written.result()

    def check(self) -> None:
        """Reraise the exception of a checkpoint that could not be written. Does not wait."""
        if self._written is not None and self._written.done():
            self._written.result()

    def close(self) -> None:
        """Wait until the last checkpoint is on the disk or has failed."""
        self._thread.shutdown()

    def _write(self, content: dict[str, Any]) -> Path:
        self._before()
        return self._save(**content)


def gather_with_rank_zero(weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor]) -> None:
    """Take part in gathering sharded tensors while rank 0 copies them. Ignores other tensors."""
    for _ in chain(whole(weights), whole(optimizer)):
        pass


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in whole(tensors)}


def find_checkpoint(
    directory: Path, fingerprint: str, *, with_best: bool = False, after_update: bool = False
) -> tuple[Path, dict[str, Any]] | None:
    """Find the newest valid checkpoint of `fingerprint` and its state; return None if there are none at all.

    Args:
        with_best: whether the best checkpoint that it names must be valid, too: an earlier one can train it again.
        after_update: pass over those that were saved after a skipped global batch, whose weights may be corrupt.

    Raises BertlineError if all checkpoints of this fingerprint are damaged.
    """
    own = _own_checkpoints(directory, fingerprint, report=True)
    for path, state in own:
        if after_update and state.get("skipped_in_a_row"):
            continue
        best = _best_of(directory, state)
        reason = _damage(path, state)
        if with_best and best and not reason and (problem := _damage(best, _state_of(best))):
            reason = f"the best one before it, {best.name}: {problem}"
        if reason is None:
            return path, state
        following = "" if path == own[-1][0] else "; trying the one before"
        logger.warning("the checkpoint %s is damaged (%s)%s", path, reason, following)
    if own and not after_update:
        raise BertlineError(
            f"{directory}: every checkpoint is damaged, the newest is {own[0][0].name}; restore one, or delete them "
            "to train from the beginning"
        )
    return None


def agree_on_checkpoint(
    group: Group, directory: Path, fingerprint: str, *, with_best: bool = False, after_update: bool = False
) -> tuple[Path, dict[str, Any]] | None:
    """Return on every rank what `find_checkpoint` finds on rank 0.

    durable.json then names it: if newer ones are damaged, their points of the journal are retracted.
    """
    found = None
    if group.is_rank_zero:
        found = find_checkpoint(directory, fingerprint, with_best=with_best, after_update=after_update)
        step, durable = _reported_step(found[1]) if found else 0, directory / Path(paths.DURABLE).name
        if durable.exists() and _object_in(durable).get("step") != step:
            _write_durable_step(directory, step)
    found = group.broadcast(found and [str(found[0]), found[1]])
    return found and (Path(found[0]), found[1])


def checkpoint_at(directory: Path, fingerprint: str, step: int) -> tuple[Path, dict[str, Any]] | None:
    """Find the valid checkpoint of `fingerprint` after `step` and its state; return None if there is none."""
    path = _path_of(directory, step)
    state = _state_of(path)
    return None if state.get("fingerprint") != fingerprint or _damage(path, state) else (path, state)


def checkpoint_of_another(directory: Path, fingerprint: str) -> Path | None:
    """Return a checkpoint of another fingerprint; None if there is none."""
    own = {path for path, _ in _own_checkpoints(directory, fingerprint)}
    return next((path for path in paths.checkpoints_in(directory).values() if path not in own), None)


def valid_checkpoints(directory: Path, fingerprint: str) -> Iterator[tuple[int, Path]]:
    """Yield the step and the path of each checkpoint of `fingerprint`, oldest first.

    Raises BertlineError for a damaged one.
    """
    for path, state in reversed(_own_checkpoints(directory, fingerprint)):
        if reason := _damage(path, state):
            raise BertlineError(f"the checkpoint {path} is damaged ({reason}); restore it, or delete it")
        yield state["step"], path


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Load the weights and the optimizer's tensors of a checkpoint. Raises BertlineError for an unreadable file."""
    weights, optimizer = (load_tensors(path / name) for name in FILES)
    return weights, optimizer


def clean_up(directory: Path, output: Path) -> None:
    """Remove what a killed trainer left half-written. Only the lock's owner may call this."""
    for replaced in directory.glob(".step-*.replaced"):
        path = directory / replaced.name[1:].removesuffix(".replaced")
        if path.exists():
            shutil.rmtree(replaced)
        else:
            replaced.rename(path)
    for path in (*directory.glob(".step-*.part"), *directory.glob(".step-*.removed")):
        shutil.rmtree(path, ignore_errors=True)
    for path in (*directory.glob(".*.part"), *output.glob(".*.part")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _own_checkpoints(directory: Path, fingerprint: str, report: bool = False) -> list[tuple[Path, dict[str, Any]]]:
    """Find checkpoints of this fingerprint, newest first, including those with an unreadable state, returned as {}."""
    own = []
    for path in reversed(paths.checkpoints_in(directory).values()):
        state = _state_of(path)
        if state and state.get("fingerprint") != fingerprint:
            if report:
                logger.warning(
                    "the checkpoint %s is of another model (fingerprint %s, not %s); it is not changed",
                    path,
                    state.get("fingerprint"),
                    fingerprint,
                )
            continue
        own.append((path, state))
    return own


def _path_of(directory: Path, step: int) -> Path:
    return directory / paths.CHECKPOINT.format(step=step)


def _reported_step(state: Mapping[str, Any]) -> int:
    """Return the last step whose point of the journal is not retracted: see `Progress.reported_step`."""
    step = int(state["step"])
    return step - 1 if state.get("unreported") else step


def _write_durable_step(directory: Path, step: int) -> None:
    write_json(directory / Path(paths.DURABLE).name, {"step": step})


def _best_of(directory: Path, state: Mapping[str, Any]) -> Path | None:
    return _path_of(directory, state["best"]["step"]) if state.get("best") else None


def _state_of(path: Path) -> dict[str, Any]:
    """Return the state of a checkpoint; {} if it cannot be read, or does not match its digest."""
    state = _object_in(path / paths.STATE)
    digests = state.get("digests")
    if not isinstance(digests, dict):
        return {}
    others = {name: digest for name, digest in digests.items() if name != paths.STATE}
    return state if digests.get(paths.STATE) == _digest_of({**state, "digests": others}) else {}


def _digest_of(state: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a state as JSON."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _object_in(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if there is none."""
    try:
        found = read_json(path)
    except BertlineError:
        return {}
    return found if isinstance(found, dict) else {}


def _damage(path: Path, state: Mapping[str, Any]) -> str | None:
    """Return why a checkpoint with this state cannot be used; None if it can."""
    if not state:
        return f"{paths.STATE} cannot be read, or does not match its digest"
    if state.get("layout_version") != LAYOUT_VERSION:
        return f"layout version {state.get('layout_version')}, this version reads {LAYOUT_VERSION}"
    for name in FILES:
        try:
            digest = sha256_of_file(path / name)
        except FileNotFoundError:
            return f"{name} is missing"
        except OSError as error:  # of the disk, or a folder in place of the file
            return f"{name} cannot be read ({error.strerror})"
        if digest != state.get("digests", {}).get(name):
            return f"{name} does not match its digest"
    return None


def _remove(path: Path) -> None:
    """Delete a checkpoint, renaming it first, so that it is complete or absent at any time."""
    removed = path.with_name(f".{path.name}.removed")
    shutil.rmtree(removed, ignore_errors=True)
    path.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)  # `clean_up` deletes what NFS keeps for its readers
