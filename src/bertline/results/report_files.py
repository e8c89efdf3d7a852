"""The files of a report beside its page, and the list of them that is kept with it.

A report is written to the same folder again after recipes and results changed. Without the list, a file of before would
pass for one of the present run, and a file that a person put there for one of the report.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path, PurePosixPath

from bertline.files import one_line_damage, read_object, write_json, write_text

LIST = "files.json"
FIGURES, TABLES, CARDS = FOLDERS = ("figures", "tables", "model-cards")


class ReportFiles:
    """The files that are written to a report's folder, each of a record's run or of several."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, str] = {}

    def write(self, name: str, text: str, record: str = "") -> None:
        """Write a file; `record` is the fingerprint of the record that it is of, empty for several."""
        write_text(self.folder / name, text)
        self._written[name] = record

    def finish(self) -> None:
        """Remove the files of the report that was here before, but for those that were written anew."""
        for name in _read_list(self.folder).keys() - self._written.keys():
            path = self.folder / name
            path.unlink(missing_ok=True)
            with suppress(OSError):  # others are in it
                path.parent.rmdir()
        write_json(self.folder / LIST, {"files": self._written})


def report_files(folder: Path, record: str) -> list[Path]:
    """Return the files of a report that are of the run of one record, by its fingerprint."""
    return [folder / name for name, of in sorted(_read_list(folder).items()) if of == record]


def _read_list(folder: Path) -> dict[str, str]:
    """Return the records' fingerprints by the files' names; nothing for a report without a list."""
    path = folder / LIST
    if not path.exists():
        return {}
    with one_line_damage(path):
        files = dict(read_object(path, "files")["files"])
        for name in files:
            parts = PurePosixPath(name).parts
            if parts[0] not in FOLDERS or ".." in parts:
                raise ValueError(f"{name} is not in one of a report's folders")
    return files
