"""Write dist/bertline-<version>.cdx.json: what `make setup` installed, as a CycloneDX list, with versions and licences.

Run it with `make sbom`. The same packages give the same bytes, wherever the checkout is.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parent.parent


def describe(environment: Path, version: str) -> dict:
    """Return the list of an environment, whose subject is bertline in that version."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--spec-version", "1.6"]
    command += ["--pyproject", ROOT / "pyproject.toml", environment]
    document = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603
    # pyproject.toml names no version. Metadata that a build left in src/ would list bertline as a part of itself.
    subject = document["metadata"]["component"]
    subject["version"] = version
    parts = {part["bom-ref"]: part for part in document["components"] if part["name"] != subject["name"]}
    document["components"] = list(parts.values())
    document["dependencies"] = [
        entry for entry in document["dependencies"] if entry["ref"] in {*parts, subject["bom-ref"]}
    ]
    return document


def main(environment: Path) -> None:
    """Write the list if it is valid by CycloneDX's schema."""
    [version] = re.findall(r'^__version__ = "(.*)"$', (ROOT / "src/bertline/__init__.py").read_text(), re.MULTILINE)
    document = describe(environment, version)
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"error: the list of {environment} is not valid CycloneDX 1.6, so it was not written: {error}")
    path = ROOT / f"dist/bertline-{version}.cdx.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    print(f"{path.relative_to(ROOT)}: {len(document['components'])} packages")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
