"""Reasons for failed Snakemake jobs, printed below the output of a run, and the report of what succeeded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from bertline.cluster import slurm_submission
from bertline.files import CHECKOUT
from bertline.results import paths
from bertline.training.contract import SAVED_STEP

UNFINISHED = Path(paths.REPORT.format(fingerprint="unfinished"))
# Snakemake's lines about a failed job: its rule, an executor's message, then, indented, its number and its logs.
FAILED = re.compile(
    r"^Error in rule (\S+):\n(?:(?![ \t]+jobid: ).*\n)*[ \t]+jobid: (\d+)\n"
    r"(?:[ \t].*\n)*?[ \t]+log: (.+?) \(check log file",
    re.MULTILINE,
)
# About a failed group: its name, Slurm's log, and all its jobs, because Snakemake does not know which of them failed.
FAILED_GROUP = re.compile(
    r"^    message: Error in group (\S+)\n(?:    log: (.+) \(check log file.*\n)?    jobs:\n((?:        .*\n)+)",
    re.MULTILINE,
)
MEMBER = re.compile(r"^ +rule (\S+):\n +jobid: (\d+)\n(?: +output: .*\n)? +log: (.+?) \(check log file", re.MULTILINE)
# About a job whose command succeeded, but did not make all of its files; each of these has a line.
WITHOUT_OUTPUT = re.compile(
    r"^MissingOutputException in rule (\S+) in file .*\nJob (\d+) +completed .*\n((?:.+ \(missing .*\n)+)", re.MULTILINE
)
# About a command that was killed, with the path of its log; and Slurm's words for that, in a job's state or log.
KILLED = re.compile(r"^Command '(.*)' (?:returned non-zero exit status 137|died with <Signals\.SIGKILL)", re.MULTILINE)
KILLED_BY_SLURM = re.compile(
    r"status is: 'OUT_OF_MEMORY'|^(?:slurmstepd|srun).*(?:exceeded memory limit|oom[-_ ]kill|Out Of Memory)",
    re.MULTILINE,
)
# Slurm's words for the end of a job's walltime.
TIMED_OUT = re.compile(r"status is: 'TIMEOUT'|^slurmstepd.* DUE TO TIME LIMIT", re.MULTILINE)
# Rules whose walltime and memory are those of site.yaml.
TRAININGS = ("pretrain_phase", "finetune_task")
# The executor's message about a job that Slurm did not accept. It has none about a group; the wrapper of sbatch has.
REFUSED = re.compile(r"SLURM sbatch failed\. The error message was '(.*?)'\.\n", re.DOTALL)
REFUSED_GROUP = rf"^{slurm_submission.REFUSED} rule_{{name}}_.*?: (.+)$"
CLOCKS_DIFFER = 60.0  # seconds between this machine's clock and that of the files
TRACEBACK = "Traceback (most recent call last)"
# Snakemake's line about Ctrl-C.
INTERRUPTED = "Terminating processes on user request"
# About SIGTERM, after which it starts no job. It prints that inside a Slurm job, too.
TOLD_TO_END = "Will exit after finishing currently running jobs (scheduler)"


class Group(NamedTuple):
    """A failed group: its name, the logs of its jobs, and what to say if none of them has an error."""

    name: str
    members: frozenset[str]
    explanation: str


class Failure(NamedTuple):
    """A job that failed, or one of a group that did: where Snakemake says so, and what the job's log does not say."""

    position: int
    rule: str
    number: str
    log: str
    explanation: str
    slurm_log: str = ""
    group: Group | None = None
    refusal: str = ""  # if Slurm did not accept it: its log is that of an earlier attempt or run


def read_reasons(snakemake_logs: list[Path]) -> list[str]:
    """Return a line for each job that failed and did not succeed later: rule, last line of its log, path of the log.

    Of a group, only jobs whose log has an error have a line; if there is none, the group has one. That Slurm refused an
    attempt comes after the reason of the last one that ran. Of the jobs that Ctrl-C ended, only those with an error and
    those that saved have a line. If there is no line at all, and was no Ctrl-C, one says that snakemake was told to
    end, or names its log.
    """
    said, began = "".join(map(_read, snakemake_logs)), _began(snakemake_logs)
    interrupted = said.find(INTERRUPTED)
    found: dict[str, str] = {}
    groups: dict[frozenset[str], str] = {}
    ran: dict[str | frozenset[str], str] = {}  # the reasons without refusals
    done_later = set()
    for failure in _failures(said):
        rule, log = failure.rule, failure.log
        # Inside a Slurm job every job has number 0, and its failure is printed a second time.
        if failure.number != "0" and f"\nFinished jobid: {failure.number} " in said[failure.position :]:
            done_later.add(log)
        is_after_ctrl_c = 0 <= interrupted < failure.position
        if failure.refusal:
            if is_after_ctrl_c:
                continue
            if failure.group and log not in ran:
                name, members, _ = failure.group
                groups[members] = _with_refusal(f"group {name}", ran.get(members), failure.refusal)
            else:
                found[log] = _with_refusal(rule, ran.get(log), failure.refusal)
            continue
        said_by_job = _read(Path(log), since=began)
        words = _last_line(said_by_job)
        if is_after_ctrl_c:
            if saved := SAVED_STEP.search(words):
                words = f"stopped: {saved[1]}; the same command continues"
            elif not words.startswith("error: "):
                continue
        elif not words.startswith("error: ") and TRACEBACK not in said_by_job:
            if failure.group and not failure.explanation:
                name, members, explanation = failure.group
                groups[members] = ran[members] = f"group {name}: {explanation}"
                continue
            saved = SAVED_STEP.search(words)
            if failure.explanation:
                words = f"{failure.explanation}; {saved[1]}" if saved else failure.explanation
        place = log if said_by_job.strip() else failure.slurm_log or log
        found[log] = ran[log] = f"{rule}: {words} ({place})"
    reasons = [reason for log, reason in found.items() if log not in done_later]
    for members, reason in groups.items():
        if members.isdisjoint(found) and not members <= done_later:
            reasons.append(reason)
    if not reasons and interrupted < 0:
        if TOLD_TO_END in said:
            return [
                "snakemake was told to end (SIGTERM), and has waited for its running jobs; the same command continues"
            ]
        return [f"no log of a job says why this run failed; Snakemake's own: {', '.join(map(str, snakemake_logs))}"]
    return reasons


def _with_refusal(name: str, before: str | None, refusal: str) -> str:
    """Return the reason of a refused job after that of its last attempt that ran."""
    return f"{before}; then {refusal}" if before else f"{name}: {refusal}"


def _failures(said: str) -> list[Failure]:
    """Return the failures of which Snakemake's log tells, in its order."""
    explanations: dict[str, str] = {}
    found: list[Failure] = []
    slurm_logs = _slurm_logs(said)
    for match in WITHOUT_OUTPUT.finditer(said):
        rule, number, lines = match.groups()
        log = _log_of(rule, number, said[: match.start()])
        files = ", ".join(line.partition(" (missing ")[0] for line in lines.splitlines())
        explanations[log] = f"ended without an error, but did not make {files} within --latency-wait"
        found.append(Failure(match.start(), rule, number, log, explanations[log]))
    killed = KILLED.findall(said)

    def explain(rule: str, log: str, told: str) -> str:
        if by_slurm := _explain_end([rule], told):
            return by_slurm
        if any(f" {log} " in f"{command} " for command in killed):
            return memory_ran_out(rule)
        return explanations.get(log, "")

    for match in FAILED.finditer(said):
        rule, number, logs = match.groups()
        log = logs.split(", ")[0]  # the rule's own; Slurm's comes after it
        slurm_log = slurm_logs.get(log, "")
        refused = REFUSED.search(match[0])
        refusal = f"sbatch refused it: {' '.join(refused[1].split())}" if refused else ""
        explanation = explain(rule, log, f"{match[0]}\n{_read(Path(slurm_log))}")
        found.append(Failure(match.start(), rule, number, log, explanation, slurm_log, refusal=refusal))
    for match in FAILED_GROUP.finditer(said):
        name, slurm_log, jobs = match.groups("")
        members = [(rule, number, logs.split(", ")[0]) for rule, number, logs in MEMBER.findall(jobs)]
        logs = sorted(log for _, _, log in members)
        refusals = re.findall(REFUSED_GROUP.format(name=re.escape(name)), said, re.MULTILINE)
        refusal = f"sbatch refused it: {refusals[-1]}" if refusals and not slurm_log else ""
        rules = sorted({rule for rule, _, _ in members})
        explanation = _explain_end(rules, _read(Path(slurm_log))) or "no log of its jobs has an error"
        group = Group(name, frozenset(logs), f"{explanation} ({slurm_log or ', '.join(logs)})")
        found += [
            Failure(match.start(), rule, number, log, explain(rule, log, ""), slurm_log, group, refusal)
            for rule, number, log in members
        ]
    return sorted(found, key=lambda failure: failure.position)


def _slurm_logs(said: str) -> dict[str, str]:
    """Return Slurm's log of the last attempt of each failed job, by the job's own log."""
    logs = {}
    for _, _, both in FAILED.findall(said):
        own, _, slurm_log = both.partition(", ")
        if slurm_log:
            logs[own] = slurm_log
    for _, slurm_log, jobs in FAILED_GROUP.findall(said):
        logs |= {both.split(", ")[0]: slurm_log for _, _, both in MEMBER.findall(jobs)}
    return logs


def _explain_end(rules: list[str], told_by_slurm: str) -> str:
    """Return why Slurm ended a job of these rules, "" if it does not say that it did."""
    if TIMED_OUT.search(told_by_slurm):
        return time_ran_out(*rules)
    if KILLED_BY_SLURM.search(told_by_slurm):
        return memory_ran_out(*rules)
    return ""


def time_ran_out(*rules: str) -> str:
    """Return what to do after the walltime of a job of these rules was over."""
    trainings = [rule for rule in rules if rule in TRAININGS]
    to_save = f", or more time to save ({_options(trainings, 'minutes_to_save=MINUTES')})" if trainings else ""
    more = _place_of_more(rules, "walltime", "runtime=MINUTES")
    return f"was ended by Slurm at its walltime (TIMEOUT); give it more ({more}){to_save}"


def memory_ran_out(*rules: str) -> str:
    """Return what to do after a job of these rules was killed, as for its memory."""
    return (
        "was killed; the kernel does that when memory runs out: then run fewer jobs at a time (--cores), or on a "
        f"cluster give it more ({_place_of_more(rules, 'memory_mb', 'mem_mb=MB')})"
    )


def _place_of_more(rules: Sequence[str], key: str, resource: str) -> str:
    """Return where more of a resource is given: no number, because it is not known how much the job had."""
    others = [rule for rule in rules if rule not in TRAININGS]
    places = [f"{key} in site.yaml"] * (len(others) < len(rules))
    return ", ".join([*places, _options(others, resource)] if others else places)


def _options(rules: Sequence[str], resource: str) -> str:
    return " ".join(["--set-resources", *(f"{rule}:{resource}" for rule in rules)])


def _log_of(rule: str, number: str, said: str) -> str:
    """Return the log of the job that Snakemake last started with this number; "no log" if it has none."""
    started = re.compile(
        rf"^ *(?:local)?(?:rule|checkpoint) {re.escape(rule)}:\n(?: .*\n)*? +log: (.+)\n +jobid: {number}\n",
        re.MULTILINE,
    )
    return next((logs.split(", ")[0] for logs in reversed(started.findall(said))), "no log")


def last_words(log: Path, *beginnings: str) -> str:
    """Return the last line of a job's log without these beginnings and those of srun, which reports how tasks ended."""
    return _last_line(_read(log), *beginnings)


def _last_line(said: str, *beginnings: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    left = (line for line in reversed(lines) if not line.startswith(("srun: ", *beginnings)))
    return next(left, "ended without output")


def report_what_succeeded(records: list[str], scores: list[str]) -> None:
    """Write a report of the existing scores when the whole report cannot be made, and send it to MLflow.

    Args:
        records: of all runs.
        scores: of all fine-tunings; if none exists, nothing is written.
    """
    present = [record for record in records if Path(record).exists()]
    if not present or not any(Path(score).exists() for score in scores):
        return
    scripts = CHECKOUT / "workflow/scripts"
    command = ["python", str(scripts / "report.py"), *present, "--directory", str(UNFINISHED)]
    if subprocess.run(command, check=False).returncode:  # noqa: S603
        return
    print(f"The report of the finished results: {UNFINISHED}/index.html", file=sys.stderr)
    if Path(paths.MLFLOW_IS_INITIALISED).exists():
        track = ["python", str(scripts / "track.py"), *present, "--report", f"{UNFINISHED}/index.html"]
        subprocess.run(track, check=False)  # noqa: S603


def _began(snakemake_logs: list[Path]) -> float:
    """Return when a run began, in seconds since 1970, by the names of its logs; 0 if they do not say it."""
    try:
        return min(datetime.strptime(log.name[:17], "%Y-%m-%dT%H%M%S").timestamp() for log in snakemake_logs)
    except ValueError:
        return 0


def _read(path: Path, since: float = 0) -> str:
    """Return the text of a file; "" if it cannot be read, or is that of a run before the time `since`."""
    try:
        if path.stat().st_mtime < since - CLOCKS_DIFFER:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
