"""Corpora and datasets in the plan: which settings, files and versions make new ones, and what is refused."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
from plan_helpers import CONFIG, PHASE, ROOT, changed, finished_dataset, inputs, make_files, plan_of

from bertline.console import BertlineError
from bertline.corpus.language import language_filter
from bertline.fingerprint import STAGE_VERSIONS
from bertline.settings.configuration import load_schema

assert inputs  # the fixture


def test_a_changed_tokenizer_makes_a_new_dataset_but_no_new_corpus() -> None:
    before = plan_of(CONFIG)
    after = plan_of(changed(datasets__both__tokenizer={"train": "wordpiece", "vocab_size": 600}))
    assert before.corpora.keys() == after.corpora.keys()
    assert not before.datasets.keys() & after.datasets.keys()
    assert not before.phases.keys() & after.phases.keys()
    assert not before.finetunings.keys() & after.finetunings.keys()


def test_a_sample_makes_a_new_dataset_but_no_new_corpus() -> None:
    before = plan_of(CONFIG)
    for sample in ({"documents": 1e5}, {"books": {"bytes": 1e6}}):
        after = plan_of(changed(datasets__both__sample=sample))
        assert before.corpora.keys() == after.corpora.keys()
        assert not before.datasets.keys() & after.datasets.keys()
    with pytest.raises(BertlineError, match=r"datasets\.both\.sample: given 'book', allowed are .*: wikipedia, books"):
        plan_of(changed(datasets__both__sample={"book": {"bytes": 1e6}}))
    with pytest.raises(BertlineError, match=r"datasets\.both\.sample: .*'pages'"):
        plan_of(changed(datasets__both__sample={"pages": 5}))


@pytest.mark.parametrize("identified", [{}, {"language_identification": {"keep": "ltg"}}])
def test_english_stop_words_are_not_looked_for_in_other_languages(identified: dict) -> None:
    name = "books" if identified else "wikipedia"
    filtered = {**CONFIG["corpora"][name], "cleaning": ["gopher_quality"], **identified}
    with pytest.raises(
        BertlineError, match=rf"corpora\.{name}\.cleaning: .* English .* the language is ltg; set stop_words"
    ):
        plan_of(changed(**{f"corpora__{name}": filtered}))
    plan_of(changed(**{f"corpora__{name}": {**filtered, "stop_words": ["i", "ir"]}}))
    with pytest.raises(BertlineError, match=rf"configuration: corpora\.{name}\.stop_words: given 'i ir', which is"):
        plan_of(changed(**{f"corpora__{name}": {**filtered, "stop_words": ["i ir"]}}))


@pytest.mark.parametrize("words", [["i", "ir"], []])
def test_stop_words_that_nothing_looks_for_are_one_line(words: list[str]) -> None:
    line = r"configuration: corpora\.books\.stop_words: given, but only gopher_quality uses them"
    with pytest.raises(BertlineError, match=line):
        plan_of(changed(corpora__books__stop_words=words))
    default = load_schema(ROOT / "config/config.schema.yaml")["$defs"]["stop_words"]["default"]
    assert plan_of(changed(corpora__books__stop_words=default)).corpora == plan_of(CONFIG).corpora


@pytest.mark.parametrize("column", ["text", "id", "title", "url"])
def test_a_column_of_files_without_columns_is_one_line(column: str) -> None:
    Path("books/more.tar").write_bytes(b"")  # of an archive, only texts are read
    line = rf"configuration: corpora\.books\.{column}: given 'body', but none of the files is a table with columns"
    url = {"url": "https://host/one.txt", "sha256": hashlib.sha256(b"One book.").hexdigest()}
    for files in ({"paths": ["books/*.txt"]}, {"paths": ["books/*"]}, {"urls": [url]}):
        with pytest.raises(BertlineError, match=line):
            corpora_of(**{column: "body"}, **files)
    assert corpora_of(text="text", paths=["books/*.txt"])
    assert corpora_of(**{column: "body"}, paths=["absent/*.jsonl", "books/*.txt"])
    Path("books/two.CSV.gz").write_bytes(b"")
    assert corpora_of(**{column: "body"}, paths=["books/*"])


def test_the_file_of_a_tokenizer_is_no_pattern() -> None:
    Path("vocab.txt").write_text("[PAD]\n")
    plans = [plan_of(changed(datasets__both__tokenizer={"file": name})) for name in ("vocab.txt", "vocab*")]
    line = "configuration: datasets.both.tokenizer.file: vocab* does not exist; put the file there or change the key"
    assert [plan.problems for plan in plans] == [[], [line]]


def test_changed_content_of_a_book_makes_a_new_corpus() -> None:
    before = plan_of(CONFIG)
    Path("books/one.txt").write_text("Another book.")
    after = plan_of(CONFIG)
    assert len(before.corpora.keys() & after.corpora.keys()) == 1
    assert not before.datasets.keys() & after.datasets.keys()


def test_a_licence_alters_no_corpus_and_cleaning_does() -> None:
    before = plan_of(CONFIG).corpora.keys()
    assert plan_of(changed(corpora__books__licence="public domain")).corpora.keys() == before
    assert plan_of(changed(corpora__wikipedia__cleaning=["headings"])).corpora.keys() != before
    assert plan_of(changed(corpora__wikipedia__sentences="unicode")).corpora.keys() != before


def test_the_extractor_alters_a_corpus_and_so_does_the_version_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_of(CONFIG).corpora.keys()
    assert plan_of(changed(corpora__wikipedia__extractor="bertline")).corpora.keys() == before
    assert plan_of(changed(corpora__wikipedia__list_items="sentences")).corpora.keys() == before
    assert plan_of(changed(corpora__wikipedia__tables="text")).corpora.keys() != before
    assert plan_of(changed(corpora__wikipedia__list_items="all")).corpora.keys() != before
    theirs = changed(corpora__wikipedia__extractor="wikiextractor")
    of_theirs = plan_of(theirs).corpora.keys()
    assert len(of_theirs & before) == len(before) - 1
    monkeypatch.setitem(STAGE_VERSIONS, "extraction", 0)
    assert plan_of(theirs).corpora.keys() == of_theirs
    assert len(plan_of(CONFIG).corpora.keys() & before) == len(before) - 1


def test_the_version_of_plain_text_alters_no_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    before = plan_of(CONFIG).corpora
    monkeypatch.setitem(STAGE_VERSIONS, "plain_text", 0)
    after = plan_of(CONFIG).corpora
    assert {before[key]["name"] for key in before.keys() - after.keys()} == {"books"}


@pytest.mark.parametrize(
    ("name", "settings", "is_renamed"),
    [
        ("one.txt", {}, False),
        ("one.jsonl.gz", {}, False),
        ("html.txt", {}, False),
        ("one.HTM.gz", {}, True),
        ("one.xhtml", {}, True),
        ("one.tar.gz", {}, True),
        ("one.ZIP", {}, True),
        ("one.tgz", {"format": "leipzig", "sentences": "lines"}, False),
    ],
)
def test_the_version_of_web_pages_alters_only_corpora_that_may_have_some(
    monkeypatch: pytest.MonkeyPatch, name: str, settings: dict, is_renamed: bool
) -> None:
    Path("books", name).write_text("It rained.")
    config = changed(corpora__books={"source": "files", "paths": [f"books/{name}"], **settings})
    before = plan_of(config).corpora
    monkeypatch.setitem(STAGE_VERSIONS, "web_pages", 0)
    after = plan_of(config).corpora
    assert {before[key]["name"] for key in before.keys() - after.keys()} == ({"books"} if is_renamed else set())


@pytest.mark.parametrize(
    ("tokenizer", "is_renamed"),
    [
        ({"train": "wordpiece", "vocab_size": 600}, False),
        ({"train": "bpe", "vocab_size": 600}, True),
        ({"train": "unigram", "vocab_size": 600}, True),
        ({"file": "vocab.txt"}, False),
        ({"file": "tokenizer.json"}, True),
    ],
)
def test_the_version_of_spaces_alters_no_dataset_of_wordpiece(
    monkeypatch: pytest.MonkeyPatch, tokenizer: dict, is_renamed: bool
) -> None:
    for name in ("vocab.txt", "tokenizer.json"):
        Path(name).write_text("the")
    config = changed(datasets__both__tokenizer=tokenizer)
    before = plan_of(config).datasets.keys()
    monkeypatch.setitem(STAGE_VERSIONS, "spaces", 0)
    assert (plan_of(config).datasets.keys() != before) == is_renamed


DUMP = b"<mediawiki><siteinfo></siteinfo></mediawiki>"


def corpus_of(settings: dict, **others: object) -> dict:
    return next(
        iter(plan_of(changed(corpora={"c": settings}, datasets__both__corpora=["c"], **others)).corpora.values())
    )


def test_a_dump_that_is_here_needs_no_contact_and_is_identified_by_its_content() -> None:
    for folder, names in (("a", ["w10.xml.bz2", "w9.xml.bz2"]), ("b", ["x1.xml", "x2.xml"])):
        Path(folder).mkdir()
        for number, name in enumerate(sorted(names, key=len)):
            Path(folder, name).write_bytes(DUMP + b"%d" % number)
    online = {"mirrors": ["https://dumps.wikimedia.org"]}
    here = corpus_of({"source": "wikimedia", "paths": ["a/*"], "language": "ltg"}, **online)
    assert [file["file"] for file in here["listing"]["parts"].values()] == ["a/w9.xml.bz2", "a/w10.xml.bz2"]
    assert "wiki" not in here
    assert corpus_of({"source": "wikimedia", "paths": ["b/*"]})["key"] == here["key"]
    assert corpus_of({"source": "wikimedia", "paths": ["a/*"], "salvage": True})["key"] != here["key"]
    assert plan_of(changed(corpora__wikipedia={"source": "wikimedia", "paths": ["none.xml"]})).problems == [
        "configuration: corpora.wikipedia.paths: no file matches 'none.xml'; put it there or change the key"
    ]


def test_the_parts_of_a_large_dump_are_found_by_their_official_names() -> None:
    names = ["w1.xml-p1p9.bz2", "w2.xml-p10p99.bz2"]
    for name in names:
        Path(name).write_bytes(DUMP)
    parts = corpus_of({"source": "wikimedia", "paths": ["w*.xml-p*.bz2"]})["listing"]["parts"]
    assert [part["file"] for part in parts.values()] == names


def test_a_url_that_is_of_no_text_by_its_name_is_refused_before_it_is_downloaded() -> None:
    url = {"url": "https://host/one.pdf", "sha256": hashlib.sha256(b"One book.").hexdigest()}
    with pytest.raises(BertlineError, match=r"https://host/one\.pdf is no plain text by its name; convert it"):
        corpora_of(urls=[url])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("w1.xml-p1p9.bz2", "is XML, not plain text; of a wiki's dump use `source: wikimedia`"),
        ("a.warc.wet.gz", "is of a web crawl, not plain text; use `source: warc`"),
        ("a.PDF", "is no plain text by its name; convert it to .txt or .html, or leave it out"),
    ],
)
def test_a_file_that_is_no_text_by_its_name_is_refused_when_planning(name: str, message: str) -> None:
    Path("books", name).write_text("a")
    with pytest.raises(BertlineError, match=re.escape(f"books/{name} {message}")):
        corpora_of(paths=["books/*"])
    assert corpora_of(paths=["books/*.txt"])


def test_of_an_unpacked_leipzig_corpus_only_the_sentences_are_read() -> None:
    kinds = ("sentences", "words", "sources", "inv_so", "inv_w", "co_n", "co_s")
    for name in (*(f"deu/deu_news-{kind}.txt" for kind in kinds), "deu/own.txt", "deu/deu_news-more.zip"):
        Path("books", name).parent.mkdir(exist_ok=True)
        Path("books", name).write_text("1\tOne.\n")
    asked = {"format": "leipzig", "sentences": "lines"}
    found = corpora_of(paths=["books/deu/*"], **asked)["books"]["parts"]["part-00000"]
    assert [Path(file).name for file in found] == ["deu_news-more.zip", "deu_news-sentences.txt", "own.txt"]
    assert (
        len(corpora_of(paths=["books/deu/*.txt"], sentences="lines")["books"]["parts"]["part-00000"]) == len(kinds) + 1
    )
    Path("books/deu/deu_news-sentences.txt").unlink()
    assert len(corpora_of(paths=["books/deu/*.txt"], **asked)["books"]["parts"]["part-00000"]) == len(kinds)


def test_files_to_download_are_the_corpus_that_they_are_when_they_are_here() -> None:
    here = corpus_of({"source": "files", "paths": ["books/*.txt"]})
    url = {"url": "https://host/one.txt", "sha256": hashlib.sha256(b"One book.").hexdigest()}
    plan = plan_of(changed(corpora={"c": {"source": "files", "urls": [url]}}, datasets__both__corpora=["c"]))
    (corpus,) = plan.corpora.values()
    assert corpus["key"] == here["key"]
    assert corpus["parts"] == {"part-00000": [f"resources/texts/{url['sha256']}/./one.txt"]}
    assert plan.downloads[f"resources/texts/{url['sha256']}/one.txt"] == url
    assert plan.problems == []


@pytest.mark.parametrize(("texts", "size"), [(["a"], 1), (["a", "b"], 1), (["a", "b"], 9), (list("abcde"), 2)])
def test_a_part_has_the_same_files_in_every_form_of_a_corpus(
    texts: list[str], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a form would take the parts that another made for its own, and lose texts, or have some twice."""
    monkeypatch.setattr("bertline.planning.corpora.BYTES_PER_PART", size)
    monkeypatch.setattr("bertline.planning.corpora.FILES_PER_PART", 3)
    make_files(*(f"texts/{text}" for text in texts))
    urls = [
        {"url": f"https://host/{text}", "sha256": hashlib.sha256(f"texts/{text}".encode()).hexdigest()}
        for text in texts
    ]
    forms = {"paths": ["texts/*"]}, {"paths": [f"texts/{text}" for text in reversed(texts)]}, {"urls": urls}
    corpora = [corpus_of({"source": "files", **form}) for form in forms]
    assert len({corpus["key"] for corpus in corpora}) == 1
    found: dict[str, list[str]] = {}
    for corpus in corpora:
        of_part = {part: [file.partition("/./")[2] for file in files] for part, files in corpus["parts"].items()}
        assert [file for files in of_part.values() for file in files] == texts
        assert all(found.setdefault(part, files) == files for part, files in of_part.items())


def test_gutenberg_s_books_are_downloads_by_number_with_checksums_if_given() -> None:
    books = {"source": "gutenberg", "books": [84, 11]}
    contact = {"contact": "me@university.edu"}
    plan = plan_of(changed(corpora={"c": books}, datasets__both__corpora=["c"], **contact))
    (corpus,) = plan.corpora.values()
    assert corpus["parts"] == {"part-00000": ["resources/gutenberg/11.txt", "resources/gutenberg/84.txt"]}
    assert plan.downloads["resources/gutenberg/11.txt"] == {}
    assert corpus_of({**books, "books": [11, 84]}, **contact)["key"] == corpus["key"]
    sums = {book: hashlib.sha256(book.encode()).hexdigest() for book in ("11", "84")}
    Path("sums").write_text("".join(f"{digest}  {book}.txt\n" for book, digest in sums.items()))
    plan = plan_of(changed(corpora={"c": {**books, "sha256": "sums"}}, datasets__both__corpora=["c"], **contact))
    assert plan.downloads["resources/gutenberg/84.txt"] == {"sha256": sums["84"]}
    assert set(plan.corpora) != {corpus["key"]}
    with pytest.raises(BertlineError, match=r"books: sums has no checksum of book 12; add it"):
        corpus_of({**books, "books": [12], "sha256": "sums"}, **contact)
    Path("empty").touch()
    with pytest.raises(BertlineError, match=r"books: empty has no checksum of book 11; add it"):
        corpus_of({**books, "sha256": "empty"}, **contact)
    for path, what in (("books", "is a folder"), ("none", "does not exist")):
        plan = plan_of(changed(corpora__books={**books, "sha256": path}, **contact))
        line = f"configuration: corpora.books.sha256: {path} {what}; put the file there or change the key"
        assert plan.problems == [line]
    Path("resources/gutenberg").mkdir(parents=True)
    Path("resources/gutenberg/84.txt").write_text("another")
    with pytest.raises(BertlineError, match=r"84\.txt has another checksum than sums states; delete it"):
        corpus_of({**books, "sha256": "sums"}, **contact)


@pytest.mark.parametrize(("contact", "problems"), [("you@university.edu", 1), ("me@university.edu", 0)])
def test_the_contact_of_the_example_is_not_sent_to_wikimedia(contact: str, problems: int) -> None:
    found = plan_of({**CONFIG, "contact": contact, "mirrors": ["https://dumps.wikimedia.org"]}).problems
    assert [problem.startswith("configuration: contact: still you@") for problem in found] == [True] * problems
    assert plan_of({**CONFIG, "contact": contact}).problems == []


def test_a_finished_dataset_needs_no_corpora(tmp_path: Path) -> None:
    plan = plan_of(finished_dataset(tmp_path / "theirs", static_masks=True))
    assert plan.corpora == {}
    assert plan.dataset_folder("e" * 16) == "theirs"  # as it is in this folder, which may move


@pytest.mark.parametrize("static_masks", [False, True])
def test_masking_is_not_a_setting_for_a_dataset_that_is_masked_already(tmp_path: Path, static_masks: bool) -> None:
    config = finished_dataset(tmp_path / "theirs", static_masks=static_masks)
    config["runs"]["theirs"]["phases"]["phase1"] = {**PHASE, "masking": {"max_predictions": 20}}
    if not static_masks:
        plan_of(config)
        return
    with pytest.raises(BertlineError) as caught:
        plan_of(config)
    assert str(caught.value) == (
        "configuration: runs.theirs.phases.phase1.masking: given {'max_predictions': 20}, but the dataset's samples "
        "were masked before and keep their masks; leave it out"
    )


@pytest.mark.parametrize("change", [{}, {"short_sequence_probability": 0.1}, {"pair_objective": "next_sentence"}])
def test_passes_that_would_all_make_the_same_samples_are_one_line(change: dict[str, Any]) -> None:
    """Without pairs, only the samples that are shorter by chance differ between passes."""
    settings = {"passes": 3, "pair_objective": "none", "short_sequence_probability": 0, **change}
    config = changed(datasets__both={**CONFIG["datasets"]["both"], **settings})
    if change:
        plan_of(config)
        return
    with pytest.raises(BertlineError, match=r"datasets\.both\.passes: given 3, but .* make the same samples; leave it"):
        plan_of(config)


def corpora_of(**books: object) -> dict[str, dict]:
    plan = plan_of(changed(corpora__books={"source": "files", **books}))
    return {entry["name"]: {**entry, "key": key} for key, entry in plan.corpora.items()}


def test_the_location_of_a_folder_of_texts_alters_nothing(tmp_path: Path) -> None:
    Path("elsewhere/sub").mkdir(parents=True)
    Path("elsewhere/sub/one.txt").write_text("One book.")
    here = corpora_of(paths=["books/*.txt"])["books"]
    there = corpora_of(paths=[f"{tmp_path}/elsewhere/sub/*.txt"])["books"]
    assert here["key"] == there["key"]
    assert here["parts"] == {"part-00000": ["books/./one.txt"]}
    deeper = corpora_of(paths=["elsewhere/**/*.txt"])["books"]
    assert deeper["parts"] == {"part-00000": ["elsewhere/./sub/one.txt"]}
    assert deeper["key"] != here["key"]


def test_a_file_that_two_patterns_name_is_read_once_and_two_of_one_name_are_refused() -> None:
    assert corpora_of(paths=["books/*.txt", "books/one.txt"])["books"]["parts"] == {"part-00000": ["books/./one.txt"]}
    Path("more").mkdir()
    Path("more/one.txt").write_text("Another book.")
    with pytest.raises(BertlineError, match=r"books/one\.txt and more/one\.txt would both be called 'one\.txt'"):
        corpora_of(paths=["books/*.txt", "more/*.txt"])


def test_many_small_files_make_the_same_parts_wherever_they_are() -> None:
    for number in range(2500):
        Path(f"books/a-rather-long-name-of-a-file-{number:05d}.txt").touch()
    here = corpora_of(paths=["books/*.txt"])["books"]
    assert sum(map(len, here["parts"].values())) == 2501
    elsewhere = Path("a-long-name-of-a-folder" * 5)
    Path("books").rename(elsewhere)
    there = corpora_of(paths=[f"{elsewhere}/*.txt"])["books"]
    assert there["key"] == here["key"]
    names = [[[Path(file).name for file in files] for files in corpus["parts"].values()] for corpus in (here, there)]
    assert names[0] == names[1]
    assert len(names[0]) > 1


def test_a_dataset_of_the_hub_needs_a_pinned_revision() -> None:
    books = {"source": "huggingface", "dataset": "some/books", "split": "train", "parts": 3}
    with pytest.raises(BertlineError, match="the key 'revision' is missing"):
        plan_of(changed(corpora__books=books))
    for moving in ("main", "v1.0", "abc1234"):
        with pytest.raises(BertlineError, match=r"corpora\.books\.revision: given .*, allowed is text matching"):
            plan_of(changed(corpora__books={**books, "revision": moving}))
    plan = plan_of(changed(corpora__books={**books, "revision": "0" * 40}))
    other = plan_of(changed(corpora__books={**books, "revision": "1" * 40}))
    assert list(plan.corpora[plan.corpus_of_name["books"]]["parts"]) == ["part-00000", "part-00001", "part-00002"]
    assert plan.corpus_of_name["books"] != other.corpus_of_name["books"]


def test_shards_of_a_size_are_those_of_the_number() -> None:
    Path("books/two.txt.gz").write_bytes(b"x" * 1000)  # counts three times
    Path("books/one.txt").write_text("x" * 2000)
    corpora = {"books": {"source": "files", "paths": ["books/*"]}}
    made, numbered = (
        plan_of(changed(corpora=corpora, datasets__both__corpora=["books"], datasets__both__shards=shards))
        for shards in ({"megabytes": 0.002}, 3)
    )
    assert made.datasets == numbered.datasets
    assert list(made.phases) == list(numbered.phases)
    assert next(iter(made.datasets.values()))["shards"] == ["00000", "00001", "00002", "held_out"]


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"megabytes": 1}, "datasets.both.shards: the size of wikipedia is not known before it is downloaded"),
        ({"megabytes": 0}, "datasets.both.shards.megabytes: given 0"),
        ({}, "megabytes"),
        (0, "datasets.both.shards: given 0"),
    ],
)
def test_a_size_of_shards_that_cannot_be_kept_is_one_line(shards: object, message: str) -> None:
    with pytest.raises(BertlineError, match=re.escape(message)):
        plan_of(changed(datasets__both__shards=shards))


def test_too_many_shards_are_one_line() -> None:
    corpora = {"books": {"source": "files", "paths": ["books/*"]}}
    with pytest.raises(BertlineError, match=r"make \d+ shards, at most 99999 are allowed; raise it"):
        plan_of(
            changed(corpora=corpora, datasets__both__corpora=["books"], datasets__both__shards={"megabytes": 1e-11})
        )


@pytest.mark.parametrize("shards", [1001, {"megabytes": 1e-4}], ids=str)
def test_thousands_of_shards_with_hardly_any_text_are_one_line(shards: object) -> None:
    Path("books/one.txt").write_text("x" * 200_000)
    corpora = {"books": {"source": "files", "paths": ["books/*", "absent.txt"]}}
    config = changed(corpora=corpora, datasets__both__corpora=["books"], datasets__both__shards=shards)
    assert plan_of(config).problems  # of a file whose size is not known
    corpora["books"]["paths"] = ["books/*"]
    said = r"shards: \d+ shards of about 200,000 bytes of text have less than 1000 each; give fewer"
    with pytest.raises(BertlineError, match=rf"^configuration: datasets\.both\.{said}"):
        plan_of(config)
    plan_of(config | {"datasets": {"both": config["datasets"]["both"] | {"shards": 1000}}})
    Path("books/one.txt").write_text("x" * 1_001_000)
    assert isinstance(shards, dict) or plan_of(config)


def test_a_language_that_is_not_identified_is_refused_before_anything_is_downloaded() -> None:
    for keep, key in (("lvs", "keep"), (["de", "lvs"], r"keep\.1")):
        with pytest.raises(
            BertlineError,
            match=rf"language_identification\.{key}: given 'lvs', allowed is one of 140 values, the nearest lv, ",
        ):
            plan_of(changed(corpora__wikipedia__language_identification={"keep": keep}))
    with pytest.raises(BertlineError, match=r"keep\.0: given false, .*; put it in quotes$"):
        plan_of(changed(corpora__wikipedia__language_identification={"keep": [False]}))
    allowed = load_schema(ROOT / "config/config.schema.yaml")["$defs"]["identified_language"]["enum"]
    with pytest.raises(BertlineError, match=f"known are {', '.join(allowed)}$"):
        language_filter({"xyz"}, 0.5)


@pytest.mark.parametrize(
    ("name", "what"), [("a{b}.txt", "braces for wildcards"), ("n<results>3.txt", "<results> for a variable")]
)
def test_a_file_whose_name_snakemake_does_not_take_as_it_is_is_one_line(name: str, what: str) -> None:
    Path("books", "1 < 2 > 1.txt").write_text("A book.")
    assert corpora_of(paths=["books/*.txt"])
    Path("books", name).write_text("Another book.")
    line = f"configuration: corpora.books.paths: books/{name}: Snakemake takes {what}; rename it"
    with pytest.raises(BertlineError) as raised:
        corpora_of(paths=["books/*.txt"])
    assert str(raised.value) == line
