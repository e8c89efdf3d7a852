"""A job is submitted once, whatever Slurm's controller says or leaves unsaid."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from bertline.cluster import slurm_submission, waiting

ROOT = Path(__file__).parents[2]
WRAPPER = ROOT / "workflow/slurm/sbatch"
ARGUMENTS = ("--parsable", "--job-name=bertline_run", "--comment", "rule_a")
TIMEOUT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy "
    "(job submit limit, user's size and/or time limits)"
)

# Accepts a job as number 101, 102... If error.1 exists, the first call prints it and fails; lost.1 has squeue's line
# for a job that was accepted all the same.
SBATCH = """#!/bin/sh
cd "$(dirname "$0")"
call=$(mktemp call.XXXXXX); calls=$(ls call.* | wc -l)
[ ! -e lost.$calls ] || cat lost.$calls >> waiting
[ ! -e error.$calls ] || { cat error.$calls >&2; exit 1; }
echo $((100 + calls))
"""
# Finished jobs are listed on request only.
SQUEUE = """#!/bin/sh
cd "$(dirname "$0")"
case "$*" in *--states=all*) cat finished;; esac
cat waiting
"""


class Slurm:
    """Programs that answer as Slurm's do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name, script in (("sbatch", SBATCH), ("squeue", SQUEUE)):
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
        self.lists(waiting="", finished="")

    def lists(self, **jobs: str) -> None:
        for state, lines in jobs.items():
            (self.folder / state).write_text(lines)

    def fails(self, call: int, error: str, *, accepted: str = "") -> None:
        (self.folder / f"error.{call}").write_text(f"{error}\n")
        (self.folder / f"lost.{call}").write_text(accepted)

    @property
    def calls(self) -> int:
        return len(list(self.folder.glob("call.*")))


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    cluster = Slurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{cluster.folder}:{os.environ['PATH']}")
    monkeypatch.setenv(slurm_submission.SUBMITTED, str(tmp_path / "submitted"))
    monkeypatch.setenv(slurm_submission.MESSAGES, str(tmp_path / "messages"))
    monkeypatch.setattr(waiting, "MAX_PAUSE", 0)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return cluster


@pytest.fixture
def submit(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, str, str]]:
    def submitted() -> tuple[int, str, str]:
        status = slurm_submission.submit(ARGUMENTS, wrapper=WRAPPER)
        return status, *capsys.readouterr()

    return submitted


@pytest.mark.parametrize(
    "error",
    [
        "Unable to contact slurm controller (connect failure)",
        "Unexpected missing socket error",
        "Message receive failure",
        "Message send failure",
        "Communication connection failure",
        "Insane message length",
        "Protocol authentication error",
        "Rate limit exceeded, please retry later",
        "Resource temporarily unavailable",
        "Could not establish a configuration source",
    ],
)
def test_a_submission_waits_for_a_controller_that_is_away_or_busy(
    slurm: Slurm, submit: Callable, tmp_path: Path, error: str
) -> None:
    slurm.fails(1, f"sbatch: error: Batch job submission failed: {error}")
    assert submit() == (0, "102\n", "")
    (message,) = (tmp_path / "messages").read_text().splitlines()
    assert message.startswith("Slurm's controller does not answer, a submission waits: ")
    assert message.endswith(error)


def test_a_submission_waits_until_the_user_may_have_another_job(slurm: Slurm, submit: Callable, tmp_path: Path) -> None:
    slurm.lists(waiting="7 RUNNING rule_b\n")
    slurm.fails(1, f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}")
    assert submit() == (0, "102\n", "")
    (message,) = (tmp_path / "messages").read_text().splitlines()
    assert "no more jobs may be in the queue, a submission waits: sbatch: error: QOSMaxSubmitJob" in message


@pytest.mark.parametrize(
    ("limit", "waiting"), [("AssocMaxSubmitJobLimit", ""), ("QOSMaxWallDurationPerJobLimit", "7 RUNNING rule_b\n")]
)
def test_a_limit_that_no_job_of_the_user_lifts_is_an_error_at_once(
    slurm: Slurm, submit: Callable, tmp_path: Path, limit: str, waiting: str
) -> None:
    slurm.lists(waiting=waiting)
    slurm.fails(1, f"sbatch: error: {limit}\n{POLICY}")
    assert submit() == (1, "", f"sbatch: error: {limit}\n{POLICY}\n")
    assert slurm.calls == 1
    # Of a group of jobs the executor's message is lost.
    assert (tmp_path / "messages").read_text() == f"sbatch refused rule_a: sbatch: error: {limit} {POLICY}\n"


def test_a_refusal_is_in_snakemakes_log(slurm: Slurm, caplog: pytest.LogCaptureFixture) -> None:
    slurm.fails(1, "sbatch: error: Batch job submission failed: Invalid qos specification")
    slurm_submission.use_waiting_sbatch(WRAPPER.parent)
    subprocess.run(["sbatch", *ARGUMENTS], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    end = time.monotonic() + 10
    while not caplog.messages and time.monotonic() < end:
        time.sleep(0.05)
    assert caplog.record_tuples == [
        (
            "snakemake.logging",
            logging.WARNING,
            "sbatch refused rule_a: sbatch: error: Batch job submission failed: Invalid qos specification",
        )
    ]


@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_message_that_snakemake_does_not_print_is_printed(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], is_quiet: bool
) -> None:
    """As with --quiet all: a submission may wait for a day."""
    logger, printed = logging.getLogger("snakemake.logging"), io.StringIO()
    stream = logging.StreamHandler(printed)
    stream.addFilter(lambda record: not is_quiet)
    logger.addHandler(stream)
    slurm_submission.use_waiting_sbatch(WRAPPER.parent)
    Path(os.environ[slurm_submission.MESSAGES]).write_text("100 % full, a submission waits\n")
    said, end = "", time.monotonic() + 10
    while not (said or printed.getvalue()) and time.monotonic() < end:
        time.sleep(0.05)
        said += capsys.readouterr().err
    logger.removeHandler(stream)
    line = "100 % full, a submission waits\n"
    assert (said, printed.getvalue()) == ((line, "") if is_quiet else ("", line))


def test_after_a_day_what_slurm_said_is_the_error(
    slurm: Slurm, submit: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_SECONDS", 0)
    slurm.fails(1, TIMEOUT)
    assert submit() == (1, "", f"{TIMEOUT}\n")


@pytest.mark.parametrize(
    ("listed", "number", "calls"),
    [
        ({"waiting": "7 PENDING rule_a\n"}, 7, 1),
        # A short job may be over when the controller answers again.
        ({"finished": "7 COMPLETED rule_a\n"}, 7, 1),
        ({"finished": "7 FAILED rule_a\n"}, 7, 1),
        ({"finished": "7 CANCELLED rule_a\n"}, 102, 2),
        ({"waiting": "7 RUNNING rule_a_wildcards_b\n8 RUNNING \n"}, 102, 2),
        # On nodes of several kinds.
        ({"waiting": "7+0 RUNNING rule_a\n7+1 RUNNING rule_a\n"}, 7, 1),
    ],
)
def test_a_job_that_was_accepted_without_an_answer_is_not_submitted_again(
    slurm: Slurm, submit: Callable, listed: dict[str, str], number: int, calls: int
) -> None:
    slurm.lists(**listed)
    slurm.fails(1, TIMEOUT)
    assert submit() == (0, f"{number}\n", "")
    assert slurm.calls == calls


def test_an_earlier_job_with_the_same_comment_is_not_taken_for_the_lost_one(slurm: Slurm, submit: Callable) -> None:
    """Such as an earlier attempt, or another group of jobs of the same rules."""
    assert submit() == (0, "101\n", "")
    slurm.lists(finished="101 FAILED rule_a\n")
    slurm.fails(2, TIMEOUT)
    assert submit() == (0, "103\n", "")
    slurm.lists(waiting="103 RUNNING rule_a\n")
    slurm.fails(4, TIMEOUT, accepted="104 PENDING rule_a\n")
    assert submit() == (0, "104\n", "")
    assert slurm.calls == 4


def test_submissions_at_the_same_time_find_each_its_own_job(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    for call in (1, 2):
        slurm.fails(call, TIMEOUT, accepted=f"{100 + call} PENDING rule_a\n")
    with ThreadPoolExecutor(2) as threads:
        statuses = threads.map(lambda _: slurm_submission.submit(ARGUMENTS, wrapper=WRAPPER), range(2))
    assert list(statuses) == [0, 0]
    assert sorted(capsys.readouterr().out.split()) == ["101", "102"]


def test_a_link_to_the_wrappers_folder_is_not_taken_for_slurms(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrapper = tmp_path / "wrapper/sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text("#!/bin/sh\necho called again >&2; exit 1\n")
    wrapper.chmod(0o755)
    (tmp_path / "link").symlink_to(wrapper.parent)
    monkeypatch.setenv("PATH", f"{tmp_path}/link:{wrapper.parent}:{os.environ['PATH']}")
    assert slurm_submission.submit(ARGUMENTS, wrapper=wrapper) == 0
    assert slurm_submission.submit(ARGUMENTS, wrapper=tmp_path / "link/sbatch") == 0
    assert capsys.readouterr() == ("101\n102\n", "")


def test_a_submission_waits_as_long_as_the_executor_asks_for_the_state_of_a_job() -> None:
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    seconds = profile["slurm-status-attempts"] / profile["max-status-checks-per-second"]
    assert seconds == waiting.MAX_SECONDS


def test_snakemake_that_ignores_ctrl_c_goes_on_ignoring_it(slurm: Slurm) -> None:
    """As in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        slurm_submission.use_waiting_sbatch(WRAPPER.parent)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_snakemakes_processes_share_the_list_of_submitted_jobs(slurm: Slurm) -> None:
    slurm_submission.use_waiting_sbatch(WRAPPER.parent)
    for number in ("101\n", "102\n"):
        done = subprocess.run(
            ["sbatch", *ARGUMENTS], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
        assert done.stdout == number
    assert Path(os.environ[slurm_submission.SUBMITTED]).read_text() == "101\n102\n"


def test_snakemakes_processes_and_jobs_get_no_choices_for_the_lists_of_slurm(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor asks squeue or sacct for its jobs."""
    for name in ("SQUEUE_PARTITION", "SACCT_LOCAL", "SLURM_CLUSTERS"):
        monkeypatch.setenv(name, "mine")
    slurm_submission.use_waiting_sbatch(WRAPPER.parent)
    assert [name for name, value in os.environ.items() if value == "mine"] == ["SLURM_CLUSTERS"]


@pytest.fixture
def waiting_sbatch(slurm: Slurm) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Start the sbatch that snakemake finds, as snakemake does, but in a process group of its own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    slurm_submission.use_waiting_sbatch(WRAPPER.parent)
    yield lambda: subprocess.Popen(
        ["sbatch", *ARGUMENTS],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)


def interrupt_snakemake() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_after_ctrl_c_no_job_is_submitted(slurm: Slurm, waiting_sbatch: Callable) -> None:
    """Canceled jobs make place for others below the user's limit."""
    slurm.lists(waiting="7 RUNNING rule_b\n")
    slurm.fails(1, f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}")
    first, second = waiting_sbatch(), waiting_sbatch()
    while not slurm.calls:
        time.sleep(0.05)
    interrupt_snakemake()
    third = waiting_sbatch()
    for process in (first, second, third):
        assert process.communicate(timeout=240) == ("", "snakemake has ended; this job is not submitted\n")
        assert process.returncode == 1
    assert slurm.calls == 1


def test_a_job_that_is_accepted_after_ctrl_c_is_canceled(slurm: Slurm, waiting_sbatch: Callable) -> None:
    """Slurm's answer may take minutes."""
    for name, script in {
        "sbatch": "until [ -e interrupted ]; do sleep 0.1; done; echo 101",
        "scancel": 'echo "$*" >> canceled',
    }.items():
        (slurm.folder / name).write_text(f"""#!/bin/sh\ncd "$(dirname "$0")"\ntouch called\n{script}\n""")
        (slurm.folder / name).chmod(0o755)
    process = waiting_sbatch()
    while not (slurm.folder / "called").exists():
        time.sleep(0.05)
    interrupt_snakemake()
    process.send_signal(signal.SIGINT)  # as a terminal does
    (slurm.folder / "interrupted").touch()
    assert process.communicate(timeout=240) == ("", "snakemake has ended; its new job 101 was canceled\n")
    assert process.returncode == 1
    assert (slurm.folder / "canceled").read_text() == "101\n"


@pytest.mark.parametrize(
    "printed",
    [
        "You have 42 hours left\n4711",
        "2026-12-01: /scratch is purged\n42 jobs wait\n4711;cluster",
        "42%\nSubmitted batch job 4711\n",
        "4711\nYou have 42 hours left",
        "Submitted batch job 4711 on cluster c2",
    ],
)
def test_the_number_of_a_job_is_a_line_of_its_own(slurm: Slurm, submit: Callable, tmp_path: Path, printed: str) -> None:
    """A site's own sbatch may print more."""
    (slurm.folder / "sbatch").write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
    assert submit() == (0, "4711\n", "")
    assert (tmp_path / "submitted").read_text() == "4711\n"


def test_after_ctrl_c_no_other_number_than_that_of_the_job_is_canceled(
    slurm: Slurm, submit: Callable, tmp_path: Path
) -> None:
    (slurm.folder / "sbatch").write_text("#!/bin/sh\necho closed >> ../submitted\necho You have 42 hours left\n")
    (slurm.folder / "scancel").write_text("#!/bin/sh\ntouch canceled\n")
    for name in ("sbatch", "scancel"):
        script = (slurm.folder / name).read_text().replace("\n", '\ncd "$(dirname "$0")"\n', 1)
        (slurm.folder / name).write_text(script)
        (slurm.folder / name).chmod(0o755)
    said = "snakemake has ended; its new job may be in the queue; look for it there and cancel it "
    assert submit() == (1, "", f"{said}(sbatch: You have 42 hours left)\n")
    assert not (slurm.folder / "canceled").exists()


@pytest.mark.parametrize(
    ("squeue", "scancel", "said", "canceled"),
    [
        (SQUEUE, "", "snakemake has ended; its new job 88 was canceled", ["88"]),
        ("#!/bin/sh\nexit 1\n", "", "snakemake has ended; this job may be in the queue as bertline_run", []),
        (
            SQUEUE,
            "echo 'scancel: error: Access denied' >&2; exit 1",
            "snakemake has ended; its new job 88 was not canceled (scancel: error: Access denied); cancel it",
            ["88"],
        ),
    ],
)
def test_after_ctrl_c_a_job_whose_answer_was_lost_is_looked_up_and_canceled(
    slurm: Slurm, waiting_sbatch: Callable, squeue: str, scancel: str, said: str, canceled: list[str]
) -> None:
    (slurm.folder / "squeue").write_text(squeue)
    (slurm.folder / "scancel").write_text(f"""#!/bin/sh\ncd "$(dirname "$0")"\necho "$*" >> canceled\n{scancel}\n""")
    (slurm.folder / "scancel").chmod(0o755)
    (slurm.folder / "canceled").touch()
    slurm.fails(1, TIMEOUT, accepted="88 PENDING rule_a\n")
    process = waiting_sbatch()
    while not slurm.calls:
        time.sleep(0.05)
    interrupt_snakemake()
    output, errors = process.communicate(timeout=240)
    (line,) = errors.splitlines()
    assert (output, process.returncode) == ("", 1)
    assert line.startswith(said)
    assert (slurm.folder / "canceled").read_text().split() == canceled
    assert slurm.calls == 1
