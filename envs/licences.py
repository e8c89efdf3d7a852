"""Compare the licence of each installed package with licences.toml.

A package's licences are those that its metadata name: its licence expression, or else its classifiers, or else its
licence field, or else the first line of its licence file. All must be allowed, those of alternatives ("or") too.
"""

import re
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

LIST = Path(__file__).parent / "licences.toml"


def licences(package: metadata.Distribution) -> list[str]:
    """Return the names of a package's licences, sorted."""
    fields = package.metadata
    classifiers = [line.split(" :: ") for line in fields.get_all("Classifier", []) if line.startswith("License :: ")]
    classified = {parts[-1] for parts in classifiers if parts[-1] != "OSI Approved"}
    text = fields.get("License-Expression")
    if text is None and classified:
        return sorted(classified)
    text = text or fields.get("License") or ""
    if not text.strip() or "\n" in text.strip():
        return first_line_of_licence_file(package)
    return sorted({name.strip() for name in re.split(r"\b(?:AND|OR|WITH)\b|[()]", text)} - {""})


def first_line_of_licence_file(package: metadata.Distribution) -> list[str]:
    """Return the first line with text of the package's first licence file, in a list, or no line."""
    for file in sorted(package.files or [], key=str):
        if re.search(r"\.dist-info/(.*/)?(LICEN[CS]E|COPYING)[^/]*$", str(file), re.IGNORECASE):
            lines = [line.strip() for line in file.read_text().splitlines() if line.strip()]
            return lines[:1]
    return []


def problems(packages: Iterable[metadata.Distribution]) -> list[str]:
    """Return a line for each package whose licences are neither allowed nor those of its exception."""
    listed = tomllib.loads(LIST.read_text())
    lines = []
    for package in packages:
        found = licences(package)
        excepted = [value["named"] for name, value in listed["exceptions"].items() if fnmatch(package.name, name)]
        if (found and set(found) <= set(listed["allowed"])) or any(found in named for named in excepted):
            continue
        names = " and ".join(repr(name) for name in found) or "no licence"
        lines.append(f"error: {package.name} {package.version} names {names}, which envs/licences.toml does not allow")
    return sorted(lines)


if __name__ == "__main__":
    installed = list(metadata.distributions())
    if found := problems(installed):
        sys.exit("\n".join(found))
    print(f"The licences of {len(installed)} packages are allowed by envs/licences.toml")
