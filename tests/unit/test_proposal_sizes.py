"""The sizes that are proposed for a text, a machine and a time, and the file of the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from user_texts import ROOT, text_of, write_texts

from bertline.console import BertlineError
from bertline.planning.estimate import estimates
from bertline.planning.resolve import make_plan, plan_of_files
from bertline.proposal import machine as machines
from bertline.proposal.configuration_file import configuration, network_of, rounded_duration
from bertline.proposal.corpora import Corpus
from bertline.proposal.machine import Machine, this_machine
from bertline.proposal.new_configuration import NewConfiguration, make_configuration, time_steps
from bertline.proposal.sizes import (
    BYTES_PER_WEIGHT,
    EPOCHS,
    MASKED,
    NETWORKS,
    REFERENCE,
    SECONDS_PER_JOB,
    Amount,
    Network,
    Proposal,
    default_seconds,
    processes_for,
    propose,
    seconds_of,
    vocabulary_size,
)
from bertline.proposal.text import OwnText
from bertline.settings.configuration import read_yaml
from bertline.training.flops import flops_of_a_sample

LAPTOP = Machine(cores=2, memory=16_000_000_000, disk=10**14)
SERVER = Machine(cores=16, memory=128_000_000_000, disk=10**14, gpus=("H100",), gpu_memory=80_000_000_000)


def found_text(folder: Path, **changes: Any) -> OwnText:
    corpus = Corpus("texts", {"source": "files", "paths": [f"{folder}/*.txt"]}, [])
    whole = OwnText([corpus], 100, 10**7, 10**7, 1_700_000, "en", 1.0, {}, "LATIN", True, 80, ["text"], 1, {}, [])
    return replace(whole, **changes)


def simulated(flops: float) -> Callable[[Network, int, int], float]:
    """A machine that computes so many operations a second."""
    return lambda network, length, batch: flops / network.flops_per_token(8000, length)


def proposed(
    size: int, machine: Machine, flops: float, seconds: float | None = None, documents: int = 1000
) -> Proposal:
    amount = Amount(size, size, size // 4, documents, parts=-(-size // 10**8))
    vocab_size = vocabulary_size(size, 80)
    return propose(amount, vocab_size, machine, seconds=seconds or default_seconds(size), speed=simulated(flops))


machine_strategy = st.builds(
    Machine,
    cores=st.integers(1, 256),
    memory=st.integers(4 * 10**9, 10**12),
    disk=st.just(10**15),
    gpus=st.integers(0, 8).map(lambda count: ("H100",) * count),
    gpu_memory=st.integers(8 * 10**9, 2 * 10**11),
    has_fast_bf16=st.booleans(),
    has_compiler=st.booleans(),
)


@given(
    size=st.integers(1000, 10**12),
    documents=st.integers(5, 10**9),
    machine=machine_strategy,
    speed=st.floats(1e9, 1e17),
    seconds=st.one_of(st.none(), st.floats(1, 1e7)),
    language=st.sampled_from(["en", "de", "no", "ja", "th", "ko", "hi", "gag"]),
    alphabet=st.integers(20, 9000),
)
@settings(max_examples=60, deadline=None)
def test_any_text_and_machine_give_a_configuration_that_is_accepted(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    documents: int,
    machine: Machine,
    speed: float,
    seconds: float | None,
    language: str,
    alphabet: int,
) -> None:
    folder = tmp_path_factory.getbasetemp() / "own"
    write_texts(folder, 5)
    vocab_size = vocabulary_size(size, alphabet)
    amount = Amount(size, size, size // 4, documents, parts=-(-size // 10**8))
    chosen = propose(amount, vocab_size, machine, seconds=seconds or default_seconds(size), speed=simulated(speed))
    found = found_text(folder, bytes=size, characters=size, documents=documents, language=language)
    path = folder / "own.yaml"
    path.write_text(configuration("own", str(path), found, chosen, machine), encoding="utf-8")
    with patch("bertline.planning.shard_count._sizes", lambda *_: iter([size])):
        plan = make_plan(read_yaml(path), ROOT / "config/config.schema.yaml", ROOT / "config/models")
    assert not plan.problems
    assert list(plan.runs) == ["own"]
    # A process holds the weights, their gradients and two moments.
    needed = BYTES_PER_WEIGHT * chosen.network.all_weights(vocab_size)
    if machine.gpus:
        assert needed < machine.gpu_memory
        assert chosen.processes == len(machine.gpus)
    else:
        assert chosen.processes * needed < machine.memory
        assert 1 <= chosen.processes <= machine.cores
    assert chosen.precision == ("bf16" if machine.has_fast_bf16 else "fp16" if machine.gpus else "fp32")
    assert 1 <= chosen.shards <= documents


@given(sizes=st.lists(st.integers(10**4, 10**12), min_size=2, max_size=2), machine=st.sampled_from([LAPTOP, SERVER]))
@settings(max_examples=200, deadline=None)
def test_more_text_gives_a_larger_vocabulary_a_network_no_smaller_and_more_training(
    sizes: list[int], machine: Machine
) -> None:
    flops = 1e11 if machine is LAPTOP else 3e14
    less, more = (proposed(size, machine, flops) for size in sorted(sizes))
    assert less.vocab_size <= more.vocab_size
    # A larger vocabulary costs time, so at a border the network may be one step smaller.
    assert NETWORKS.index(less.network) <= NETWORKS.index(more.network) + 1
    assert less.seconds <= 1.5 * more.seconds
    for proposal in (less, more):
        assert proposal.tokens <= 1.1 * EPOCHS * max(sizes) or sum(phase.steps for phase in proposal.phases) <= 40


@given(seconds=st.floats(600, 1e6), size=st.integers(10**6, 10**11))
@settings(max_examples=200, deadline=None)
def test_the_time_is_kept(seconds: float, size: int) -> None:
    chosen = proposed(size, LAPTOP, 1e11, seconds, documents=10**5)
    training = sum(phase.seconds for phase in chosen.phases)
    assert training <= 1.1 * seconds
    if chosen.limit == "time" and chosen.other_seconds < seconds / 2:
        assert chosen.seconds == pytest.approx(seconds, rel=0.3)


def test_a_quarter_of_an_hour_of_two_cores_is_for_a_tiny_network_and_a_day_of_a_gpu_for_a_base_one() -> None:
    small = proposed(10_000_000, LAPTOP, 1e11)
    assert small.network.hidden == 128
    assert [phase.sequence_length for phase in small.phases] == [32, 128]
    large = proposed(20_000_000_000, SERVER, 3e14)
    assert large.network.name in ("bert-base", "bert-large")
    assert large.vocab_size == 30522
    assert [phase.sequence_length for phase in large.phases] == [128, 512]
    assert large.compiled


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_operations_of_a_network_are_those_that_training_counts(network: Network) -> None:
    counted = flops_of_a_sample({**network_of(network), "vocab_size": 8000}, length=128, masked=MASKED * 128)
    assert network.flops_per_token(8000, 128) == counted / 128


def test_of_the_networks_only_the_chosen_one_is_timed_also_with_a_table() -> None:
    """Besides that whose speed predicts the others'. A trial of a large network takes minutes."""
    timed = set()

    def speed(network: Network, length: int, batch: int) -> float:
        timed.add(network)
        return simulated(1e11)(network, length, batch)

    amount = Amount(10**7, 10**7, 2_500_000, 1000, parts=1)
    chosen = propose(amount, 4864, LAPTOP, seconds=900, speed=speed, fine_tuned_tokens=2e6)
    assert timed == {REFERENCE, chosen.network}


def test_training_compiles_also_when_the_network_is_chosen() -> None:
    """Compiled, bert-mini is so fast that it sees 20 tokens for each weight in this time."""
    weights = NETWORKS[2].weights
    speed = simulated(1e11)
    amount = Amount(10**8, 10**8, 25_000_000, 10**5, parts=1)
    seconds = 1.1 * 20 * weights / speed(NETWORKS[2], 128, 2048) / 1.25 + 600
    assert propose(amount, 8000, LAPTOP, seconds=seconds, speed=speed).network == NETWORKS[2]
    slow = replace(LAPTOP, has_compiler=False)
    assert propose(amount, 8000, slow, seconds=seconds, speed=speed).network == NETWORKS[1]


def configuration_of(texts: Path, table: Sequence[Path], time_steps: Callable[..., Any]) -> NewConfiguration:
    """For ten minutes on LAPTOP."""
    return make_configuration(
        [str(texts)],
        texts.with_name("own.yaml"),
        LAPTOP,
        seconds=600,
        language="en",
        encoding="utf-8",
        column=None,
        table=list(map(str, table)),
        time_steps=time_steps,
    )


def test_steps_that_do_not_fit_the_memory_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"^the memory is too small for training steps of \S+ with 128 tokens; end"):
        configuration_of(write_texts(tmp_path / "in", 40), [], lambda *_: {"fits": False})


def test_the_plan_of_a_proposal_knows_its_time_from_the_timed_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with Muon, of which the plan has settings that the trial leaves at their defaults."""

    def run_trial(recipe: dict[str, Any], **_: Any) -> dict[str, Any]:
        tokens = recipe["settings"]["global_batch_size"] * recipe["settings"]["sequence_length"]
        seconds = tokens / 10_000
        timed = {"fits": True, "step_seconds": seconds, "busy_seconds": seconds, "tokens": tokens}
        return {**timed, "processes": 2, "device": "a CPU"}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bertline.proposal.new_configuration.run_trial", run_trial)
    for path in write_texts(tmp_path / "in", 40).iterdir():
        path.write_text(100 * text_of(int(path.stem)) + path.stem)
    made = configuration_of(tmp_path / "in", [], partial(time_steps, LAPTOP))
    (tmp_path / "own.yaml").write_text(made.content)
    assert "optimizer: muon " in made.content
    phases = [left for left in estimates(plan_of_files([tmp_path / "own.yaml"])) if "phase" in left.what]
    assert {left.basis for left in phases} == {"a trial of some steps, on a CPU, not compiled"}


@pytest.mark.parametrize(("words", "rows", "is_long"), [(8, 8000, False), (90, 8000, True)])
def test_the_time_of_fine_tuning_is_that_of_the_rows(tmp_path: Path, words: int, rows: int, is_long: bool) -> None:
    """Short rows leave most of the time to pretraining; if the rows need more than the time, a line says so."""
    texts = write_texts(tmp_path / "in", 40)
    for number, path in enumerate(texts.iterdir()):
        path.write_text(100 * text_of(number))
    table = tmp_path / "t.csv"
    table.write_text(
        "text,label\n" + "".join(f"{number}{words * ' word'},{'ab'[number % 2]}\n" for number in range(rows))
    )

    dev = tmp_path / "dev.csv"
    dev.write_text(table.read_text())

    def time_steps(network: Network, length: int, batch: int, vocab_size: int) -> dict[str, float]:
        seconds = batch / (25_000 if network.hidden == 128 else 10_000)
        return {"fits": True, "step_seconds": seconds, "busy_seconds": seconds, "tokens": batch}

    made = configuration_of(texts, [table, dev], time_steps)
    lines = made.content.splitlines()
    assert lines[2].startswith("# The given time, 10 minutes, is too short: everything but the training") is is_long
    minutes = int(re.search(r"including (\d+) minutes of training", lines[1])[1])  # type: ignore[index]
    assert minutes in ((2, 3) if is_long else (5, 6, 7))
    tokens = re.search(r"bert-tiny: ([0-9.]+) tokens for each weight of its layers; the aim is 20", made.content)
    assert tokens is not None
    assert (float(tokens[1]) < 20) is is_long


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "10 seconds"),
        (34, "30 seconds"),
        (57, "1 minute"),
        (7000, "117 minutes"),
        (7200, "2.0 hours"),
        (90000, "25 hours"),
        (200000, "2.3 days"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert rounded_duration(seconds) == words


def test_many_tiny_files_take_the_time_of_the_jobs_of_their_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job reads a thousand files at most."""
    for module in ("planning.corpora", "proposal.corpora", "proposal.configuration_file"):
        monkeypatch.setattr(f"bertline.{module}.LOCAL_FILES_PER_PART", 4)
    trial = {"fits": True, "step_seconds": 1.0, "busy_seconds": 1.0, "tokens": 20_000}
    told = "The 44 small files of 'texts' are read in 11 parts of up to 4 files, each by jobs of its own"
    for count, parts in ((40, 10), (44, 11)):
        made = configuration_of(write_texts(tmp_path / str(count) / "in", count), [], lambda *_: trial)
        own = tmp_path / str(count) / "own.yaml"
        own.write_text(made.content)
        (corpus,) = plan_of_files([own]).corpora.values()
        assert len(corpus["parts"]) == parts
        assert any(told in line for line in made.summary) is (count == 44)
    one, many = (
        propose(Amount(10**7, 10**7, 2_500_000, 10**5, parts), 4864, LAPTOP, seconds=900, speed=simulated(1e11))
        for parts in (1, 100)
    )
    assert many.other_seconds - one.other_seconds == 99 * 3 * SECONDS_PER_JOB / LAPTOP.cores


def test_the_size_of_a_text_without_spaces_is_in_characters(tmp_path: Path) -> None:
    write_texts(tmp_path / "in")
    chosen = proposed(10**7, LAPTOP, 1e11)
    first = configuration("own", "own.yaml", found_text(tmp_path / "in", language="ja"), chosen, LAPTOP).splitlines()[0]
    assert "about 10,000,000 characters, language ja" in first


@pytest.mark.parametrize(("bytes_read", "documents"), [(10**7, "100 documents"), (10**6, "about 100 documents")])
def test_the_number_of_documents_is_about_right_if_not_all_were_read(
    tmp_path: Path, bytes_read: int, documents: str
) -> None:
    found = found_text(tmp_path)
    found.corpora[0].bytes, found.corpora[0].bytes_read = 10**7, bytes_read
    first = configuration("own", "own.yaml", found, proposed(10**7, LAPTOP, 1e11), LAPTOP).splitlines()[0]
    assert f" MB, {documents}, about 1,700,000 words, " in first


def test_little_memory_and_disk_are_one_line_each() -> None:
    with pytest.raises(BertlineError, match=r"0\.1 GB of memory are too little for the smallest network; close"):
        proposed(10**7, replace(LAPTOP, memory=10**8), 1e11)
    with pytest.raises(BertlineError, match=r"has 1\.0 GB left; about .* GB are needed; free some"):
        proposed(10**9, replace(LAPTOP, disk=10**9), 1e11)
    # Four times the text, the samples of two lengths, and a gigabyte for the results.
    with pytest.raises(BertlineError, match=r"has 6\.0 GB left; about 6\.1 GB are needed; free some"):
        proposed(10**9, replace(LAPTOP, disk=6 * 10**9), 1e11)
    proposed(10**9, replace(LAPTOP, disk=62 * 10**8), 1e11)
    assert processes_for(NETWORKS[-1], 30522, replace(LAPTOP, memory=10**10)) == 0


@pytest.mark.parametrize(("machine", "flops"), [(LAPTOP, 1e11), (SERVER, 1e14)])
def test_the_second_phase_has_a_lower_learning_rate(machine: Machine, flops: float) -> None:
    chosen = proposed(10**8, machine, flops)
    rate = chosen.network.learning_rate
    assert [phase.learning_rate for phase in chosen.phases] == [rate, pytest.approx(0.75 * rate)]


@pytest.mark.parametrize(
    ("language", "settings"),
    [
        ("de", {"sentences": "punkt"}),
        ("ja", {"sentences": "unicode"}),
        ("th", {"sentences": "unicode"}),
        ("am", {"sentences": "unicode"}),
        ("ko", {"sentences": "sentencex", "sentence_language": "ko"}),
    ],
)
def test_sentences_are_split_as_the_language_needs(tmp_path: Path, language: str, settings: dict[str, str]) -> None:
    text = found_text(tmp_path, language=language)
    (tmp_path / "x.yaml").write_text(configuration("own", "x.yaml", text, proposed(10**7, LAPTOP, 1e11), LAPTOP))
    assert read_yaml(tmp_path / "x.yaml")["corpora"]["texts"].items() >= settings.items()


def test_the_file_is_ordered_commented_and_read_back(tmp_path: Path) -> None:
    write_texts(tmp_path / "in")
    path = tmp_path / "own.yaml"
    chosen = proposed(10**7, LAPTOP, 1e11)
    path.write_text(configuration("own", str(path), found_text(tmp_path / "in"), chosen, LAPTOP))
    content = read_yaml(path)
    assert list(content) == ["experiment", "corpora", "datasets", "sequence_lengths", "runs"]
    phases = content["runs"]["own"]["phases"]
    assert [phases[name]["steps"] for name in ("phase1", "phase2")] == [phase.steps for phase in chosen.phases]
    assert all(isinstance(phase["learning_rate"], float) for phase in phases.values())
    lines = path.read_text().splitlines()
    assert all("# " in line for line in lines if line and not line.endswith(":"))
    assert max(map(len, lines[4:])) < 140
    command = next(line for line in lines if line.startswith("#     snakemake"))
    assert f"--configfile={path}" in command
    assert f"processes_per_node={chosen.processes}" in command


def test_the_command_of_a_configuration_without_gpus_hides_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for visible, hidden in ((None, ""), ("0", ""), ("", "CUDA_VISIBLE_DEVICES= ")):
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        content = configuration("own", "x.yaml", found_text(tmp_path), proposed(10**7, LAPTOP, 1e11), LAPTOP)
        assert f"#     {hidden}snakemake --profile profiles/local" in content


def test_the_command_keeps_to_a_share_of_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snakemake counts the cores that a process may run on, not the time that a container may take on them."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(LAPTOP.cores)))
    for cores, limit in ((LAPTOP.cores, ""), (LAPTOP.cores - 1, f"--cores={LAPTOP.cores - 1} ")):
        machine = replace(LAPTOP, cores=cores)
        content = configuration("own", "x.yaml", found_text(tmp_path), proposed(10**7, machine, 1e11), machine)
        assert f"snakemake --profile profiles/local {limit}--configfile=x.yaml" in content


def test_sizes_are_those_of_the_recipes_at_their_own_sizes() -> None:
    assert vocabulary_size(5_000_000, 80) == 4096
    assert vocabulary_size(16_000_000_000, 80) == 30522
    assert vocabulary_size(100_000, 4000) == 8000
    assert default_seconds(10_000_000) == 840
    assert default_seconds(10**12) == 86400


@pytest.mark.parametrize(
    ("time", "seconds"), [("15m", 900), ("10min", 600), ("2 h", 7200), ("2h", 7200), ("1d", 86400), ("1.5h", 5400)]
)
def test_times_have_a_unit(time: str, seconds: float) -> None:
    assert seconds_of(time) == seconds


@pytest.mark.parametrize("time", ["15", "m", "-1h", "0m", "two hours"])
def test_a_time_without_a_unit_is_one_line(time: str) -> None:
    with pytest.raises(BertlineError, match=f"TIME={time}: give a number and s, m, h or d, such as 15m, 2h or 1d"):
        seconds_of(time)


def test_a_gpu_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_gpus", lambda: ((), 0, False))
    with pytest.raises(BertlineError, match=r"GPUS=1: this machine has none .*; give GPUS=0 to train on the CPUs"):
        this_machine(1)
    assert this_machine().gpus == ()


def test_a_pytorch_without_gpus_on_a_machine_with_one_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "_gpus", lambda: (("NVIDIA H100",), 80 * 10**9, True))
    monkeypatch.setattr(machines.metadata, "version", lambda name: "2.13.0+cpu")
    with pytest.raises(
        BertlineError, match=r"has a GPU \(NVIDIA H100\), but .* 2\.13\.0\+cpu is a build for CPUs; remove"
    ):
        this_machine()
    assert this_machine(0).gpus == ()
    monkeypatch.setattr(machines.metadata, "version", lambda name: "2.13.0+cu130")
    assert this_machine().gpus == ("NVIDIA H100",)


@pytest.mark.parametrize("name", ["no", "2024", "1.5", "null", "my-texts_2"])
def test_a_name_that_yaml_takes_for_something_else_is_quoted(tmp_path: Path, name: str) -> None:
    table = {"name": name, "settings": {"kind": "classification"}, "reasons": {}}
    content = configuration(name, "x.yaml", found_text(tmp_path), proposed(10**7, LAPTOP, 1e11), LAPTOP, table)
    (tmp_path / "x.yaml").write_text(content)
    found = read_yaml(tmp_path / "x.yaml")
    assert (list(found["runs"]), list(found["datasets"]), found["experiment"]) == ([name], [name], name)
    assert list(found["evaluation"]["tables"]) == list(found["runs"][name]["finetune"]["tables"]) == [name]


@pytest.mark.parametrize("language", ["no", "de"])
def test_the_filter_of_other_languages_in_a_comment_is_as_it_would_be_given(tmp_path: Path, language: str) -> None:
    text = found_text(tmp_path, language=language, share=0.9, others={"en": 0.1})
    content = configuration("own", "x.yaml", text, proposed(10**7, LAPTOP, 1e11), LAPTOP)
    assert "drops other languages: en 10%" in content
    (tmp_path / "x.yaml").write_text(content.replace("# language_identification", "language_identification"))
    corpus = read_yaml(tmp_path / "x.yaml")["corpora"]["texts"]
    assert corpus["language_identification"] == {"keep": language}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("x.yaml", "make plan CONFIG=x.yaml"),
        ("it's.yaml", "make plan CONFIG='it'\"'\"'s.yaml'"),
        ("my texts/x.yaml", "python workflow/scripts/plan.py --configfile 'my texts/x.yaml'"),
    ],
)
def test_the_command_that_shows_the_plan_works_for_any_name(tmp_path: Path, path: str, shown: str) -> None:
    """CONFIG is several files if there is a space in it."""
    content = configuration("own", path, found_text(tmp_path), proposed(10**7, LAPTOP, 1e11), LAPTOP)
    assert f"Change any value; `{shown}` then shows what will run." in content


def test_what_a_comment_quotes_adds_no_line(tmp_path: Path) -> None:
    table = {
        "name": "t",
        "settings": {"kind": "classification", "train": "a\x7fb\x85c\ufffe.csv"},
        "reasons": {"kind": "not used: notes\nruns: {evil: 1}\x85runs: {}\u2028runs: {}\rruns: {}"},
    }
    content = configuration("own", "x.yaml", found_text(tmp_path), proposed(10**7, LAPTOP, 1e11), LAPTOP, table)
    (tmp_path / "x.yaml").write_text(content)
    found = read_yaml(tmp_path / "x.yaml")
    assert list(found["runs"]) == ["own"]
    assert found["evaluation"]["tables"]["t"] == table["settings"]


@pytest.mark.parametrize(
    ("size", "documents", "share"),
    [
        (10**6, 1000, 0.05),
        (10**9, 10**5, 0.005),
        (2 * 10**10, 10**6, 0.0005),
        (10**6, 20, 0.1),
        (10**6, 10, 0.2),
        (2 * 10**8, 8, 0.2),
    ],
)
def test_the_share_that_is_held_out_is_of_5_percent_or_5_megabytes_and_of_two_documents(
    tmp_path: Path, size: int, documents: int, share: float
) -> None:
    chosen = proposed(size, LAPTOP, 1e11, documents=documents)
    assert chosen.held_out == share
    content = configuration("own", "x.yaml", found_text(tmp_path, documents=documents), chosen, LAPTOP)
    assert (f"As the documents are few, {share:.0%} of them are held out" in content) is (share > 0.1)


def test_a_gain_that_the_plan_does_not_know_is_told(tmp_path: Path) -> None:
    for seconds, machine, is_told in ((600, LAPTOP, False), (7200, LAPTOP, True), (7200, SERVER, False)):
        chosen = proposed(10**8, machine, 1e11, seconds)
        assert chosen.compiled is (seconds == 7200)
        content = configuration("own", "x.yaml", found_text(tmp_path), chosen, machine)
        told = "is compiled, and taken to be 1.25 times as fast as the timed steps; the time of `make plan` is that of"
        assert (told in content) is is_told
