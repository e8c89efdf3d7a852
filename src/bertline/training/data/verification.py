"""Verification of a dataset's files during training: each is compared once with its digest in dataset.json."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, get_native_id

from bertline.console import BertlineError
from bertline.encoding.card_format import SPLITS
from bertline.files import Json

# Hashing and reading release the GIL; between two pieces the thread needs it for microseconds.
BYTES_PER_PIECE = 1 << 24
LOWEST_PRIORITY = 19
SECONDS_AT_THE_END = 60.0


class FileVerification:
    """A thread of the lowest priority that computes the SHA-256 of files and compares them with the expected ones.

    HDF5 has no checksums for contiguous data: nothing else finds a flipped bit that gives a valid sample.
    """

    def __init__(self, files: Sequence[tuple[Path, str]]) -> None:
        """Start with `files`: paths, and the SHA-256 that each must have."""
        self._files = files
        self._verified = 0
        self._problem: str | None = None
        self._stopped = Event()
        self._thread = Thread(target=self._verify, name="verification", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise BertlineError if a file was found to be damaged. Does not wait."""
        if self._problem is not None:
            raise BertlineError(self._problem)

    def finish(self) -> str | None:
        """Wait for the remaining files, at most a minute. Returns an error message if one is damaged."""
        self._thread.join(SECONDS_AT_THE_END)
        self.close()
        return self._problem

    @property
    def unverified(self) -> int:
        """How many of the files have not been compared, or were found to be damaged."""
        return len(self._files) - self._verified

    def close(self) -> None:
        """Stop after the current piece."""
        self._stopped.set()

    def _verify(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, get_native_id(), LOWEST_PRIORITY)
        piece = memoryview(bytearray(BYTES_PER_PIECE))
        for path, expected in self._files:
            digest = hashlib.sha256()
            try:
                with path.open("rb", buffering=0) as file:
                    while size := file.readinto(piece):
                        digest.update(piece[:size])
                        if self._stopped.is_set():
                            return
            except OSError as error:
                self._problem = f"{path} cannot be read ({error.strerror}); check the disk, then run the same command"
                return
            if digest.hexdigest() != expected:
                self._problem = (
                    f"{path} is damaged: its SHA-256 is not the one that dataset.json states; delete it, run "
                    "`snakemake encode` or import it again, then run the same command again"
                )
                return
            self._verified += 1


def verify_in_background(
    card_json: Path, card: Json, sequence_length: int, *, rank: int, world_size: int
) -> FileVerification:
    """Start verifying this rank's part of a dataset's files; one rank verifies each file.

    Args:
        card_json, card: the dataset.json and its content.
        sequence_length: of the phase; files of other lengths are left out.
    """
    section = card["sequence_lengths"][str(sequence_length)]
    entries = [entry for split in SPLITS for entry in section[split]]
    return FileVerification(
        [(card_json.parent / entry["file"], entry["sha256"]) for entry in entries[rank::world_size]]
    )
