"""Ask PyPI for known vulnerabilities of every package in envs/lock, with pip-audit, and say what was not answered.

pip-audit itself ends well when PyPI does not answer for a package, so its "nothing found" could mean "nothing asked".
Run it with `make audit`. `python envs/audit.py --probe` only says, in one line, whether PyPI answers: CI audits then.
"""

import http.client
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

LOCK = Path(__file__).parent / "lock"
PYPI = "https://pypi.org"
PROBE_SECONDS = 30


def reason_not_to_ask(address: str = PYPI) -> str | None:
    """Return why the vulnerabilities of the first locked package are not known at `address`; None if they are."""
    name, version = re.findall(r"^([\w.-]+)==([\w.+-]+)", (LOCK / "packages.txt").read_text(), re.MULTILINE)[0]
    url = f"{address}/pypi/{name}/{version}/json"
    try:
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as answer:  # noqa: S310 - http in tests
            known = "vulnerabilities" in dict(json.load(answer))
    except (OSError, http.client.HTTPException) as error:
        return f"{url}: {' '.join(str(error).split())}"
    except (ValueError, TypeError):
        known = False
    return None if known else f"{url}: no data on vulnerabilities"


def judge(report: str, log: str) -> list[str]:
    """Return a line for each problem in pip-audit's JSON `report`: none if every package was asked for, and is clean.

    `log` is what it wrote to stderr: its last line is the reason when there is no report.
    """
    try:
        packages = json.loads(report)["dependencies"]
    except (ValueError, KeyError):
        reason = (log.strip().splitlines() or ["pip-audit said nothing"])[-1]
        return [f"error: PyPI's data on vulnerabilities could not be reached, so no package was checked: {reason}"]
    problems = []
    for package in packages:
        for found in package.get("vulns", []):
            names = ", ".join([found["id"], *found["aliases"]])
            fixed = ", ".join(found["fix_versions"]) or "no version"
            problems.append(f"error: {package['name']} {package['version']} has {names}; fixed in {fixed}")
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or not packages:
        example = f", for example {skipped[0]}" if skipped else ""
        problems.append(
            f"error: PyPI's data on vulnerabilities could not be reached for {len(skipped)} of {len(packages)} packages"
            f"{example}: they were not checked"
        )
    return problems


def main() -> None:
    """Check every lock, the one of the release tools included."""
    command = [sys.executable, "-m", "pip_audit", "--progress-spinner", "off", "--format", "json", "--disable-pip"]
    command += ["--require-hashes", *(f"--requirement={path}" for path in sorted(LOCK.glob("*.txt")))]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    problems = judge(done.stdout, done.stderr)
    if problems:
        sys.exit("\n".join(problems))
    print(f"No known vulnerability in {len(json.loads(done.stdout)['dependencies'])} packages")


if __name__ == "__main__":
    sys.exit(reason_not_to_ask()) if sys.argv[1:] == ["--probe"] else main()
