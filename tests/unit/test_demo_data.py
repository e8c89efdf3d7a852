"""The generated sample: official layouts, correct offsets, nothing shared by train and dev, same bytes for a seed."""

from __future__ import annotations

import bz2
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bertline.console import BertlineError
from bertline.demo_data import generate as generate_module
from bertline.demo_data.articles import make_articles
from bertline.demo_data.generate import generate
from bertline.demo_data.language import (
    ADJECTIVES,
    NOUNS,
    VERBS,
    WORDINGS,
    Fact,
    make_lexicons,
    make_scene,
    say,
    spoil,
)
from bertline.demo_data.world import PROVINCES, make_world, random_stream
from bertline.files import sha256_of_file

SCHEMA = "{http://www.mediawiki.org/xml/export-0.11/}"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "sample"
    generate(folder, 1)
    return folder


def tree_digests(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in folder.rglob("*") if path.is_file()}


def table(sample: Path, task: str, split: str) -> list[list[str]]:
    text = (sample / "glue" / task / f"{split}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines()]


def squad(sample: Path, split: str, version: str) -> list[dict]:
    file = json.loads((sample / "squad" / f"{split}-v{version}.json").read_text(encoding="utf-8"))
    assert file["version"] == version.replace("2.0", "v2.0")
    return [paragraph for entry in file["data"] for paragraph in entry["paragraphs"]]


def parts(sample: Path) -> list[Path]:
    return sorted((sample / "mirror/samplewiki/20260101").glob("*multistream[0-9]*.xml-p*p*.bz2"))


def pages(sample: Path) -> list[ElementTree.Element]:
    return [
        page
        for part in parts(sample)
        for page in ElementTree.fromstring(bz2.decompress(part.read_bytes())).iter(f"{SCHEMA}page")  # noqa: S314 - our own file
    ]


def capitalized(text: str) -> set[str]:
    """Names: words that begin with a capital inside a sentence, or that could not be an ordinary first word."""
    return set(re.findall(r"[A-Z][a-z]+", text))


def test_a_seed_gives_the_same_bytes_in_another_process(sample: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    code = f"from bertline.demo_data.generate import generate; generate({str(other)!r}, 1)"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONHASHSEED": "123"})
    assert tree_digests(other) == tree_digests(sample)


def test_another_seed_gives_another_world() -> None:
    first, second = ({town.name for town in make_world(seed).towns} for seed in (1, 2))
    assert len(first & second) <= len(first) // 4


def test_the_sample_is_absent_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(generate_module, "entailment", fail)
    with pytest.raises(OSError, match="no space"):
        generate(tmp_path / "sample", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generation without what takes time: one file of each folder."""

    def write(made: Path, seed: int) -> dict[str, int]:
        for name in ("books/book-001.txt", "glue/CoLA/dev.tsv", "mirror/samplewiki/20260101/dumpstatus.json"):
            (made / name).parent.mkdir(parents=True)
            (made / name).write_text(f"of seed {seed}")
        return {}

    monkeypatch.setattr(generate_module, "_write_everything", write)


@pytest.mark.parametrize(
    "own", ["notes.txt", "books/novel.txt", "mirror/dewiki/20260101/dumpstatus.json", "squad/dev-v1.1.json"]
)
@pytest.mark.usefixtures("written")
def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path, own: str) -> None:
    folder = tmp_path / "sample"
    (folder / own).parent.mkdir(parents=True)
    (folder / own).write_text("the user's own")
    with pytest.raises(BertlineError, match=rf"sample contains {own}, which would be deleted; name another"):
        generate(folder)
    assert (folder / own).read_text() == "the user's own"


@pytest.mark.usefixtures("written")
def test_an_earlier_sample_is_replaced_also_without_its_manifest(tmp_path: Path) -> None:
    generate(tmp_path / "sample", 1)
    (tmp_path / "sample/sample.json").unlink()
    generate(tmp_path / "sample", 2)
    generate(tmp_path / "sample", 3)
    assert (tmp_path / "sample/books/book-001.txt").read_text() == "of seed 3"


def test_what_is_written_may_be_replaced(sample: Path) -> None:
    generate_module.check_is_sample(sample)
    assert [name for name in tree_digests(sample) if not re.fullmatch(generate_module.WRITTEN, name)] == []


def test_an_older_sample_is_replaced_as_a_whole(sample: Path, tmp_path: Path) -> None:
    target = tmp_path / "sample"
    shutil.copytree(sample, target)
    (target / "books/book-999.txt").write_text("old")
    generate(target, 1)
    assert tree_digests(target) == tree_digests(sample)
    assert [path.name for path in tmp_path.iterdir()] == ["sample"]


def test_the_manifest_lists_every_other_file_with_its_digest(sample: Path) -> None:
    manifest = json.loads((sample / "sample.json").read_text())
    digests = tree_digests(sample)
    digests.pop("sample.json")
    assert manifest["sha256"] == digests
    assert manifest["seed"] == 1


def test_dumpstatus_describes_the_parts_as_wikimedia_does(sample: Path) -> None:
    folder = sample / "mirror/samplewiki/20260101"
    job = json.loads((folder / "dumpstatus.json").read_text())["jobs"]["articlesmultistreamdump"]
    assert job["status"] == "done"
    assert len(parts(sample)) > 1
    assert set(job["files"]) == {path.name for path in folder.iterdir()} - {"dumpstatus.json"}
    for name, entry in job["files"].items():
        content = (folder / name).read_bytes()
        assert entry == {
            "size": len(content),
            "url": f"/samplewiki/20260101/{name}",
            "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
            "sha1": hashlib.sha1(content, usedforsecurity=False).hexdigest(),
        }


def test_the_index_has_the_start_of_each_pages_stream(sample: Path) -> None:
    part = parts(sample)[1]
    index = part.with_name(part.name.replace("multistream2.xml", "multistream-index2.txt"))
    lines = bz2.decompress(index.read_bytes()).decode().splitlines()
    offsets = sorted({int(line.split(":")[0]) for line in lines})
    assert len(offsets) > 1, "a part has several streams"
    content = part.read_bytes()
    for line in lines[::37]:
        offset, number, title = line.split(":", 2)
        stream = bz2.BZ2Decompressor().decompress(content[int(offset) :]).decode()
        assert f"<title>{title}</title>" in stream
        assert f"<id>{number}</id>" in stream


def test_the_manifest_counts_the_pages_that_the_dump_holds(sample: Path) -> None:
    counts = json.loads((sample / "sample.json").read_text())["counts"]
    found = {"pages": 0, "articles": 0, "redirects": 0, "other_namespaces": 0}
    for page in pages(sample):
        found["pages"] += 1
        if page.findtext(f"{SCHEMA}ns") != "0":
            found["other_namespaces"] += 1
        elif page.find(f"{SCHEMA}redirect") is not None:
            found["redirects"] += 1
        else:
            found["articles"] += 1
    assert found == {name: counts[name] for name in found}
    assert min(found.values()) > 0


def test_articles_carry_the_markup_an_extractor_must_deal_with(sample: Path) -> None:
    text = "\n".join(page.findtext(f"{SCHEMA}revision/{SCHEMA}text") or "" for page in pages(sample))
    for markup in (
        "{{Infobox",
        "'''",
        "[[",
        "|thumb|",
        "<ref>",
        "<!--",
        "\n== ",
        '{| class="wikitable"',
        "\n* [[",
        "[[Category:",
    ):
        assert markup in text, markup
    assert "#REDIRECT [[" in text


def test_articles_are_long_enough_for_long_samples() -> None:
    world = make_world(1)
    articles = make_articles(1, world, make_lexicons(1)["all"])
    lengths = sorted(sum(len(section.sentences) for section in article.sections) for article in articles)
    assert lengths[0] >= 10


def test_books_are_plain_text_with_wrapped_lines(sample: Path) -> None:
    books = sorted((sample / "books").glob("*.txt"))
    assert books
    for book in books:
        text = book.read_text(encoding="utf-8")
        assert max(map(len, text.splitlines())) <= 72
        assert "\n\n" in text
        assert "<" not in text


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad_answers_are_at_their_offsets(sample: Path, split: str, version: str) -> None:
    identifiers = []
    for paragraph in squad(sample, split, version):
        for question in paragraph["qas"]:
            identifiers.append(question["id"])
            for answer in question["answers"]:
                start = answer["answer_start"]
                assert paragraph["context"][start : start + len(answer["text"])] == answer["text"]
            assert bool(question["answers"]) != question.get("is_impossible", False)
    assert len(set(identifiers)) == len(identifiers) > 100


def test_only_squad_2_has_unanswerable_questions(sample: Path) -> None:
    def unanswerable(version: str) -> int:
        return sum(
            not question["answers"] for paragraph in squad(sample, "dev", version) for question in paragraph["qas"]
        )

    assert unanswerable("1.1") == 0
    assert unanswerable("2.0") > 50


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad_dev_shares_no_name_answer_or_paragraph_with_training(sample: Path, version: str) -> None:
    def texts(split: str) -> tuple[set[str], set[str], set[str]]:
        paragraphs = squad(sample, split, version)
        questions = [question for paragraph in paragraphs for question in paragraph["qas"]]
        answers = {answer["text"] for question in questions for answer in question["answers"]}
        contexts = {paragraph["context"] for paragraph in paragraphs}
        return answers, contexts, capitalized(" ".join([*contexts, *(question["question"] for question in questions)]))

    for train, dev in zip(texts("train")[:2], texts("dev")[:2], strict=True):
        assert train
        assert dev
        assert not train & dev
    assert not names_of("west") & texts("train")[2]
    assert not names_of("east") & texts("dev")[2]
    assert texts("dev")[2] & names_of("west")


def names_of(province: str) -> set[str]:
    world = make_world(1).provinces[province]
    people = {name for person in world.people for name in (person.given_name, person.family_name)}
    return people | {town.name for town in world.towns} | set(world.values["river"])


def test_the_provinces_share_no_name_and_no_value() -> None:
    east, west = (make_world(1).provinces[name] for name in PROVINCES)
    assert not names_of("east") & names_of("west")
    for relation, values in east.values.items():
        assert not set(values) & set(west.values[relation]), relation


@pytest.mark.parametrize("task", ["MRPC", "RTE"])
def test_pair_tasks_share_no_name_between_train_and_dev(sample: Path, task: str) -> None:
    train, dev = (capitalized(" ".join(map(" ".join, table(sample, task, split)[1:]))) for split in ("train", "dev"))
    assert names_of("east") & train
    assert not names_of("west") & train
    assert names_of("west") & dev
    assert not names_of("east") & dev


def test_acceptability_dev_uses_other_nouns_verbs_and_adjectives(sample: Path) -> None:
    words = {form for pair in (*NOUNS, *VERBS) for form in pair} | set(ADJECTIVES)

    def used(split: str) -> set[str]:
        return words & set(" ".join(row[3] for row in table(sample, "CoLA", split)).lower().replace(".", "").split())

    assert used("train")
    assert used("dev")
    assert not used("train") & used("dev")


def test_glue_tables_have_their_official_columns(sample: Path) -> None:
    for split in ("train", "dev"):
        rows = table(sample, "CoLA", split)
        assert all(len(row) == 4 and row[1] in "01" and (row[2] == "*") == (row[1] == "0") for row in rows)
        header, *rows = table(sample, "MRPC", split)
        assert header == ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
        assert all(len(row) == 5 and row[0] in "01" for row in rows)
        header, *rows = table(sample, "RTE", split)
        assert header == ["index", "sentence1", "sentence2", "label"]
        assert [row[0] for row in rows] == [str(number) for number in range(len(rows))]
        assert {row[3] for row in rows} == {"entailment", "not_entailment"}


def test_labels_are_balanced_so_that_the_majority_tells_nothing(sample: Path) -> None:
    for task, column in (("CoLA", 1), ("MRPC", 0), ("RTE", 3)):
        labels = [row[column] for row in table(sample, task, "dev")[task != "CoLA" :]]
        assert 0.45 <= max(map(labels.count, set(labels))) / len(labels) <= 0.55, task


def test_a_spoiled_scene_is_never_a_sentence_of_the_grammar() -> None:
    rng = random_stream(1, "test")
    lexicon = make_lexicons(1)["all"]
    singular, plural = ({noun[form] for noun in NOUNS} for form in (0, 1))
    for _ in range(2000):
        scene = make_scene(rng, lexicon)
        spoiled = spoil(rng, scene)
        assert spoiled != scene.text()
        words = spoiled[:-1].lower().split()
        first = next(word for word in words if word in singular | plural)
        verb = next(word for word in words if any(word in forms for forms in VERBS))
        agrees = (first in plural) == any(verb == forms[1] for forms in VERBS)
        nouns_at = [at for at, word in enumerate(words) if word in singular | plural]
        determiners_fit = all(_determiner_fits(words, at, singular) for at in nouns_at)
        assert not (agrees and determiners_fit), spoiled


def _determiner_fits(words: list[str], at: int, singular: set[str]) -> bool:
    """Whether a determiner of the noun's number precedes the noun at `at` and its adjectives."""
    start = at - 1
    while start >= 0 and words[start] in ADJECTIVES:
        start -= 1
    if start < 0:
        return False
    one, many = {"this", "that", "one", "every", "each", "a", "an"}, {"these", "those", "two", "three", "many", "some"}
    return words[start] == "the" or words[start] in (one if words[at] in singular else many)


@pytest.mark.parametrize("relation", sorted(WORDINGS))
def test_every_wording_has_the_place_of_the_value(relation: str) -> None:
    for wording in WORDINGS[relation]:
        fact = Fact("Mira Tolvan", relation, "owl")
        sentence = say(fact, wording, "Tolvan")
        assert sentence.text[sentence.value_start :][:3].lower() == "owl"
        assert sentence.text[0].isupper()
        assert sentence.text.endswith(".")
