"""What `make setup` installs: packages whose hash is known, with licences that are allowed."""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
import zipfile
from importlib import metadata
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from tiny_wheel import write_wheel

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUP = ("build", "packages", "torch", "cuda")  # the locks of `make setup`


def load(name: str) -> ModuleType:
    """The module envs/`name`.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"envs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_lock(name: str) -> dict[str, tuple[str, list[str]]]:
    """The version and the hashes of each package of a lock, whose lines continue behind a backslash."""
    text = (ROOT / f"envs/lock/{name}.txt").read_text().replace("\\\n", "")
    packages = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        requirement, *options = line.split(" --hash=sha256:")
        name, version = requirement.split(";")[0].strip().split("==")
        packages[canonicalize_name(name)] = (version, [option.strip() for option in options])
    return packages


@pytest.mark.parametrize("name", [*SETUP, "release"])
def test_every_line_of_a_lock_is_an_exact_version_with_hashes_and_no_other_option(name: str) -> None:
    packages = read_lock(name)
    assert packages
    assert [package for package, (_, hashes) in packages.items() if not hashes] == []
    digests = [digest for _, hashes in packages.values() for digest in hashes]
    assert [digest for digest in digests if not re.fullmatch("[0-9a-f]{64}", digest)] == []


def test_the_locks_of_setup_and_the_constraints_agree() -> None:
    lines = [line for line in (ROOT / "envs/constraints.txt").read_text().splitlines() if not line.startswith("#")]
    constraints = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    locked = {name: version for lock in SETUP for name, (version, _) in read_lock(lock).items()}
    assert constraints == {name: locked.get(name) for name in constraints}


@pytest.mark.parametrize(
    ("locks", "requirements"),
    [
        (SETUP, PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["test"]),
        (("build",), PROJECT["build-system"]["requires"]),
        (("release",), PROJECT["dependency-groups"]["release"]),
    ],
    ids=["dependencies", "build tools", "release tools"],
)
def test_the_locks_satisfy_what_the_project_requires(locks: tuple[str, ...], requirements: list[str]) -> None:
    versions = {name: version for lock in locks for name, (version, _) in read_lock(lock).items()}
    wanted = [Requirement(line) for line in requirements]
    unmet = [line for line in wanted if versions.get(canonicalize_name(line.name), "") not in line.specifier]
    assert unmet == []


def test_the_locks_name_everything_that_an_installed_package_needs() -> None:
    """They are installed without looking for dependencies. These were installed from them, or are as new."""
    locked = {name for lock in SETUP for name in read_lock(lock)}
    missing = set()
    for package in metadata.distributions():
        if canonicalize_name(package.name) in locked:
            needed = [Requirement(line) for line in package.requires or []]
            missing |= {
                canonicalize_name(line.name)
                for line in needed
                if line.marker is None or line.marker.evaluate({"extra": ""})
            }
    assert missing <= locked


def test_torch_may_come_from_either_index_and_its_libraries_for_cuda_only_with_it() -> None:
    version, hashes = read_lock("torch")["torch"]
    lines = [line for line in (ROOT / "envs/torch-cpu.sha256").read_text().splitlines() if not line.startswith("#")]
    wheels = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert {str(parse_wheel_filename(name)[1]) for name in wheels} == {f"{version}+cpu"}
    assert set(wheels.values()) < set(hashes)
    assert {name for lock in SETUP[:3] for name in read_lock(lock) if name.startswith("nvidia-")} == {"nvidia-ml-py"}


def test_make_lock_divides_the_packages_among_the_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the project itself needs is installed with every torch, whatever its name."""
    lock = load("lock")
    (tmp_path / "lock").mkdir()
    (tmp_path / "torch-cpu.sha256").write_text("# copied\n0a  torch-1+cpu.whl\n")
    project = '[project]\ndependencies = ["torch>=1", "nvidia-ml-py"]\n[build-system]\nrequires = ["setuptools"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    compiled = {
        "-": ["setuptools"],
        "pyproject.toml": ["torch", "nvidia-ml-py", "nvidia-nccl", "cuda-tools", "triton", "setuptools", "numpy"],
        "--group": ["pip-audit"],
    }
    monkeypatch.setattr(lock, "compile_lock", lambda source, *_, **__: {name: f"{name}\n" for name in compiled[source]})
    monkeypatch.setattr(lock, "ENVS", tmp_path / "envs")
    (tmp_path / "envs").symlink_to(tmp_path)
    lock.write_locks()
    written = {path.stem: path.read_text().split("\n", 1)[1] for path in (tmp_path / "lock").iterdir()}
    assert written == {
        "build": "setuptools\n",
        "packages": "nvidia-ml-py\nnumpy\n",
        "torch": "torch \\\n    --hash=sha256:0a\n",
        "cuda": "nvidia-nccl\ncuda-tools\ntriton\n",
        "release": "pip-audit\n",
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A checkout with the real installer, an environment with pip alone, and a folder of three tiny packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    # Not by its import, after which setuptools leaves distutils to Python, and torch cannot compile in this process.
    (site_packages(tmp_path) / "pip").symlink_to(Path(str(distribution("pip").locate_file("pip"))))
    (tmp_path / "envs/lock").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    shutil.copy(ROOT / "envs/install.py", tmp_path / "envs/install.py")
    shutil.copy(Path(__file__).with_name("tiny_wheel.py"), tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "tiny_wheel"\nbackend-path = ["."]\n'
    )
    (tmp_path / "envs/constraints.txt").write_text("torch==1\n")
    (tmp_path / "envs/lock/build.txt").touch()
    for lock, name in (("packages", "some-package"), ("torch", "torch"), ("cuda", "cuda-library")):
        write_locked(tmp_path, lock, name)
    return tmp_path


def site_packages(project: Path) -> Path:
    """The folder of the installed packages."""
    [folder] = project.glob(".venv/lib/python*/site-packages")
    return folder


def write_locked(project: Path, lock: str, name: str, requires: tuple[str, ...] = ()) -> None:
    """Write a tiny wheel, and the lock with its hash."""
    wheel = write_wheel(project / "wheels", name, requires)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (project / f"envs/lock/{lock}.txt").write_text(f"{name}==1 --hash=sha256:{digest}\n")


def install(
    project: Path, *arguments: str, environment: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """What `make setup` runs, without any index; returns it and the packages that are installed then."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    variables |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(project / "wheels")}
    variables |= environment or {}
    command = [project / ".venv/bin/python", "envs/install.py", *arguments]
    done = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True)
    return done, {package.name for package in metadata.distributions(path=[str(site_packages(project))])}


@pytest.mark.parametrize(("lock", "name"), [("packages", "some-package"), ("torch", "torch")])
def test_another_file_under_the_name_of_a_package_stops_setup_in_one_line(project: Path, lock: str, name: str) -> None:
    tampered = write_wheel(project / "wheels", name, code="print('tampered')")
    done, installed = install(project)
    assert done.returncode != 0
    assert name not in installed
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {name}==1 from file:")
    assert hashlib.sha256(tampered.read_bytes()).hexdigest() in line
    assert f"envs/lock/{lock}.txt" in line


def test_libraries_for_cuda_are_installed_with_a_torch_that_needs_them(project: Path) -> None:
    write_locked(project, "torch", "torch", requires=("cuda-library",))
    done, installed = install(project)
    assert done.returncode == 0, done.stderr
    assert installed == {"bertline", "some-package", "torch", "cuda-library"}
    compiled = {path.name.split(".")[0] for path in site_packages(project).glob("__pycache__/*.pyc")}
    assert {"some_package", "torch", "cuda_library"} <= compiled


@pytest.mark.parametrize("by", ["variable", "file"])
def test_a_setting_of_pip_for_the_systems_python_does_not_stop_setup(project: Path, by: str) -> None:
    """On clusters `user = true` is common, because users may not write into the system's folders."""
    settings = project / "pip.conf"
    settings.write_text("[install]\nuser = true\n")
    given = {"PIP_USER": "1"} if by == "variable" else {"PIP_CONFIG_FILE": str(settings)}
    done, installed = install(project, environment=given)
    assert done.returncode == 0, done.stderr
    assert installed == {"bertline", "some-package", "torch"}


@pytest.mark.parametrize(
    "given",
    [{"PIP_TARGET": "elsewhere"}, {"PIP_PREFIX": "elsewhere"}, {"PIP_DRY_RUN": "1"}, {"PIP_REQUIRE_HASHES": "1"}],
)
def test_other_settings_of_pip_do_not_lead_setup_elsewhere(project: Path, given: dict[str, str]) -> None:
    done, installed = install(project, environment=given)
    assert done.returncode == 0, done.stderr
    assert installed == {"bertline", "some-package", "torch"}
    assert not (project / "elsewhere").exists()


def test_settings_of_pip_for_other_files_do_not_count(project: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("some-package==2\n")
    names = ("PIP_CONSTRAINT", "PIP_REQUIREMENT", "PIP_PYTHON", "PIP_EDITABLE")
    given = dict.fromkeys(names, str(tmp_path / "other.txt")) | {"PIP_NO_BINARY": ":all:", "PIP_PLATFORM": "win32"}
    done, installed = install(project, environment=given)
    assert done.returncode == 0, done.stderr
    assert installed == {"bertline", "some-package", "torch"}


def test_no_variable_that_leads_pip_elsewhere_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    of_pip = (
        "TARGET PREFIX ROOT PYTHON CONSTRAINT BUILD_CONSTRAINT REQUIREMENT EDITABLE NO_BINARY PLATFORM PYTHON_VERSION"
    )
    variables = {
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_IMPLEMENTATION",
        "PIP_ABI",
        *(f"PIP_{name}" for name in of_pip.split()),
    }
    for name in variables:
        monkeypatch.setenv(name, "elsewhere")
    monkeypatch.setenv("PIP_INDEX_URL", "https://example.org")
    passed = load("install").ENVIRONMENT
    assert variables & passed.keys() == set()
    assert passed["PIP_INDEX_URL"] == "https://example.org"


def test_a_folder_in_a_configuration_of_pip_is_one_line(project: Path) -> None:
    (project / "pip.conf").write_text("[install]\ntarget = elsewhere\n")
    done, _ = install(project, environment={"PIP_CONFIG_FILE": str(project / "pip.conf")})
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1].startswith("error: pip installed into another folder than ")


def test_packages_of_pythonpath_do_not_count_as_installed(project: Path) -> None:
    """Modules of a cluster set PYTHONPATH; a package there was not compared with any hash."""
    (project / "others").mkdir()
    wheel = write_wheel(project / "others", "some-package", code="print('tampered')")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(project / "modules")
    done, installed = install(project, environment={"PYTHONPATH": str(project / "modules")})
    assert done.returncode == 0, done.stderr
    assert installed == {"bertline", "some-package", "torch"}


def test_a_password_in_the_address_of_an_index_is_not_printed(project: Path) -> None:
    for wheel in (project / "wheels").glob("torch-*"):
        wheel.unlink()
    variables = {"PIP_NO_INDEX": "0", "PIP_RETRIES": "0"}
    done, _ = install(project, "--index-url", "https://me:secret@127.0.0.1:9/simple", environment=variables)
    assert done.returncode != 0
    assert "pip could not do its part" in done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_a_lock_of_torch_that_does_not_exist_is_noticed_first(project: Path) -> None:
    done, installed = install(project, "--torch-lock", "nosuch.txt")
    assert done.stderr.splitlines() == ["error: TORCH_LOCK: nosuch.txt does not exist"]
    assert not installed


def test_another_build_of_torch_is_installed_by_a_lock_of_its_own(project: Path) -> None:
    write_locked(project, "torch", "torch", requires=("other-library",))
    write_locked(project, "other", "other-library")
    own = project / "own.txt"
    own.write_text("".join((project / f"envs/lock/{lock}.txt").read_text() for lock in ("torch", "other")))
    done, installed = install(project, "--torch-lock", str(own))
    assert done.returncode == 0, done.stderr
    assert installed == {"bertline", "some-package", "torch", "other-library"}


def test_packages_that_do_not_fit_together_end_setup_in_one_line(project: Path) -> None:
    """And with a torch that needs no library for CUDA, none is installed."""
    write_locked(project, "packages", "some-package", requires=("absent",))
    done, installed = install(project)
    assert done.returncode != 0
    assert installed == {"bertline", "some-package", "torch"}
    [line] = done.stderr.splitlines()
    assert "some-package 1 requires absent, which is not installed" in line


@pytest.fixture
def installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """envs/install.py with a folder of its own for an environment, and a pip that only writes down its arguments."""
    module = load("install")
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(module, "calls", [], raising=False)
    monkeypatch.setattr(module, "run_pip", lambda *arguments, lock=None: module.calls.append(list(map(str, arguments))))
    monkeypatch.setattr(module, "unmet_requirements", str)
    monkeypatch.setattr(module, "is_installed_here", lambda _: True)
    monkeypatch.setattr(module, "compile_packages", lambda: None)
    return module


def test_torch_alone_comes_from_the_index_that_is_named_and_only_as_a_wheel(installer: ModuleType) -> None:
    """Without `--only-binary` pip would run the code of a source to learn its name, before its hash is compared."""
    index = ["--index-url", "https://example.org"]
    installer.main(index)
    [downloaded] = [call for call in installer.calls if call[0] == "download"]
    options = " ".join(downloaded)
    assert downloaded[-3:] == [*index, "torch"]
    assert "--no-deps --only-binary :all: --dest " in options
    assert f"--constraint {ROOT}/envs/constraints.txt" in options
    folder = downloaded[downloaded.index("--dest") + 1]
    for call in installer.calls:
        if f"{ROOT}/envs/lock/torch.txt" in call:
            assert call[-3:] == ["--no-index", "--find-links", folder]
        assert (index[1] in call) == (call is downloaded)


@pytest.mark.parametrize("arguments", [[], ["--torch-lock", __file__, "--pre"], ["--release"]])
def test_pip_fetches_nothing_whose_hash_is_not_compared(installer: ModuleType, arguments: list[str]) -> None:
    """A build in an environment of its own would, and so would the search for dependencies."""
    installer.main(arguments)
    for call in installer.calls:
        assert "--no-deps" in call
        assert call[0] == "download" or "--no-build-isolation" in call
        assert call[0] == "download" or "--editable" in call or "--require-hashes" in call
    locks = [Path(call[call.index("--requirement") + 1]).stem for call in installer.calls if "--requirement" in call]
    torch = [Path(__file__).stem] if "--pre" in arguments else ["torch"]
    assert locks == (["release"] if arguments == ["--release"] else ["build", "packages", *torch])
    assert any("--pre" in call for call in installer.calls) == ("--pre" in arguments)


def test_a_second_set_up_waits_for_the_first(
    installer: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = threading.Thread(target=installer.main, args=([],))
    with installer.alone():
        second.start()
        said = ""
        while not said.endswith("\n") and second.is_alive():
            second.join(timeout=0.01)
            said += capsys.readouterr().out
        assert said == f"Another set-up of {tmp_path} runs: waiting for its end\n"
        assert installer.calls == []
    second.join()
    assert installer.calls != []


def test_the_environment_of_another_account_is_one_line(
    installer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installer.os, "access", lambda *_: False)  # root may write to all
    with pytest.raises(SystemExit, match=f"^error: {tmp_path} belongs to another account; give another VENV"):
        installer.main([])
    assert installer.calls == []


@pytest.mark.parametrize("arguments", [[], ["--release"]])
def test_a_set_up_that_is_stopped_is_one_line(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(installer, "run_pip", stop)
    with pytest.raises(SystemExit, match=r"^stopped; the same command continues$"):
        installer.main(arguments)


def test_set_up_goes_on_where_a_file_system_has_no_locks(
    installer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")  # Lustre without `flock`

    monkeypatch.setattr(installer.fcntl, "flock", refuse)
    installer.main([])
    assert installer.calls != []


@pytest.mark.parametrize(
    ("fields", "file", "allowed"),
    [
        ("License-Expression: Apache-2.0 AND (MIT OR BSD-3-Clause)", "", True),
        ("License-Expression: MIT AND GPL-3.0-only", "", False),
        ("License: MIT\nClassifier: License :: OSI Approved :: GNU General Public License (GPL)", "", False),
        ("License: Apache-2.0", "", True),
        ("License: SSPL-1.0", "", False),
        ("", "\n  MIT License\n\nCopyright", True),
        ("", "My own licence\nMIT License", False),
        ("", "", False),
        ("Classifier: License :: OSI Approved", "", False),
    ],
)
def test_a_licence_that_is_not_on_the_list_is_named(tmp_path: Path, fields: str, file: str, allowed: bool) -> None:
    folder = tmp_path / "tiny-1.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.4", "Name: tiny", "Version: 1", *fields.splitlines()]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    if file:
        (folder / "LICENSE").write_text(file)
        (folder / "RECORD").write_text("tiny-1.dist-info/LICENSE,,\n")
    found = load("licences").problems(metadata.distributions(path=[str(tmp_path)]))
    assert len(found) == (not allowed)
    assert all("tiny 1" in line for line in found)


def test_an_exception_holds_for_the_licence_it_was_made_for(tmp_path: Path) -> None:
    folder = tmp_path / "wikiextractor-1.dist-info"
    folder.mkdir()
    for licence, count in (
        ("OSI Approved :: GNU Affero General Public License v3 or later (AGPLv3+)", 0),
        ("Other/Proprietary License", 1),
    ):
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: wikiextractor\nVersion: 1\nClassifier: License :: {licence}\n"
        )
        assert len(load("licences").problems(metadata.distributions(path=[str(tmp_path)]))) == count


PROPRIETARY = "License-Expression: LicenseRef-NVIDIA-Proprietary"
CLASSIFIED = "License: LicenseRef-NVIDIA-Proprietary\nClassifier: License :: Other/Proprietary License"
# As the metadata of the files on PyPI name them. After `make lock`, look them up for each new version.
LICENCES_FOR_CUDA = {
    "cuda-bindings 13.5.0": "License-Expression: Apache-2.0",
    "cuda-pathfinder 1.9.0": "License-Expression: Apache-2.0",
    "cuda-toolkit 13.0.3.0": "",
    "nvidia-cublas 13.1.1.3": PROPRIETARY,
    "nvidia-cuda-cupti 13.0.85": CLASSIFIED,
    "nvidia-cuda-nvrtc 13.0.88": CLASSIFIED,
    "nvidia-cuda-runtime 13.0.96": PROPRIETARY,
    "nvidia-cudnn-cu13 9.20.0.48": PROPRIETARY,
    "nvidia-cufft 12.0.0.61": CLASSIFIED,
    "nvidia-cufile 1.15.1.6": CLASSIFIED,
    "nvidia-curand 10.4.0.35": CLASSIFIED,
    "nvidia-cusolver 12.0.4.66": CLASSIFIED,
    "nvidia-cusparse 12.6.3.3": CLASSIFIED,
    "nvidia-cusparselt-cu13 0.8.1": "License: NVIDIA Proprietary Software",
    "nvidia-nccl-cu13 2.29.7": PROPRIETARY,
    "nvidia-nvjitlink 13.5.37": PROPRIETARY,
    "nvidia-nvshmem-cu13 3.4.5": PROPRIETARY,
    "nvidia-nvtx 13.0.85": "License: Apache 2.0\nClassifier: License :: Other/Proprietary License",
    "triton 3.7.1": "Classifier: License :: OSI Approved :: MIT License",
}


def test_the_licences_of_what_torch_needs_for_cuda_are_allowed(tmp_path: Path) -> None:
    """Where the tests run, the small build of torch may be installed, without them."""
    assert sorted(LICENCES_FOR_CUDA) == sorted(f"{name} {version}" for name, (version, _) in read_lock("cuda").items())
    for package, fields in LICENCES_FOR_CUDA.items():
        name, version = package.split()
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{fields}\n")
    assert load("licences").problems(metadata.distributions(path=[str(tmp_path)])) == []


CLEAN = {"name": "clean", "version": "1", "vulns": []}
HOLE = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1"], "fix_versions": ["2"], "description": "..."}


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        ([CLEAN], None),
        ([CLEAN, {**CLEAN, "name": "bad", "vulns": [HOLE]}], "bad 1 has PYSEC-2026-1, CVE-2026-1; fixed in 2"),
        ([CLEAN, {"name": "x", "skip_reason": "absent"}], "could not be reached for 1 of 2 packages, for example x"),
        ([], "could not be reached for 0 of 0 packages"),
    ],
)
def test_packages_that_could_not_be_checked_never_count_as_clean(packages: list[dict], words: str | None) -> None:
    lines = load("audit").judge(json.dumps({"dependencies": packages, "fixes": []}), "No known vulnerabilities found")
    assert len(lines) == (words is not None)
    assert all(words in line for line in lines)


@pytest.mark.parametrize(("log", "reason"), [("Traceback\nNo route\n", "No route"), ("", "pip-audit said nothing")])
def test_without_any_answer_the_reason_is_named(log: str, reason: str) -> None:
    [line] = load("audit").judge("", log)
    assert line.endswith(f"so no package was checked: {reason}")
