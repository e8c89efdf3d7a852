"""What snakemake shows on a terminal: a line for each job by its name, progress, losses; everything with VERBOSE=1."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path

import psutil
import pytest
import yaml
from snakemake_runs import ROOT, SMALL_CONFIG, copy_workflow

pytestmark = pytest.mark.slow
STEPS = 600  # so many that Ctrl-C comes before the end, also on a busy machine
WEIGHTS = "results/phases/*/model.safetensors"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(
    folder: Path, *arguments: str, verbose: bool = False, ctrl_c_after: tuple[str, ...] = (), status: int | None = None
) -> str:
    """Run snakemake on a terminal of its own; return its output, without colours and movements of the cursor.

    Ctrl-C is pressed as soon as each of the patterns `ctrl_c_after` is shown, one after the other.
    """
    patterns, seen = list(ctrl_c_after), 0
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--configfile=small.yaml", *arguments]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"} | ({"VERBOSE": "1"} if verbose else {})

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, such as these tests, may ignore it

    given = {"stdout": terminal, "stderr": terminal, "stdin": terminal, "env": environment}
    given |= {"start_new_session": True, "preexec_fn": take_terminal}
    with subprocess.Popen(command, cwd=folder, **given) as process:
        os.close(terminal)
        shown = b""
        while True:
            try:
                block = os.read(master, 65536)
            except OSError:  # the last process that had the terminal has ended
                break
            if not block:
                break
            shown += block
            if patterns and (found := re.search(patterns[0].encode(), shown[seen:])):
                seen += found.end()
                patterns.pop(0)
                os.write(master, b"\x03")
    os.close(master)
    assert not patterns, shown
    if status is not None:
        assert process.returncode == status
    return ESCAPES.sub("", shown.decode("utf-8", "replace")).replace("\r", "\n")


def tiny_graph(folder: Path, rules: str) -> Path:
    """A workflow of a few lines, with the profile."""
    (folder / "Snakefile").write_text(rules)
    (folder / "small.yaml").write_text("{}\n")
    shutil.copytree(ROOT / "profiles/local", folder / "profiles/local")
    return folder


@pytest.fixture(scope="module")
def graph(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished graph whose first run trains anew, in a folder of its own."""
    folder = copy_workflow(tmp_path_factory.mktemp("display") / "graph")
    shutil.copytree(finished / "resources", folder / "resources")
    shutil.copytree(finished / "results/corpora", folder / "results/corpora", symlinks=True)
    shutil.copytree(finished / "results/datasets", folder / "results/datasets", symlinks=True)
    config = yaml.safe_load(yaml.safe_dump(SMALL_CONFIG))
    del config["runs"]["first"]["finetune"], config["runs"]["first"]["phases"]["phase2"]
    config["runs"]["first"]["phases"]["phase1"]["steps"] = STEPS
    (folder / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def trained(graph: Path) -> tuple[str, bytes]:
    """What the first run in this folder shows, and the weights of its training, which nothing disturbs."""
    shown = on_terminal(graph, "pretrain")
    (weights,) = [path.read_bytes() for path in graph.glob(WEIGHTS)]
    return shown, weights


def test_a_terminal_shows_a_line_for_each_job_progress_and_losses(graph: Path, trained: tuple[str, bytes]) -> None:
    shown, _ = trained
    assert re.search(r"\d\d:\d\d:\d\d  pretrain phase: first/phase1  (\d+ s|[\d:]+)\s", shown)
    assert re.search(rf"step [\d,]+ of {STEPS:,}, loss \d+\.\d+", shown)
    assert re.search(r"\d+ of \d+ jobs", shown)
    assert not re.search(r"rule pretrain_phase:|resources: |Select jobs", shown)
    (log,) = (graph / ".snakemake/log").iterdir()
    assert "rule pretrain_phase:" in log.read_text()
    assert "loss" in next((graph / "logs/pretrain_phase").iterdir()).read_text()
    assert "Nothing to be done" in on_terminal(graph, "pretrain")


def test_a_dry_run_on_a_terminal_lists_jobs_by_their_names_and_says_why(graph: Path) -> None:
    shown = on_terminal(graph, "--dry-run", "--forcerun=pretrain_phase", "pretrain")
    assert re.search(r"pretrain phase: first/phase1 +(missing|forced execution)", shown)
    assert "jobs would run" in shown or "job would run" in shown
    assert not re.search(r"rule pretrain_phase:|resources: |Select jobs|[0-9a-f]{16}", shown)
    assert "rule pretrain_phase:" in on_terminal(
        graph, "--dry-run", "--forcerun=pretrain_phase", "pretrain", verbose=True
    )


def test_a_dry_run_into_a_pipe_is_the_same_list(graph: Path) -> None:
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/local", "--configfile=small.yaml", "--dry-run"]
    given = {**os.environ, "VERBOSE": "0"}
    done = subprocess.run(
        [*command, "-F", "pretrain"], cwd=graph, env=given, capture_output=True, text=True, check=True
    )
    assert re.search(r"^pretrain phase: first/phase1 +(missing|forced execution)", done.stdout, re.MULTILINE)
    assert len(done.stdout.splitlines()) < 40
    assert done.stderr.splitlines() == ["Using profile profiles/local for setting default command line arguments."]
    failed = subprocess.run([*command, "nowhere"], cwd=graph, env=given, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "nowhere: there is no target of this name" in failed.stdout + failed.stderr


def test_commands_that_run_no_graph_show_what_snakemake_says(tmp_path: Path) -> None:
    folder = tiny_graph(tmp_path, 'rule all:\n    output: "a.txt"\n    shell: "touch {output}"\n')
    assert "Unlocked working directory." in on_terminal(folder, "--unlock", status=0)
    assert "Nothing" not in on_terminal(folder, status=0)
    assert "Would delete a.txt" in on_terminal(folder, "--delete-all-output", "--dry-run", status=0)
    assert "Deleting a.txt" in on_terminal(folder, "--delete-all-output", status=0)


def test_a_job_without_its_outputs_has_failed(tmp_path: Path) -> None:
    folder = tiny_graph(
        tmp_path,
        """
rule all:
    input: "late.txt"
rule early:
    output: "early.txt"
    shell: "true"
rule late:
    output: "late.txt"
    shell: "sleep 5; touch {output}"
""",
    )
    shown = on_terminal(folder, "--latency-wait=1", "--cores=2", "early.txt", "late.txt", status=1)
    assert re.search(r"\d\d:\d\d:\d\d  early  failed after \d s", shown)
    drawings = re.split(r"━.*", shown)
    assert any("early" in drawing for drawing in drawings)
    assert "early" not in [drawing for drawing in drawings if re.search(r"^late +\d s$", drawing, re.MULTILINE)][-1]


def test_groups_of_a_cluster_are_groups_of_the_schedule(tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text("""
from snakemake_logger_plugin_bertline.schedule import remaining_jobs
rule all:
    input: expand("{n}.txt", n=range(4))
rule make:
    output: "{n}.txt"
    group: "made"
    shell: "touch {output}"
onstart:
    rest = remaining_jobs(workflow)
    groups = [job.group for job in rest.jobs if job.rule == "make"]
    print("groups of", sorted(map(groups.count, set(groups))), "on", rest.slots)
    print("ungrouped", [job.rule for job in rest.jobs if job.group is None])
    sys.exit()
""")
    command = [sys.executable, "-m", "snakemake", "--executor=cluster-generic", "--cluster-generic-submit-cmd=sh"]
    options = ["--jobs=3", "--group-components", "made=3"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "groups of [1, 3] on 3\n" in done.stdout
    assert "ungrouped ['all']\n" in done.stdout


def test_what_has_run_before_has_a_time_left_from_the_start(graph: Path) -> None:
    again = ("--forcerun=trigram_baseline", "--until=trigram_baseline")
    on_terminal(graph, *again)
    (benchmark,) = (graph / "benchmarks/trigram_baseline").iterdir()
    benchmark.write_text("s\tcpu_time\n300\t300\n")
    assert "1 job would run, in about 0:05:00." in on_terminal(graph, "--dry-run", *again)
    assert re.search(r"0 of \d jobs, \d+ %, about 0:0[45]:\d\d left", on_terminal(graph, *again))


def test_verbose_shows_everything(graph: Path) -> None:
    shown = on_terminal(graph, "--forcerun=trigram_baseline", "--until=trigram_baseline", verbose=True)
    assert "rule trigram_baseline:" in shown
    assert "resources:" in shown


def test_ctrl_c_saves_and_the_same_command_ends_with_the_same_weights(graph: Path, trained: tuple[str, bytes]) -> None:
    _, straight = trained
    for path in graph.glob("results/phases/*"):
        shutil.rmtree(path)
    shown = on_terminal(graph, "pretrain", ctrl_c_after=(rf"step [1-9][\d,]* of {STEPS:,}",), status=1)
    assert "Ctrl-C: trainings save and end; press it again to end at once, without saving" in shown
    assert re.search(r"pretrain phase: first/phase1  stopped after", shown)
    saved = re.search(r"pretrain_phase: stopped: step (\d+) is saved; the same command continues", shown)
    assert 0 < int(saved[1]) < STEPS
    assert not re.search("Traceback|Error", shown)
    assert not [*graph.glob(WEIGHTS)]
    on_terminal(graph, "pretrain", status=0)
    assert [path.read_bytes() for path in graph.glob(WEIGHTS)] == [straight]
    assert any(f"at step {saved[1]}" in log.read_text() for log in (graph / "logs/pretrain_phase").iterdir())


def test_a_second_ctrl_c_ends_at_once(graph: Path) -> None:
    for path in graph.glob("results/phases/*"):
        shutil.rmtree(path)
    on_terminal(graph, "pretrain", ctrl_c_after=(rf"step [1-9][\d,]* of {STEPS:,}", "Ctrl-C: trainings save"))
    assert not [*graph.glob(WEIGHTS)]
    assert not [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(graph)]


def test_the_reason_of_a_failure_is_on_the_terminal(graph: Path) -> None:
    for samples in graph.glob("results/datasets/*/seq128/00000.h5"):
        samples.write_bytes(samples.read_bytes()[:-1000])
    config = yaml.safe_load((graph / "small.yaml").read_text())
    config["runs"]["first"]["phases"]["phase1"]["learning_rate"] = 2e-3
    (graph / "small.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    shown = on_terminal(graph, "pretrain")
    assert re.search(r"pretrain phase: first/phase1  failed after", shown)
    # What is no line of a job and no drawing of the progress.
    is_drawn = re.compile(r"━|╸|╺|  [\d:]+( s)?$|step [\d,]+ of|^Using profile|^Building DAG")
    said = [line for line in shown.split("\n") if line.strip() and not is_drawn.search(line)]
    failed, *others, reason = said
    assert "first/phase1  failed after" in failed
    assert re.search(r"pretrain_phase: error: .*00000.h5", reason)
    assert others == []
