"""The graph and the launcher on a real Grid Engine of one host."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grid_engine
import pytest
from test_schedulers import Cluster, config, start_training, wait_until

from bertline.cluster import scheduler_jobs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables with which Grid Engine's commands find it."""
    if reason := grid_engine.why_not():
        pytest.skip(reason)
    with grid_engine.running(tmp_path_factory.mktemp("grid-engine") / "root") as environment:
        yield environment


class RealCluster(Cluster):
    """A copy of the workflow, and the real commands on the PATH."""

    def __init__(self, folder: Path, programs: dict[str, str]) -> None:
        self.given = programs
        super().__init__(folder, "sge")

    def use(self, kind: str) -> None:
        self.kind = kind
        self.environment = {**os.environ, **self.given, "NO_COLOR": "1"}


def test_a_cancelled_training_saves_and_the_next_one_ends_it(
    programs: dict[str, str], sample: Path, tmp_path: Path
) -> None:
    """A book through the queue to weights, with qdel in between: SIGUSR2, and SIGKILL later."""
    cluster = RealCluster(tmp_path, programs)
    shutil.copytree(sample, cluster.folder / "resources/sample")
    weights = cluster.write_config(config(steps=1_500))
    cluster.write_site({})
    site = cluster.folder / "site.yaml"
    # h_vmem limits addresses, of which PyTorch reserves far more than it uses; there are no projects.
    text = site.read_text().replace("one_node:", "memory: mem_free\n  one_node:").replace("account: ours\n", "")
    site.write_text(text.replace("cpu: small", "cpu: large"))
    cluster.run("encode")
    process = start_training(cluster, weights)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0, output
    wait_until(lambda: not queue(programs), "end of the job")
    log = (cluster.folder / weights).with_name("checkpoints") / "training.log"
    (saved,) = re.findall(r"asked to stop: step (\d+) is saved", log.read_text())
    cluster.run(weights)
    assert f"at step {saved}" in log.read_text()
    assert (cluster.folder / weights).exists()


def queue(programs: dict[str, str]) -> str:
    return subprocess.run(["qstat"], env={**os.environ, **programs}, capture_output=True, text=True, check=True).stdout


def test_cancelled_jobs_of_which_one_had_ended_do_not_run_on(
    programs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of snakemake. qdel fails then, although it cancels the other one."""
    for name, value in programs.items():
        monkeypatch.setenv(name, value)
    command = ["qsub", "-terse", "-b", "y", "-o", "/dev/null", "-j", "y", "sleep", "100"]
    number = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setattr(scheduler_jobs, "unfinished_at_the_end", lambda logs, ended: ["99999", number])
    scheduler_jobs.cancel_jobs_at_the_end()
    wait_until(lambda: not queue(programs), "end of the job")


def test_ranks_are_started_on_another_node_with_qrsh(programs: dict[str, str], tmp_path: Path) -> None:
    """The job's file of hosts is ours: the second one is this machine under its other name."""
    (tmp_path / "hosts").write_text("127.0.0.1 1 large@127.0.0.1 UNDEFINED\nlocalhost 1 large@localhost UNDEFINED\n")
    (tmp_path / "logs/sge").mkdir(parents=True)
    (tmp_path / "rank.py").write_text(
        "import os, pathlib\n"
        "names = ('WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'OMP_TEST')\n"
        "pathlib.Path(f\"rank-{os.environ['RANK']}\").write_text(' '.join(os.environ[name] for name in names))\n"
    )
    launch = ROOT / "workflow/scripts/launch.py"
    (tmp_path / "job.sh").write_text(
        f"export PATH={programs['PATH']} LD_LIBRARY_PATH={programs['LD_LIBRARY_PATH']} PYTHONPATH={ROOT / 'src'}\n"
        f"export PE_HOSTFILE={tmp_path}/hosts OMP_TEST=here\n"
        f"exec {sys.executable} {launch} --nodes 2 -- rank.py\n"
    )
    command = ["qsub", "-sync", "y", "-cwd", "-S", "/bin/sh", "-j", "y", "-o", tmp_path / "log", "-pe", "smp", "2"]
    given = {**os.environ, **programs}
    subprocess.run([*command, tmp_path / "job.sh"], cwd=tmp_path, env=given, timeout=120, check=False)
    log = (tmp_path / "log").read_text()
    assert "node 1 of 2: localhost" in log
    ranks = {path.name: path.read_text() for path in tmp_path.glob("rank-*")}
    assert ranks == {"rank-0": "2 0 127.0.0.1 here", "rank-1": "2 0 127.0.0.1 here"}, log
