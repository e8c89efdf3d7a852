"""Variables of make are data: nothing in them is a command, of the shell or of make."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A program that writes down its arguments instead of doing anything.
PROGRAM = """#!{python}
import json, os, sys
print(True)
if sys.argv[1:2] == ["-Ic"]:
    sys.exit()  # only looks at the environment
with open("calls", "a") as calls:
    calls.write(json.dumps([os.path.basename(sys.argv[0]), sys.argv[1:], os.environ.get("PYTEST_ADDOPTS")]) + "\\n")
"""
HOSTILE = """it's "a" $(touch made) $$(touch made) `touch made`; touch made; # | touch made & (b"""
# A target that uses each variable; those in the second table are divided into words.
ONE_ARGUMENT = {
    "TEXT": "mine",
    "OUTPUT": "mine",
    "TIME": "mine",
    "LANGUAGE": "mine",
    "ENCODING": "mine",
    "COLUMN": "mine",
    "TABLE": "mine",
    "GPUS": "mine",
    "PROFILE": "plan",
    "SITE": "plan",
    "SET": "plan",
    "RUN": "sweep",
    "FROM": "sweep",
    "TO": "sweep",
    "PROCESSES": "sweep",
    "OPTIONS": "sweep",
    "REPO": "publish",
    "TASK": "publish",
    "RUNS": "report",
    "FOLLOW": "curves",
    "PORT": "ui",
    "TIMES": "faults",
    "SEED": "faults",
    "DATASET": "bench-train",
    "SQUAD": "bench-finetune",
    "TEXTS": "bench-features",
    "VOCABULARY": "bench-features",
    "MSMARCO": "bench-ranking",
    "TREEBANKS": "bench-sentences",
    "NVIDIA": "bench-export",
    "BERTLINE_TEST_DATA": "bench-data",
    "TARGET": "image",
    "TESTS": "test-slurm",
    "TORCH_LOCK": "setup",
    "PYTHON": "setup",
}
WORDS = {
    "CONFIG": ("plan", "targets", "status", "prune", "sweep", "unlock"),
    "ENGINE": ("image",),
    "BUILD_OPTIONS": ("image",),
    "TORCH_OPTIONS": ("setup",),
}
SWITCHES = {"FORCE": "mine", "DELETE": "prune", "PUBLIC": "publish", "PUSH": "publish", "NAMES": "targets"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the Makefile and programs that only write down how they are called."""
    folder = tmp_path / "checkout"
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("python", "snakemake", "pytest", "docker", "python3"):
        program = folder / ".venv/bin" / name
        program.write_text(PROGRAM.format(python=sys.executable))
        program.chmod(0o755)
    for name in (
        "pyproject.toml",
        "envs/constraints.txt",
        "envs/install.py",
        "resources/sample/sample.json",
        "site.yaml",
        ".venv/pyvenv.cfg",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name in ("build", "packages", "torch", "cuda", "release"):
        (folder / f"envs/lock/{name}.txt").parent.mkdir(exist_ok=True)
        (folder / f"envs/lock/{name}.txt").touch()
    (folder / ".venv/ready").touch()
    return folder


def calls_of(folder: Path, target: str, *variables: str, environment: dict[str, str] | None = None) -> list[list]:
    """The programs that `make target` runs, with their arguments."""
    if target == "setup":
        (folder / ".venv/ready").unlink(missing_ok=True)
    (folder / "calls").unlink(missing_ok=True)
    subprocess.run(
        ["make", target, *variables],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TEXTS": "needed.txt", **(environment or {})},
        capture_output=True,
        check=False,
    )
    assert not (folder / "made").exists()
    lines = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("name", "target"), ONE_ARGUMENT.items())
@pytest.mark.parametrize("given", ["on the command line", "in the environment"])
def test_a_variable_is_one_argument(checkout: Path, name: str, target: str, given: str) -> None:
    of_mine_only_on_a_command_line = target == "mine" and name not in ("TEXT", "OUTPUT")
    if name == "PYTHON":
        shutil.rmtree(checkout / ".venv")
    if given == "on the command line":
        calls = calls_of(checkout, target, f"{name}={HOSTILE}")
    else:
        calls = calls_of(checkout, target, environment={name: HOSTILE})
        if of_mine_only_on_a_command_line:
            assert not any(HOSTILE in word for _, arguments, _ in calls for word in arguments)
            return
    if name == "PYTHON":  # a program of this name, which there is not
        assert calls == []
    elif name == "SITE":  # given if there is such a file
        assert calls
    elif name == "TESTS":  # options with the quotes of a shell, which pytest reads
        assert [options.strip() for _, _, options in calls] == [HOSTILE]
    else:
        assert any(HOSTILE in word for _, arguments, _ in calls for word in arguments), calls


@pytest.mark.parametrize(("name", "target"), [(name, target) for name, targets in WORDS.items() for target in targets])
def test_a_variable_of_several_arguments_is_only_divided_at_spaces(checkout: Path, name: str, target: str) -> None:
    calls = calls_of(checkout, target, f"{name}={HOSTILE} *")
    if name == "ENGINE":  # a program that there is not
        assert calls == []
        return
    words = [*HOSTILE.split(), "*"]
    assert any(" ".join(words) in " ".join(arguments) and words[0] in arguments for _, arguments, _ in calls), calls


@pytest.mark.parametrize(
    "target",
    ["test", "test-slow", "test-services", "test-slurm", "test-kubernetes", "test-containers", "e2e", "rehearse-gpu"],
)
def test_every_target_of_tests_takes_options_in_addition_to_those_of_the_environment(
    checkout: Path, target: str
) -> None:
    calls = calls_of(checkout, target, "TESTS=-k 'a or b'", environment={"PYTEST_ADDOPTS": "-v"})
    assert [options for program, _, options in calls if program == "pytest"] == ["-v -k 'a or b'"]


@pytest.mark.parametrize("options", ["", HOSTILE])
def test_an_image_has_the_options_for_torch_that_are_given_for_it(checkout: Path, options: str) -> None:
    """And not those of the environment, which are for set-up: another target of the image needs others."""
    [(_, arguments, _)] = calls_of(checkout, "image", f"TORCH_OPTIONS={options}", "TARGET=cuda")
    assert ["--build-arg", f"TORCH_OPTIONS={options}"] == arguments[-3:-1]
    [(_, arguments, _)] = calls_of(checkout, "image", environment={"TORCH_OPTIONS": options})
    assert "TORCH_OPTIONS" not in " ".join(arguments)


@pytest.mark.parametrize(("name", "target"), SWITCHES.items())
def test_a_switch_is_yes_or_no(checkout: Path, name: str, target: str) -> None:
    options = {}
    for value in ("", "no", "yes"):
        [(_, arguments, _), *_] = calls_of(checkout, target, f"{name}={value}")
        options[value] = arguments
    option = {"NAMES": "--names"}.get(name, f"--{name.lower()}")
    assert options["yes"] == [*options["no"], option]
    assert options["no"] == options[""]


@pytest.mark.parametrize("value", ["1", "true", "YES", "yes please", "$(shell touch made)"])
def test_another_value_of_a_switch_is_one_line_and_runs_nothing(checkout: Path, value: str) -> None:
    for name, target in SWITCHES.items():
        command = ["make", target, f"{name}={value}"]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        [line] = done.stderr.splitlines()
        assert f"error: {name}={value}: give {name}=yes, or leave it out" in line
    assert not (checkout / "calls").exists()
    assert not (checkout / "made").exists()
    assert calls_of(checkout, "prune", environment={"FORCE": "1"})  # another program's


def test_scripts_import_the_bertline_of_their_checkout_and_tests_what_is_installed(checkout: Path) -> None:
    """Several checkouts may share an environment, in which one of them is installed."""
    for name in ("python", "pytest"):
        (checkout / ".venv/bin" / name).write_text(f'#!/bin/sh\necho "ran {name} $1 with $PYTHONPATH"\n')
    rules = re.findall(r"^([a-z0-9-]+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = [
        target for target, recipe in rules if re.search(r"python (workflow|bench)/|\(PYTEST\) tests/e2e", recipe)
    ]
    assert len(targets) > 20
    (checkout / "mine.yaml").touch()
    command = ["make", *targets, "plan", "TEXTS=a", "NVIDIA=a", "MSMARCO=a", "TREEBANKS=a"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/modules"}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    ran = re.findall(r"^ran (.*) with (.*)", done.stdout, re.MULTILINE)
    assert len(ran) > len(targets)
    for program, path in ran:
        assert path == ("/modules" if program.startswith("pytest") else f"{checkout}/src:/modules"), program


@pytest.mark.parametrize("name", ["a$(touch made)b", "a`touch made`b", 'a"b', "a$HOME"])
@pytest.mark.parametrize("of", ["checkout", "VENV"])
def test_a_path_that_a_shell_would_read_is_one_line(checkout: Path, name: str, of: str) -> None:
    folder = checkout.rename(checkout.with_name(name)) if of == "checkout" else checkout
    venv = [] if of == "checkout" else [f"VENV={name.replace(' ', '')}"]
    status, said = answer_of(folder, "plan", *venv)
    assert (status, len(said)) == (2, 1)
    assert "error: the path of this checkout (" in said[0]
    assert not list(checkout.parent.glob("*/made"))
    assert not list(checkout.parent.glob("*/calls"))


@pytest.mark.parametrize("name", ["it's", "an é ü", "a#b", "100%", "a\\b", "a (b)", "a & b; c|d"])
def test_a_checkout_may_be_in_a_folder_with_a_strange_name(checkout: Path, name: str) -> None:
    folder = checkout.rename(checkout.with_name(name))
    assert len(calls_of(folder, "plan")) == 2
    assert ["envs/install.py"] in [arguments for _, arguments, _ in calls_of(folder, "setup")]


def test_nothing_in_a_variable_of_the_system_is_a_command_of_make(checkout: Path) -> None:
    text = "$(shell touch made)"
    variables = {"PATH": f"{os.environ['PATH']}:{text}", "HOME": text, "PYTHONPATH": text}
    python = checkout / ".venv/bin/python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PATH" "$HOME" "$PYTHONPATH" "$@" >> calls\n')
    command = ["make", "status", "CONFIG=~/my.yaml"]
    subprocess.run(command, cwd=checkout, env=variables, check=True)
    path, home, pythonpath, *_, config = (checkout / "calls").read_text().splitlines()
    assert path == f"{checkout}/.venv/bin:{variables['PATH']}"
    assert (home, pythonpath) == (text, f"{checkout}/src:{text}")
    assert config == "made)/my.yaml"  # a configuration is divided at spaces
    assert not (checkout / "made").exists()


def test_several_configuration_files_are_one_variable(checkout: Path) -> None:
    _, (_, arguments, _) = calls_of(checkout, "plan", "CONFIG=config/a.yaml b.yaml", "SET=a.b=1 c=2")
    assert arguments[2:5] == ["--configfile", "config/a.yaml", "b.yaml"]
    assert arguments[-2:] == ["--config", "set=a.b=1 c=2"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["PROFILE=profiles/slurm", "SITE=other.yaml"], ["--config", "site=other.yaml"]),
        (["PROFILE=profiles/slurm", "SET=a.b=1"], ["--config", "set=a.b=1", "site=site.yaml"]),
        (["PROFILE=profiles/local/", "SET=a.b=1"], ["--config", "set=a.b=1"]),
        (["PROFILE=profiles/slurm"], ["--dry-run"]),
    ],
)
def test_the_plan_is_of_the_site_that_is_named(checkout: Path, given: list[str], expected: list[str]) -> None:
    _, (_, arguments, _) = calls_of(checkout, "plan", *given)
    assert arguments[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [(["SITE=nosite.yaml"], ["--site", "nosite.yaml"]), (["SITE=site.yaml"], ["--site", "site.yaml"]), ([], None)],
)
def test_a_site_that_is_named_is_read_also_if_it_does_not_exist(
    checkout: Path, given: list[str], expected: list[str] | None
) -> None:
    (shown, *_) = calls_of(checkout, "plan", *given)
    assert shown[1][-2:] == (expected or ["--site", "site.yaml"])
    if not given:
        (checkout / "site.yaml").unlink()
        (shown, *_) = calls_of(checkout, "plan")
        assert "--site" not in shown[1]


def test_a_folder_in_your_home_may_begin_with_a_tilde(checkout: Path) -> None:
    """Which zsh passes on unchanged."""
    _, (_, arguments, _) = calls_of(checkout, "plan", "CONFIG=~/my.yaml b~/c")
    assert arguments[2:5] == ["--configfile", f"{checkout}/my.yaml", "b~/c"]


def test_the_file_that_make_mine_writes_is_planned_whatever_its_name(checkout: Path) -> None:
    made, shown, planned = calls_of(checkout, "mine", "TEXT=Bob's books", "OUTPUT=my file's.yaml", "TIME=2h")
    assert made[1] == [
        "workflow/scripts/mine.py", "Bob's books", "--output", "my file's.yaml", "--time=2h"
    ]  # fmt: skip
    assert "my file's.yaml" in shown[1]
    assert "my file's.yaml" in planned[1]
    made, *_ = calls_of(checkout, "mine", "TEXT=a", "CONFIG=b c.yaml")
    assert made[1][-1] == "b c.yaml"
    made, *_ = calls_of(checkout, "mine", "TEXT=a")
    assert made[1][-1] == "mine.yaml"


@pytest.mark.parametrize("is_active", [True, False])
def test_the_command_that_make_mine_proposes_works_in_this_terminal(checkout: Path, is_active: bool) -> None:
    (checkout / "mine.yaml").write_text("# Run it:\n#     snakemake --configfile=mine.yaml\n")
    path = f"{checkout}/.venv/bin:{os.environ['PATH']}" if is_active else os.environ["PATH"]
    command = ["make", "mine", "TEXT=a"]
    done = subprocess.run(command, cwd=checkout, env={"PATH": path}, capture_output=True, text=True, check=True)
    activation = [] if is_active else ["  source .venv/bin/activate"]
    expected = ["Run it:", *activation, "  snakemake --configfile=mine.yaml"]
    assert done.stdout.splitlines()[-len(expected) :] == expected


@pytest.fixture
def unset(checkout: Path) -> Path:
    """A checkout before set-up, where `install.py` and a script only write down the environment that they run in."""
    shutil.rmtree(checkout / ".venv")
    own = checkout / "python-without-pip"  # pip takes seconds, and nothing is installed here
    own.write_text(f'#!/bin/sh\n[ "$1 $2" = "-m venv" ] && set -- "$@" --without-pip\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    for name in ("envs/install.py", "workflow/scripts/digests.py"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("import sys\nopen('prefixes', 'a').write(sys.prefix + '\\n')\n")
    with (checkout / "envs/install.py").open("a") as program:
        program.write(
            "import pathlib, sysconfig\n"
            "for name in ('torch-2+cpu', 'bertline-1'):\n"
            "    folder = pathlib.Path(sysconfig.get_path('purelib'), f'{name}.dist-info')\n"
            "    folder.mkdir(exist_ok=True)\n"
            "    (folder / 'METADATA').write_text('Name: {}\\nVersion: {}\\n'.format(*name.split('-')))\n"
        )
    other = checkout / "other/bin/python"
    other.parent.mkdir(parents=True)
    other.write_text("#!/bin/sh\nexit 7\n")
    other.chmod(0o755)
    return checkout


def set_up(folder: Path, *variables: str, **others: str) -> tuple[int, list[Path]]:
    """Set up, and use the environment, with another one active; return the status, and where programs ran."""
    path = f"{folder}/other/bin:{os.environ['PATH']}"
    command = ["make", "setup", "digests", f"PYTHON={folder}/python-without-pip", *variables]
    environment = {"PATH": path, "HOME": str(folder), **others}
    status = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
    prefixes = folder / "prefixes"
    return status, [Path(line) for line in prefixes.read_text().splitlines()] if prefixes.exists() else []


def set_up_again(folder: Path, *variables: str, **environment: str) -> tuple[int, list[str]]:
    """Set up, or see that nothing is to be done; return the status, and what was said."""
    environment = {"PATH": os.environ["PATH"], "PYTHON": f"{folder}/python-without-pip"} | environment
    command = ["make", "--no-print-directory", "setup", *variables]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("name", ["checkout", "with a space"])
@pytest.mark.parametrize(
    ("given", "expected"), [(None, ".venv"), ("other-name", "other-name"), ("{parent}/elsewhere", "../elsewhere")]
)
def test_the_environment_is_where_it_is_said_to_be(unset: Path, name: str, given: str | None, expected: str) -> None:
    folder = unset.rename(unset.with_name(name))
    status, used = set_up(folder, *([f"VENV={given.format(parent=unset.parent)}"] if given else []))
    assert (status, used) == (0, 2 * [(folder / expected).resolve()])
    assert (folder / expected / "ready").exists()


def test_the_environment_may_be_in_your_home(unset: Path) -> None:
    """Which zsh passes on as a tilde."""
    assert set_up(unset, "VENV=~/own") == (0, 2 * [unset / "own"])


@pytest.mark.parametrize("exists", [True, False])
def test_the_environment_may_be_a_link_to_another_disk(unset: Path, exists: bool) -> None:
    target = unset.with_name("scratch") / "venv"
    if exists:
        target.mkdir(parents=True)
    (unset / ".venv").symlink_to(target)
    status, used = set_up(unset)
    assert (status, [path.resolve() for path in used]) == (0, [target, target])
    assert (target / "ready").exists()
    assert (unset / ".venv").is_symlink()


def test_a_folder_with_other_files_is_not_made_an_environment(unset: Path) -> None:
    """As one of conda, whose Python and packages are not set-up's. Once `ready` is there, it is used as it is."""
    for name in ("elsewhere/bin/python", "elsewhere/conda-meta/history"):
        (unset / name).parent.mkdir(parents=True, exist_ok=True)
        (unset / name).write_text("#!/bin/sh\necho used $0\n")
        (unset / name).chmod(0o755)
    status, said = answer_of(unset, "plan", "VENV=elsewhere")
    assert (status, len(said)) == (2, 2)
    assert said[0].startswith(
        "error: elsewhere has other files and is no environment of Python's venv; give another VENV"
    )
    assert sorted(path.name for path in (unset / "elsewhere").iterdir()) == ["bin", "conda-meta"]
    (unset / "elsewhere/ready").touch()
    command = ["make", "--no-print-directory", "status", "setup", f"VENV={unset}/elsewhere"]
    done = subprocess.run(command, cwd=unset, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == 2 * [f"used {unset}/elsewhere/bin/python"]


@pytest.mark.parametrize("is_link", [True, False])
def test_the_environment_may_be_beside_the_folder_of_checkouts(unset: Path, is_link: bool) -> None:
    """As ~/venv of ~/src/bertline: the folder above it is no checkout."""
    home = unset.with_name("home")
    (home / "src").mkdir(parents=True)
    (home / "venv").mkdir()
    (home / "pyproject.toml").touch()
    folder = unset.rename(home / "src/bertline")
    if is_link:
        (folder / ".venv").symlink_to(home / "venv")
    status, used = set_up(folder, *([] if is_link else [f"VENV={home}/venv"]))
    assert (status, [path.resolve() for path in used]) == (0, 2 * [home / "venv"])


def make_checkout(folder: Path) -> None:
    for name in ("pyproject.toml", "envs/install.py", "src/bertline/__init__.py", ".venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_checkout_elsewhere_does_not_hinder_a_first_set_up(unset: Path) -> None:
    """One in /, as containers may have it, here in another folder; and one in a folder that `cd` knows."""
    other = unset.with_name("other")
    make_checkout(other)
    text = (unset / "Makefile").read_text()
    assert '"$$holder/' in text
    (unset / "Makefile").write_text(text.replace('"$$holder/', f'"$${{holder:-{other}}}/'))
    assert set_up(unset, CDPATH=str(other)) == (0, 2 * [unset / ".venv"])


def test_the_environment_of_another_checkout_is_not_set_up_again(unset: Path) -> None:
    other = unset.with_name("other")
    make_checkout(other)
    (unset / ".venv").symlink_to(other / ".venv")
    status, said = answer_of(unset, "setup")
    assert (status, len(said)) == (2, 2)
    assert said[0] == (
        f"error: .venv is the environment of {other}, whose bertline this one would replace; remove the link, or give "
        "another VENV (see envs/README.md)"
    )
    assert not (other / ".venv/ready").exists()
    (unset / ".venv").unlink()
    assert set_up(unset) == (0, 2 * [unset / ".venv"])


@pytest.mark.parametrize("options", [HOSTILE, "", "--index-url https://example.org *"])
@pytest.mark.parametrize("lock", [HOSTILE, "", "torch-cu126.txt"])
def test_a_further_set_up_has_the_options_of_the_first(checkout: Path, options: str, lock: str) -> None:
    given = [f"TORCH_OPTIONS={options}", f"TORCH_LOCK={lock}"]
    [first] = [call for call in calls_of(checkout, "setup", *given) if call[1][0] == "envs/install.py"]
    assert first[1] == ["envs/install.py", *(["--torch-lock", lock] if lock else []), *options.split()]
    os.utime(checkout / ".venv/ready", (0, 0))  # older than the locks
    *_, again = calls_of(checkout, "digests")[:-1]
    assert again == first
    os.utime(checkout / ".venv/ready", (0, 0))
    assert first in calls_of(checkout, "digests", *given)


@pytest.mark.parametrize("is_old", [True, False])
def test_other_options_for_a_finished_environment_are_one_line(checkout: Path, is_old: bool) -> None:
    calls_of(checkout, "setup", "TORCH_OPTIONS=--pre")
    if is_old:
        os.utime(checkout / ".venv/ready", (0, 0))
    (checkout / "calls").unlink()
    command = ["make", "setup", "TORCH_OPTIONS=--index-url x"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert said == ["error: .venv was set up with other TORCH_OPTIONS or TORCH_LOCK; delete it first"]
    assert done.returncode != 0
    assert not (checkout / "calls").exists()


@pytest.fixture
def stopped(checkout: Path) -> Path:
    """A checkout whose set-up was stopped."""
    (checkout / ".venv/ready").unlink()
    python = checkout / ".venv/bin/python"
    program = python.read_text()
    python.write_text("#!/bin/sh\necho True; [ $1 != envs/install.py ]\n")
    assert answer_of(checkout, "setup", "TORCH_OPTIONS=--pre", "TORCH_LOCK=own.txt")[0] != 0
    python.write_text(program)
    return checkout


def test_a_set_up_that_was_stopped_goes_on_with_its_options(stopped: Path) -> None:
    calls = calls_of(stopped, "setup")
    assert ["envs/install.py", "--torch-lock", "own.txt", "--pre"] in [arguments for _, arguments, _ in calls]


LOCKS = [f"envs/lock/{name}.txt" for name in ("build", "packages", "torch", "cuda")]


@pytest.mark.parametrize("name", ["pyproject.toml", "envs/constraints.txt", "envs/install.py", *LOCKS])
def test_an_environment_is_set_up_again_after_a_change_of_what_it_is_made_from(checkout: Path, name: str) -> None:
    os.utime(checkout / ".venv/ready", (2e9, 2e9))
    assert "envs/install.py" not in str(calls_of(checkout, "digests"))
    os.utime(checkout / name, (3e9, 3e9))
    assert "envs/install.py" in str(calls_of(checkout, "digests"))


def test_a_new_environment_does_not_make_the_sample_again(checkout: Path) -> None:
    os.utime(checkout / "resources/sample/sample.json", (0, 0))
    assert "make_demo_data.py" not in str(calls_of(checkout, "demo"))


def test_no_output_depends_on_the_order_of_a_set(checkout: Path) -> None:
    (checkout / ".venv/bin/python").write_text('#!/bin/sh\necho "$PYTHONHASHSEED" > seed\n')
    calls_of(checkout, "status")
    assert (checkout / "seed").read_text() == "0\n"


@pytest.mark.parametrize(("number", "given"), [("0", "1000"), ("1234", "1234"), ("10", "10")])
def test_an_image_is_for_your_user_and_for_none_that_is_root(checkout: Path, number: str, given: str) -> None:
    (checkout / ".venv/bin/id").write_text(f"#!/bin/sh\necho {number}\n")
    (checkout / ".venv/bin/id").chmod(0o755)
    [(_, arguments, _)] = calls_of(checkout, "image")
    assert {f"UID={given}", f"GID={given}"} <= set(arguments)


def test_other_options_are_refused_once_torch_is_there(stopped: Path) -> None:
    """Pip would keep it, and install what the other build needs. Before, a misspelled address can be corrected."""
    torch = stopped / ".venv/lib/python3.11/site-packages/torch-2.dist-info"
    torch.mkdir(parents=True)
    status, said = answer_of(stopped, "setup", "TORCH_OPTIONS=--index-url x")
    assert status != 0
    assert said[0] == "error: .venv was set up with other TORCH_OPTIONS or TORCH_LOCK; delete it first"
    torch.rmdir()
    calls = calls_of(stopped, "setup", "TORCH_OPTIONS=--index-url x")
    assert ["envs/install.py", "--index-url", "x"] in [arguments for _, arguments, _ in calls]


def test_options_that_stopped_a_set_up_are_left_out_if_none_are_given(stopped: Path) -> None:
    calls = calls_of(stopped, "setup", "TORCH_OPTIONS=")
    assert ["envs/install.py"] in [arguments for _, arguments, _ in calls]


def test_an_environment_without_a_record_of_its_options_has_none(checkout: Path) -> None:
    """As early versions left one, and a disk that was full."""
    assert answer_of(checkout, "setup") == (0, [])
    status, said = answer_of(checkout, "setup", "TORCH_OPTIONS=--pre")
    assert status != 0
    assert said[0] == "error: .venv was set up with other TORCH_OPTIONS or TORCH_LOCK; delete it first"


@pytest.mark.parametrize(("python", "is_refused"), [("other/bin/python", True), ("python3", False), (None, False)])
def test_a_finished_environment_says_what_it_is_and_keeps_its_python(
    checkout: Path, python: str | None, is_refused: bool
) -> None:
    for path, version in (("other/bin/python", "3.12"), (".venv/bin/python", "3.11"), (".venv/bin/python3", "3.11")):
        (checkout / path).parent.mkdir(parents=True, exist_ok=True)
        (checkout / path).write_text(f"#!/bin/sh\necho {version}\n")
        (checkout / path).chmod(0o755)
    command = ["make", "setup", *([f"PYTHON={python}"] if python else [])]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    line = f"error: .venv was set up with another Python than {python}; delete it first"
    assert said == ([line] if is_refused else [])
    assert (done.returncode != 0) is is_refused


def test_the_last_line_of_a_set_up_says_what_there_is(unset: Path) -> None:
    for _ in range(2):
        status, said = set_up_again(unset)
        assert (status, said[-1]) == (0, f".venv is ready: Python {platform.python_version()} with torch 2+cpu")
    assert len(said) == 1


@pytest.mark.parametrize("package", ["torch", "bertline"])
def test_an_environment_that_lost_its_packages_is_not_ready(unset: Path, package: str) -> None:
    set_up_again(unset)
    [folder] = unset.glob(f".venv/lib/python*/site-packages/{package}-*.dist-info")
    shutil.rmtree(folder)
    status, said = set_up_again(unset)
    assert status != 0
    assert said[0] == "error: .venv lost torch or bertline; delete it first"
    assert len(said) == 2


@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_an_environment_that_lost_its_python_is_one_line(unset: Path, is_old: bool, how: str) -> None:
    """As after an upgrade of the system, whose Python has a newer minor version."""
    set_up_again(unset)
    if is_old:
        os.utime(unset / ".venv/ready", (0, 0))
    if how == "removed":
        (unset / ".venv/bin/python").unlink()
        (unset / ".venv/bin/python").symlink_to("/nosuch/python3")
    else:
        [folder] = unset.glob(".venv/lib/python*")
        folder.rename(folder.with_name("python3.1"))
    status, said = set_up_again(unset)
    assert status != 0
    assert said[0] == (
        "error: the Python of .venv was removed, was replaced by another version, or is of another account; "
        "delete .venv first, or give another VENV"
    )
    assert len(said) == 2


def test_a_set_up_that_was_stopped_keeps_its_python(unset: Path) -> None:
    """Its packages would be those of one version, and its records of another."""
    set_up_again(unset)
    (unset / ".venv/ready").unlink()
    settings = (unset / ".venv/pyvenv.cfg").read_text()
    (unset / "other/bin/python").write_text("#!/bin/sh\necho 3.99\n")
    status, said = set_up_again(unset, "PYTHON=other/bin/python")
    assert status != 0
    assert said[0] == "error: .venv was set up with another Python than other/bin/python; delete it first"
    assert set_up_again(unset, PYTHON="other/bin/python")[0] == 0
    assert (unset / ".venv/pyvenv.cfg").read_text() == settings


def test_a_set_up_that_was_stopped_while_pip_came_makes_the_environment_again(unset: Path) -> None:
    """Half of pip can be imported, and nothing else be done with it."""
    set_up_again(unset)
    for name in ("ready", "begun", "bin/activate"):
        (unset / ".venv" / name).unlink()
    [packages] = unset.glob(".venv/lib/python*/site-packages")
    (packages / "pip.py").touch()
    assert set_up_again(unset)[0] == 0
    assert (unset / ".venv/bin/activate").exists()


@pytest.mark.parametrize("python", ["/bin/echo", "false", "nosuch"])
def test_a_program_that_is_no_python_sets_nothing_up(unset: Path, python: str) -> None:
    command = ["make", "setup", f"PYTHON={python}"]
    done = subprocess.run(command, cwd=unset, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"error: {python} needs version 3.11 or newer with venv" in done.stderr
    assert not (unset / ".venv").exists()


@pytest.mark.parametrize("given", ["", "a folder"])
def test_an_environment_that_make_cannot_name_is_one_line(unset: Path, given: str) -> None:
    done = subprocess.run(["make", "setup", f"VENV={given}"], cwd=unset, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"error: VENV={given}: give one folder, without spaces in its path" in done.stderr


def test_a_sweep_has_the_number_of_gpus_that_is_given(checkout: Path) -> None:
    [(_, arguments, _)] = calls_of(checkout, "sweep", "GPUS=0")
    assert arguments[arguments.index("--gpus") :][:2] == ["--gpus", "0"]
    [(_, arguments, _)] = calls_of(checkout, "sweep", environment={"GPUS": "0"})
    assert "--gpus" not in arguments


def test_every_variable_is_tested() -> None:
    text = (ROOT / "Makefile").read_text()
    data = re.search(r"^DATA := (.*?[^\\])\n", text, re.MULTILINE | re.DOTALL)[1].replace("\\\n", " ").split()
    switches = re.search(r"^SWITCHES := (.*)", text, re.MULTILINE)[1].split()
    assert set(data) == {*ONE_ARGUMENT, *WORDS, "$(SWITCHES)"}
    assert set(switches) == set(SWITCHES)
    optional = set(re.findall(r"^([A-Z_]+) \?=", text, re.MULTILINE))
    assert optional <= set(data)
    # Those of recipes are of make's own, or are only looked at.
    recipes = "\n".join(line for line in text.splitlines() if line.startswith(("\t", "@")))
    used = set(re.findall(r"(?<!\$)\$\(([A-Z_]+)\)", re.sub(r"\$\((?:if|filter)[^,]*,", "", recipes)))
    assert used <= {
        "VENV",
        "VENV_BIN",
        "TOOLS",
        "CURDIR",
        "PARALLEL",
        "PYTEST",
        "SETTINGS",
        "SNAKEMAKE_SETTINGS",
        "MAKEFILE_LIST",
        "OF_MINE",
        "GIVEN",
        "OF_DEVELOPERS",
        "LIST",
        "READY",
        "SWITCHES",
    } | {name for name in used if name in SWITCHES}


def answer_of(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """The status of make, called by a person, and what it says on stderr."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["prune", "RUN=demo", "DELETE=yes"], "make prune does not read RUN; it reads CONFIG SET DELETE"),
        (["demo", "PROFILE=profiles/slurm"], "make demo does not read PROFILE; it reads SET"),
        (["scores", "CONFIG=my.yaml"], "make scores does not read CONFIG; it reads no variable"),
        (["plan", "CONFIG="], "CONFIG is empty; name a file, or leave it out"),
        (["mine", "CONFIG="], "CONFIG is empty; name a file, or leave it out"),
        (
            ["image", "TORCH_LOCK=a"],
            "make image does not read TORCH_LOCK; it reads ENGINE TARGET TORCH_OPTIONS BUILD_OPTIONS",
        ),
        (
            ["setup", "BUILD_OPTIONS=a"],
            "make setup does not read BUILD_OPTIONS; it reads PYTHON TORCH_OPTIONS TORCH_LOCK",
        ),
        (["setup", "help", "PORT=1"], "make setup does not read PORT; it reads PYTHON TORCH_OPTIONS TORCH_LOCK"),
        (["track", "report", "RUN=demo"], "make track report does not read RUN; it reads RUNS"),
    ],
)
def test_a_variable_that_a_target_does_not_read_is_one_line(checkout: Path, arguments: list[str], line: str) -> None:
    status, said = answer_of(checkout, *arguments)
    assert (status != 0, len(said)) == (True, 1)
    assert f"error: {line}" in said[0]
    assert not (checkout / "calls").exists()


@pytest.mark.parametrize(
    "arguments",
    [["status", "prune", "DELETE=yes"], ["help", "CONFIG=my.yaml"], ["CONFIG=my.yaml"], ["plan", "TORCH_OPTIONS="]],
)
def test_a_variable_is_for_any_of_the_targets(checkout: Path, arguments: list[str]) -> None:
    assert answer_of(checkout, *arguments) == (0, [])


def test_an_empty_config_of_the_environment_matters_to_what_reads_it(checkout: Path) -> None:
    made, *_ = calls_of(checkout, "mine", "TEXT=a", environment={"CONFIG": ""})
    assert made[1][-1] == "mine.yaml"
    assert calls_of(checkout, "plan", environment={"CONFIG": ""}) == []


def test_what_each_target_reads_is_known(checkout: Path) -> None:
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z0-9-]+):.*## ", text, re.MULTILINE)
    found = re.findall(r"^\$\(call reads,([a-z0-9 -]+),([A-Z_ ]+)\)$", text, re.MULTILINE)
    known = {target: names.split() for of_targets, names in found for target in of_targets.split()}
    names = [*ONE_ARGUMENT, *WORDS, *SWITCHES]
    checked = [name for name in names if name not in ("PYTHON", "BERTLINE_TEST_DATA")]
    given = {name: "yes" if name in SWITCHES else "site.yaml" if name == "SITE" else "given" for name in checked}

    def shown(target: str, **variables: str) -> str:
        command = ["make", "--dry-run", target, *(f"{name}={value}" for name, value in (given | variables).items())]
        environment = {"PATH": os.environ["PATH"], "MAKELEVEL": "1"}  # of make itself: nothing is refused
        return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True).stdout

    for target in targets:
        if target in ("help", "setup"):
            continue
        recipe = shown(target)
        read = {name for name in checked if re.search(rf"\$\{{?{name}\b", recipe)}
        read |= {name for name in SWITCHES if shown(target, **{name: "no"}) != recipe}
        read |= {"CONFIG"} if target == "mine" else set()  # without OUTPUT
        assert set(known.get(target, ())) == read, target
    assert known.keys() <= set(targets)


def test_help_lists_what_users_need_above_what_developers_need() -> None:
    help_text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    users, developers = help_text.split("To work on bertline itself:")
    names = [re.findall(r"^([a-z0-9-]+) +[a-zA-Z]", part, flags=re.MULTILINE) for part in (users, developers)]
    described = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert sorted(names[0] + names[1]) == sorted(described)
    assert {"demo", "mine", "plan", "status", "ui"} <= set(names[0])
    assert {"test", "bench-data", "lint"} <= set(names[1])
    assert "make plan CONFIG=mine.yaml" in users


@pytest.mark.parametrize("target", ["plan", "targets", "status"])
def test_what_is_shown_of_the_demo_has_its_sample(target: str) -> None:
    for config, is_made in (("config/demo.yaml", True), ("mine.yaml", False)):
        command = ["make", "--dry-run", target, f"CONFIG={config}"]
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert ("make_demo_data.py" in shown) is (is_made and not (ROOT / "resources/sample/sample.json").exists())


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ("CONFG=my.yaml", True),
        ("TORCH_OPTION=--pre", True),
        ("BUILD_OPTION=--pull", True),
        ("MLFLOW_TRACKING_URI=x", False),
        ("TORCH_NCCL_BLOCKING_WAIT=1", False),
        ("TORCH_LOGS=dynamo", False),
    ],
)
def test_a_misspelled_variable_is_one_line(checkout: Path, given: str, refused: bool) -> None:
    done = subprocess.run(["make", "plan", given], cwd=checkout, capture_output=True, text=True, check=False)
    name = given.split("=")[0]
    said = [line for line in done.stderr.splitlines() if f"error: {name} is not a variable of this Makefile" in line]
    assert (done.returncode != 0, len(said)) == (refused, int(refused))
