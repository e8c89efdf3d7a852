"""Remove pip and the tools of tests and checks from this environment: neither bertline nor MLflow needs them to run."""

import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# MLflow's server needs these two for PostgreSQL and for passwords.
SERVER = ["psycopg2-binary", "flask-wtf"]


def needed(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Return the names of all installed packages that `requirements` lead to."""
    names: set[str] = set()
    waiting = [(Requirement(line), extras) for line in requirements]
    while waiting:
        requirement, wanted = waiting.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
            continue
        name = canonicalize_name(requirement.name)
        key = name + "".join(f"[{extra}]" for extra in sorted(requirement.extras))
        if key in names:
            continue
        names |= {name, key}
        more = metadata.requires(name) or []
        waiting += [(Requirement(line), frozenset(requirement.extras)) for line in more]
    return names


def main() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    lines = project["dependencies"] + project["optional-dependencies"]["cluster-generic"] + SERVER
    keep = needed(lines) | {"bertline"}
    installed = {canonicalize_name(package.name) for package in metadata.distributions()}
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", *sorted(installed - keep - {"pip"})], check=True)  # noqa: S603
    subprocess.run([*pip, "check"], check=True)  # noqa: S603
    subprocess.run([*pip, "uninstall", "--quiet", "--yes", "pip"], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
