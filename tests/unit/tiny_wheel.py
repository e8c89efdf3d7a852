"""Write a wheel of one module; also the build backend of a project of that size."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str, requires: tuple[str, ...] = (), code: str = "") -> Path:
    """Write version 1 of a package, whose module of the same name holds `code`."""
    module, metadata = name.replace("-", "_"), f"{name.replace('-', '_')}-1.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *(f"Requires-Dist: {other}" for other in requires)]
    files = {
        f"{module}.py": code,
        f"{metadata}/METADATA": "\n".join(lines) + "\n",
        f"{metadata}/WHEEL": "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    path = folder / f"{module}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        archive.writestr(f"{metadata}/RECORD", "".join(f"{file},,\n" for file in [*files, f"{metadata}/RECORD"]))
    return path


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """Build the project itself, as PEP 660 defines."""
    return write_wheel(Path(wheel_directory), "bertline").name
