"""Install what `make setup` needs into the environment of this Python: nothing whose sha256 is not in envs/lock.

    python envs/install.py [--torch-lock FILE] [option of pip for torch ...]
    python envs/install.py --release

It uses the standard library alone, because nothing else is installed yet. It ends in one line when pip refuses a file.
"""

import fcntl
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).parent / "lock"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# Settings of the caller that would lead packages elsewhere, have pip take those of another folder for installed, or ask
# for other files than those of the locks. (NVIDIA's containers set PIP_CONSTRAINT.)
ELSEWHERE = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON"}
ELSEWHERE |= {"PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_NO_BINARY"}
ELSEWHERE |= {"PIP_PLATFORM", "PIP_PYTHON_VERSION", "PIP_IMPLEMENTATION", "PIP_ABI"}
# They override a pip.conf. Its `user = true` is meant for the system's Python: in a virtual environment pip refuses to
# install so. Hashes are required where there are some.
OVERRIDDEN = {"PIP_USER": "0", "PIP_DRY_RUN": "0", "PIP_REQUIRE_HASHES": "0"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ELSEWHERE} | OVERRIDDEN
# How pip names a file that it refuses, and the digest of that file.
REFUSED = re.compile(r"^ +(\S+) from (\S+).*?Got +(\w+)", re.MULTILINE | re.DOTALL)


@contextmanager
def alone() -> Iterator[None]:
    """Wait until no other set-up of this environment runs, and have others wait. One of another account is refused."""
    if not os.access(sys.prefix, os.W_OK):
        sys.exit(f"error: {sys.prefix} belongs to another account; give another VENV (see envs/README.md)")
    with Path(sys.prefix, "set-up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Another set-up of {sys.prefix} runs: waiting for its end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield


def run_pip(*arguments: str | Path, lock: Path | None = None) -> None:
    """Run pip, and end the program in one line if a file's hash is not in `lock`, or after pip's own lines."""
    command = [*PIP, *arguments]
    done = subprocess.run(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, errors="replace")  # noqa: S603
    if done.returncode == 0:
        return
    refused = REFUSED.search(done.stderr)
    if lock is not None and refused is not None:
        package, source, digest = refused.groups()
        sys.exit(
            f"error: {package} from {source} has the sha256 {digest}, which is not in {lock}, so it was not installed: "
            "it is another file than expected, perhaps tampered with (for another build of torch see envs/README.md)"
        )
    sys.stderr.write(done.stderr)
    shown = re.sub(r"//[^/@\s]*@", "//", " ".join(map(str, arguments)))  # without passwords in addresses
    sys.exit(f"error: pip could not do its part of set-up, see the lines above: pip {shown}")


def install(lock: Path, *options: str | Path) -> None:
    """Install the packages of `lock` and no others, each checked.

    Sources are built with the setuptools installed before: in an environment of its own, pip would fetch one unchecked.
    Nothing is compiled: pip does that on one core.
    """
    checked = ["--require-hashes", "--no-deps", "--no-build-isolation", "--no-compile", "--requirement", lock]
    run_pip("install", "--quiet", *checked, *options, lock=lock)


def install_torch(options: list[str]) -> None:
    """Install the build of torch that pip chooses with `options`, checked.

    Given hashes, pip would prefer PyPI's build to one in a folder of wheels (`find-links`), so it chooses without them.
    """
    with tempfile.TemporaryDirectory(prefix="torch-") as folder:
        constraints = LOCK.parent / "constraints.txt"
        wheel = ["--no-deps", "--only-binary", ":all:", "--dest", folder, "--constraint", constraints]
        run_pip("download", "--quiet", *wheel, *options, "torch")
        install(LOCK / "torch.txt", "--no-index", "--find-links", folder)


def compile_packages() -> None:
    """Compile the installed packages to byte code on all cores, so that the first programs start as fast as later ones.

    As with pip, files that are no Python of this version stay as they are.
    """
    folder = sysconfig.get_path("purelib")
    command = [sys.executable, "-m", "compileall", "-qq", "-j", "0", folder]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603


def unmet_requirements() -> str:
    """Return a line for each requirement of an installed package that no installed package meets."""
    done = subprocess.run([*PIP, "check"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return done.stdout.strip() if done.returncode else ""


def is_installed_here(package: str) -> bool:
    """Return whether a package is in the folder of this environment, and not in another that `target` names."""
    return any(metadata.distributions(name=package, path=[sysconfig.get_path("purelib")]))


def set_up(arguments: list[str]) -> None:
    """Install everything that bertline needs, torch last: only its metadata shows whether it is the build for CUDA."""
    install(LOCK / "build.txt")
    install(LOCK / "packages.txt")
    if arguments[:1] == ["--torch-lock"]:
        install(Path(arguments[1]), *arguments[2:])
    else:
        install_torch(arguments)
        if re.search(r"^torch .* requires ", unmet_requirements(), re.MULTILINE):
            install(LOCK / "cuda.txt")
    run_pip("install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", LOCK.parent.parent)
    if not is_installed_here("bertline"):
        sys.exit(
            f"error: pip installed into another folder than {sysconfig.get_path('purelib')}: remove `target`, `prefix` "
            "and `root` from the files that `pip config debug` lists"
        )
    compile_packages()
    if unmet := unmet_requirements():
        sys.exit(f"error: the installed packages do not fit together, see envs/README.md: {unmet}")


def main(arguments: list[str]) -> None:
    """Set up the environment of `make setup`, or that of the tools of a release."""
    if arguments[:1] == ["--torch-lock"] and not Path(arguments[1]).exists():
        sys.exit(f"error: TORCH_LOCK: {arguments[1]} does not exist")
    try:
        with alone():
            if arguments == ["--release"]:
                install(LOCK / "release.txt")
                compile_packages()
            else:
                set_up(arguments)
    except KeyboardInterrupt:
        sys.exit("stopped; the same command continues")


if __name__ == "__main__":
    main(sys.argv[1:])
