"""Text files to documents."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import textwrap
import zlib
from pathlib import Path
from typing import Any

import pytest
import pyzstd
from corpus_recipe import corpus_recipe, read
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_corpus_unpacking import tar_bytes, zip_bytes

from bertline.console import BertlineError
from bertline.corpus import encodings, plain_text, sources, unpacking
from bertline.corpus.cleaning_steps import STEPS, clean_text, no_counts
from bertline.corpus.sentences import splitter_of


def put(path: Path, text: str | bytes) -> Path:
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def test_a_file_is_a_document_and_blank_lines_part_paragraphs(tmp_path: Path) -> None:
    book = put(tmp_path / "Moby Dick.txt", "\r\n  Call me\r\nIshmael.\r\n\r\n \r\nSome years\r\nago.\r\n\r\n* * *\r\n")
    documents, counts = read(tmp_path, book)
    assert documents == [
        {
            "id": "Moby Dick.txt",
            "title": "Moby Dick",
            "text": "Call me Ishmael.\nSome years ago.",
            "source": "books",
            "url": "",
        }
    ]
    assert (counts["read"], counts["kept"], counts["dropped"], counts["files"]) == (1, 1, {}, 1)


def test_paragraphs_without_a_letter_or_digit_are_counted(tmp_path: Path) -> None:
    """Those with symbols are counted apart: Braille and emoji are text to somebody."""
    text = put(tmp_path / "a.txt", "One.\n\n* * *\n\n-----\n\n😀 👍\n\nTwo.\n\n⠠⠃⠗⠁⠊⠇⠇⠑\n\n…\n")
    braille = put(tmp_path / "b.txt", "⠠⠃⠗⠁⠊⠇⠇⠑\n⠠⠃⠗⠁⠊⠇⠇⠑\n")
    (document,), counts = read(tmp_path, text, braille)
    assert document["text"] == "One.\nTwo."
    assert counts["dropped"] == {"empty": 1}
    assert counts["paragraphs_removed"] == {"symbols": 3, "punctuation": 3}


def test_files_keep_their_order_and_gzip_is_read(tmp_path: Path) -> None:
    files = [put(tmp_path / "z.txt", "Last."), put(tmp_path / "a.txt.gz", "First.")]
    documents, _ = read(tmp_path, *files)
    assert [(document["title"], document["text"]) for document in documents] == [("z", "Last."), ("a", "First.")]


@pytest.mark.parametrize(("ending", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_bzip2_and_xz_are_read_in_texts_tables_and_archives(tmp_path: Path, ending: str, pack: Any) -> None:
    text = put(tmp_path / f"a.txt.{ending}", pack(b"One.") + pack(b"") + pack(b" Two."))
    table = put(tmp_path / f"b.jsonl.{ending}", pack(b'{"text": "Three."}\n'))
    archive = put(tmp_path / f"c.tar.{ending}", pack(tar_bytes({"x.txt": b"Four.", f"y.txt.{ending}": pack(b"Five.")})))
    documents, _ = read(tmp_path, text, table, archive)
    assert [document["text"] for document in documents] == ["One. Two.", "Three.", "Four.", "Five."]
    assert documents[0]["title"] == "a"


@pytest.mark.parametrize(("ending", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress)])
def test_a_second_stream_is_not_ignored(tmp_path: Path, ending: str, pack: Any) -> None:
    """bz2.open and lzma.open silently return only the first stream."""
    packed, name = pack(b"One. "), f"a.txt.{ending}"
    for content, message in (
        (packed + b"no stream", f"no stream begins at byte {len(packed)}"),
        (packed + pack(b"Two.")[:-4], "it ends within a stream"),
        (packed[:-1], "it ends within a stream"),
        (b"One. Two. Three.", "nvalid data stream|format not supported"),
        (pack(b"a" * (1 << 25)), "unpacks to more than 100 times its size"),
    ):
        with pytest.raises(BertlineError, match=message):
            read(tmp_path, put(tmp_path / name, content))
    # As the program xz pads files on tapes.
    documents, _ = read(tmp_path, put(tmp_path / "b.txt.xz", lzma.compress(b"One.") + bytes(8)))
    assert documents[0]["text"] == "One."


def test_a_file_that_needs_much_memory_to_be_unpacked_is_refused_and_not_called_damaged(tmp_path: Path) -> None:
    xz = lzma.compress(b"One.", filters=[{"id": lzma.FILTER_LZMA2, "preset": 0}])
    compressor = pyzstd.ZstdCompressor()
    zstd = bytearray(compressor.compress(b"One.", compressor.FLUSH_BLOCK) + compressor.flush())
    zstd[5] = (28 - 10) << 3  # the size of the window in a frame's header: that of `zstd --long=28`
    for name, content in (("a.txt.xz", with_dictionary(xz, 1 << 29)), ("a.txt.zst", bytes(zstd))):
        message = rf"{name} needs more memory to be unpacked than is allowed \(.*\); unpack it, or pack it again with a"
        with pytest.raises(BertlineError, match=message):
            read(tmp_path, put(tmp_path / name, content))


def with_dictionary(xz: bytes, size: int) -> bytes:
    """Change the dictionary size that the header of an xz states; making one would need the memory."""
    header_end = 12 + (xz[12] + 1) * 4
    header = bytearray(xz[12 : header_end - 4])
    bits = next(bits for bits in range(41) if (2 | bits & 1) << (bits // 2 + 11) >= size)
    header[header.index(0x21) + 2] = bits  # after the id of LZMA2 and the size of its properties
    return xz[:12] + bytes(header) + zlib.crc32(header).to_bytes(4, "little") + xz[header_end:]


def test_a_leipzig_corpus_is_read_without_unpacking(tmp_path: Path) -> None:
    """Layout: https://wortschatz.uni-leipzig.de/en/download."""
    sentences = [f"Sentence {number} ends. Not here" for number in range(1, 251)]
    name = "ltg_wikipedia_2021_300K"
    lines = "".join(f"{number}\t{sentence}\n" for number, sentence in enumerate(sentences, 1)).encode()
    others = {f"{name}/{name}-{kind}.txt": b"1\tx\t5\n" for kind in ("words", "sources", "inv_so", "co_n")}
    archive = put(tmp_path / f"{name}.tar.gz", tar_bytes({**others, f"{name}/{name}-sentences.txt": lines}))
    asked = {"format": "leipzig", "sentences": "lines"}
    documents, counts = read(tmp_path, archive, **asked)
    assert [line for document in documents for line in document["text"].split("\n")] == sentences
    assert [document["id"] for document in documents] == [
        f"{name}.tar.gz!{name}/{name}-sentences.txt#{n}" for n in range(3)
    ]
    assert (counts["members_skipped"], counts["look_split"]) == ({"not a text": 4}, 0)
    unpacked = put(tmp_path / f"{name}-sentences.txt", lines)
    assert [document["text"] for document in read(tmp_path, unpacked, **asked)[0]] == [d["text"] for d in documents]
    with pytest.raises(BertlineError, match=r"a\.txt line 2 is not a number, a tab and a sentence.*; leave out format"):
        read(tmp_path, put(tmp_path / "a.txt", "1\tOne.\nTwo.\n"), **asked)
    with pytest.raises(BertlineError, match=r"has no member that is a -sentences\.txt"):
        read(tmp_path, put(tmp_path / "b.tar.gz", tar_bytes(others)), **asked)


def test_empty_lines_among_the_sentences_of_a_leipzig_corpus_are_skipped(tmp_path: Path) -> None:
    asked = {"format": "leipzig", "sentences": "lines"}
    documents, _ = read(tmp_path, put(tmp_path / "a-sentences.txt", "1\tOne.\n\n2\tTwo.\n \n\n"), **asked)
    assert [document["text"] for document in documents] == ["One.\nTwo."]


def test_capitals_in_a_suffix_change_nothing(tmp_path: Path) -> None:
    files = [
        put(tmp_path / "A.TXT.GZ", gzip.compress(b"One.")),
        put(tmp_path / "B.CSV", "text,n\nTwo.,1\n"),
        put(tmp_path / "C.Jsonl.BZ2", bz2.compress(b'{"text": "Three."}\n')),
        put(tmp_path / "D.TAR.XZ", lzma.compress(tar_bytes({"X.TXT.GZ": gzip.compress(b"Four.")}))),
        put(tmp_path / "E.ZIP", zip_bytes({"Y.TXT.Xz": lzma.compress(b"Five.")})),
        put(tmp_path / "F.HTML.GZ", gzip.compress(b"<html><body><p>Six is a page.</p></body></html>")),
    ]
    documents, counts = read(tmp_path, *files)
    assert [document["text"] for document in documents] == [
        "One.",
        "Two.",
        "Three.",
        "Four.",
        "Five.",
        "Six is a page.",
    ]
    assert counts["members_skipped"] == {}


def test_a_separator_divides_a_file_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    file = put(tmp_path / "many.txt", "One is long enough.\n---\n\n--- \nTwo.\n---\nThree is long enough.")
    documents, counts = read(tmp_path, file, separator="---", minimum_characters=10)
    assert [document["id"] for document in documents] == ["many.txt#0", "many.txt#3"]
    assert counts["read"] == 4
    assert counts["dropped"] == {"empty": 1, "short": 1}


@pytest.mark.parametrize("mark", ["\u200b", "\ufeff", "\u200e \u2060"])
def test_invisible_characters_on_a_dividing_line_do_not_join_documents(tmp_path: Path, mark: str) -> None:
    """Files with byte order marks that `cat` joined have one in the midst."""
    for settings_, line in (
        ({"separator": "---"}, f"{mark}---"),
        ({"separator": "---"}, f" ---{mark}"),
        ({"sentences": "lines"}, mark),
        ({"separator": "\n"}, mark),
    ):
        file = put(tmp_path / "a.txt", f"{mark}One.\n{line}\n{mark}Two. ---\nAnd so on.\n{line}\n{line}\nThree.\n")
        documents, _ = read(tmp_path, file, **settings_)
        assert [" ".join(document["text"].split()) for document in documents] == [
            "One.",
            "Two. --- And so on.",
            "Three.",
        ]


def test_a_separator_may_be_invisible(tmp_path: Path) -> None:
    documents, _ = read(tmp_path, put(tmp_path / "a.txt", "One.\n\n\nTwo.\n\u200b\nThree.\n"), separator="\u200b")
    assert [document["text"] for document in documents] == ["One.\nTwo.", "Three."]


def test_lines_that_are_not_wrapped_are_paragraphs(tmp_path: Path) -> None:
    file = put(tmp_path / "a.txt", f"{'A long paragraph. ' * 20}\nA short one.\nAnother.\n")
    documents, _ = read(tmp_path, file)
    assert documents[0]["text"].split("\n")[1:] == ["A short one.", "Another."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "\u3000吾輩は猫である。名前はまだ無\nい。どこで生れたかとんと見当が\nつかぬ。\n\u3000「行く。」\n\u3000と言った。\n",
            ["吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。", "「行く。」", "と言った。"],
        ),
        ("我们去了北京\n，然后 Linux\n很好\n", ["我们去了北京，然后 Linux 很好"]),
        (
            "他说“你好\n”然后走了。老人\n“走吧”——\n他说\n……\n好的，孔子\n·孟子\n‘好’\n字。他想\n—不。\n",
            ["他说“你好”然后走了。老人“走吧”——他说……好的，孔子·孟子‘好’字。他想—不。"],
        ),
        ("He said “yes”\n— and “no”\n…\nand ไป\n“มา”\n", ["He said “yes” — and “no” … and ไป “มา”"]),
        ("ภาษาไทยมีเสียงแน่น\nอนหรือ\n\nຄົນ\nລາວ\n", ["ภาษาไทยมีเสียงแน่นอนหรือ", "ຄົນລາວ"]),
        ("ខ្មែរ\nខ្មែរ\n\nမြန်မာ\nစာ\n", ["ខ្មែរខ្មែរ", "မြန်မာစာ"]),
        ("한국어를\n배운다\nnow\n", ["한국어를 배운다 now"]),
    ],
)
def test_wrapped_lines_of_scripts_without_spaces_are_joined_without_one(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    documents, _ = read(tmp_path, put(tmp_path / "a.txt", text))
    assert documents[0]["text"].split("\n") == expected


def test_lines_of_more_than_a_hundred_wide_characters_are_paragraphs(tmp_path: Path) -> None:
    lines = ["名" * 101, "前" * 20]
    documents, _ = read(tmp_path, put(tmp_path / "a.txt", "\n".join(lines)))
    assert documents[0]["text"].split("\n") == lines


URL = f"https://example.org/{'a' * 300}"


@pytest.mark.parametrize("name", ["carroll-alice", "shakespeare-hamlet", "whitman-leaves"])
def test_a_long_line_unwraps_no_book_and_is_a_paragraph(test_data: Path, tmp_path: Path, name: str) -> None:
    book = (test_data / "books" / f"{name}.txt").read_text()
    (alone,), _ = read(tmp_path, put(tmp_path / "a.txt", book))
    before, after = book[: len(book) // 2].rstrip("\n").rpartition("\n\n")[::2]
    rest = book[len(before) + len(after) + 2 :]
    (with_url,), _ = read(tmp_path, put(tmp_path / "b.txt", f"{before}\n{URL}\n\n{after}{rest}\n\n{URL}\n"))
    paragraphs = with_url["text"].split("\n")
    assert paragraphs.count(URL) == 2
    assert [paragraph for paragraph in paragraphs if paragraph != URL] == alone["text"].split("\n")


def test_a_long_line_parts_the_wrapped_lines_around_it(tmp_path: Path) -> None:
    filled = textwrap.fill("The man saw the old fox and went on. " * 30, 60)
    (document,), _ = read(tmp_path, put(tmp_path / "a.txt", f"{filled}\n{URL}\n{filled}\n"))
    joined = filled.replace("\n", " ")
    assert document["text"].split("\n") == [joined, URL, joined]


@pytest.mark.parametrize("long", [30, 6])  # percent
def test_a_text_with_a_paragraph_a_line_and_many_headings_is_not_wrapped(tmp_path: Path, long: int) -> None:
    lines = ["It rained. " * 30 if number % 100 < long else f"Heading {number}" for number in range(200)]
    lines = [line.strip() for line in lines]
    (document,), _ = read(tmp_path, put(tmp_path / "a.txt", "\n".join(lines)))
    assert document["text"].split("\n") == lines


def test_a_page_of_short_lines_that_are_not_full_is_not_wrapped_for_a_long_one(tmp_path: Path) -> None:
    lines = [f"Item {number}{' of the list' * (number % 4)}" for number in range(60)]
    lines[20] = "It rained, and nobody knew why the river had left its bed, " * 5 + "he said."
    (document,), _ = read(tmp_path, put(tmp_path / "a.txt", "\n".join(lines)))
    assert document["text"].split("\n") == lines


def test_a_word_that_a_soft_hyphen_divides_at_the_end_of_a_line_is_whole(tmp_path: Path) -> None:
    text = "An exam\u00ad\nple, a second exam\u00ad \nple, a well-\nknown one and the so\u00adft one\u00ad\n\nend.\n"
    (document,), _ = read(tmp_path, put(tmp_path / "a.txt", text))
    assert document["text"] == "An example, a second example, a well- known one and the soft one\nend."
    (document,), _ = read(tmp_path, put(tmp_path / "a.txt", f"{URL}\u00ad\nAnd so\u00ad\non.\n"))
    assert document["text"] == f"{URL}\nAnd so\non."


def test_lines_of_which_most_end_as_sentences_are_paragraphs(tmp_path: Path) -> None:
    lines = [
        "A title",
        *(f"Paragraph {number} has two sentences. This is{' one of many' * (number % 4)}." for number in range(12)),
    ]
    documents, _ = read(tmp_path, put(tmp_path / "a.txt", "\n".join(lines)))
    assert documents[0]["text"].split("\n") == lines


def test_short_sentences_in_wrapped_lines_are_joined(tmp_path: Path) -> None:
    text = textwrap.fill(" ".join(f"The man saw {'the old ' * (number % 3)}fox." for number in range(40)), 40)
    documents, _ = read(tmp_path, put(tmp_path / "a.txt", text))
    assert "\n" not in documents[0]["text"]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***", "*** END OF THE PROJECT GUTENBERG EBOOK EMMA ***"),
        ("***START OF THIS PROJECT GUTENBERG EBOOK EMMA***", "End of Project Gutenberg's Emma, by Jane Austen"),
        ("*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*", "End of the Project Gutenberg Etext"),
        (
            "*** START OF THE PROJECT GUTENBERG EBOOK EMMA, A NOVEL\nIN THREE VOLUMES ***",
            "*** END OF THE PROJECT GUTENBERG EBOOK EMMA, A NOVEL\nIN THREE VOLUMES ***",
        ),
    ],
)
def test_the_licence_of_project_gutenberg_is_cut_off(tmp_path: Path, start: str, end: str) -> None:
    file = put(tmp_path / "emma.txt", f"The licence.\n\n{start}\n\nEmma was handsome.\n\n{end}\n\nMore licence.\n")
    documents, counts = read(tmp_path, file)
    assert documents[0]["text"] == "Emma was handsome."
    assert counts["gutenberg_lines_removed"] == 7 - 1 + f"{start}{end}".count("\n")


def test_a_line_after_a_marker_of_project_gutenberg_that_is_not_closed_is_text(tmp_path: Path) -> None:
    for start in ("*** START OF THE PROJECT GUTENBERG EBOOK", "*** START OF THE PROJECT GUTENBERG EBOOK ***"):
        (document,), _ = read(tmp_path, put(tmp_path / "a.txt", f"{start}\nIt rained.\nStars: ***\n"))
        assert document["text"] == "It rained. Stars: ***"


def test_every_book_of_a_file_loses_its_licence_and_nothing_else(tmp_path: Path) -> None:
    books = [
        f"Header {number}.\n*** START OF THE PROJECT GUTENBERG EBOOK {number} ***\n\nBook {number}.\n\n"
        f"*** END OF THE PROJECT GUTENBERG EBOOK {number} ***\nFooter {number}.\n"
        for number in range(3)
    ]
    documents, counts = read(tmp_path, put(tmp_path / "all.txt", "".join(books)))
    assert documents[0]["text"] == "Book 0.\nBook 1.\nBook 2."
    assert counts["gutenberg_lines_removed"] == 4 * 3


def test_books_of_a_divided_file_lose_their_licences_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MAX_DOCUMENT_LENGTH", 200)
    books = [
        f"Header {number}.\n*** START OF THE PROJECT GUTENBERG EBOOK {number} ***\n\n"
        + "".join(f"Line {line} of book {number} ends here.\n\n" for line in range(20))
        + f"*** END OF THE PROJECT GUTENBERG EBOOK {number} ***\nFooter {number}.\n"
        for number in range(3)
    ]
    documents, counts = read(tmp_path, put(tmp_path / "all.txt", "".join(books)))
    text = "\n".join(document["text"] for document in documents)
    assert len(documents) > 3
    assert text.split("\n") == [f"Line {line} of book {number} ends here." for number in range(3) for line in range(20)]
    assert counts["gutenberg_lines_removed"] == 4 * 3


def test_small_print_after_the_end_does_not_cost_the_book(tmp_path: Path) -> None:
    text = "The Ball.\n\nEnd of Project Gutenberg's The Ball\n\n*END THE SMALL PRINT! FOR PUBLIC DOMAIN*\n"
    documents, _ = read(tmp_path, put(tmp_path / "ball.txt", text))
    assert documents[0]["text"] == "The Ball."


def test_a_line_that_begins_as_the_end_of_an_old_book_ends_no_other_text(tmp_path: Path) -> None:
    text = "This is the\nend of the Project Gutenberg era, they say.\n\nEnd of Project Gutenberg?\n\nIt goes on.\n"
    (document,), counts = read(tmp_path, put(tmp_path / "essay.txt", text))
    assert document["text"].split("\n") == [
        "This is the end of the Project Gutenberg era, they say.",
        "End of Project Gutenberg?",
        "It goes on.",
    ]
    assert counts["gutenberg_lines_removed"] == 0


def test_markers_of_project_gutenberg_cost_other_texts_no_more_than_a_licence(tmp_path: Path) -> None:
    lines = [f"Sentence {number} of a text that is not in the book." for number in range(9000)]
    markers = {3000: "*** START OF THE PROJECT GUTENBERG EBOOK ***", 6000: "*** END OF THE PROJECT GUTENBERG EBOOK ***"}
    given = [line for number, line in enumerate(lines) for line in (markers.get(number), line) if line]
    (document,), counts = read(tmp_path, put(tmp_path / "all.txt", "\n\n".join(given)))
    removed = set(lines) - set(document["text"].split("\n"))
    assert removed == set(lines[6000 : 6000 + len(removed)])
    assert 60_000 < sum(len(line) + 2 for line in removed) <= plain_text.MAX_LICENCE_LENGTH
    assert counts["gutenberg_lines_removed"] == pytest.approx(2 * len(removed) + 2, abs=2)


def test_old_books_in_one_file_lose_what_is_between_them(tmp_path: Path) -> None:
    books = [
        f"Header.\n\n*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\nBook {number}.\n\n"
        f"End of the Project Gutenberg Etext of {number}\n\nFooter.\n\n"
        for number in range(3)
    ]
    (document,), _ = read(tmp_path, put(tmp_path / "all.txt", "".join(books)))
    assert document["text"] == "Book 0.\nBook 1.\nBook 2."


def test_a_text_that_is_not_utf_8_is_reported_with_the_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "CHUNK_BYTES", 7)
    content = "Grüße über alles ".encode() + "Käse".encode("latin-1")
    file = put(tmp_path / "a.txt", content)
    with pytest.raises(BertlineError) as caught:
        read(tmp_path, file)
    assert f"{file} is not utf-8: byte {content.index(0xE4)} is 0xe4" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    documents, _ = read(tmp_path, put(tmp_path / "b.txt", "Käse".encode("latin-1")), encoding="latin-1")
    assert documents[0]["text"] == "Käse"


def test_a_character_cut_off_at_the_end_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BertlineError, match=r"is not utf-8: byte 2 is 0xc3 \(unexpected end of data\)"):
        read(tmp_path, put(tmp_path / "a.txt", b"ab\xc3"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
@settings(deadline=None, max_examples=50)
@given(text=st.text(st.sampled_from("aé \r\n"), max_size=30))
def test_chunks_do_not_alter_lines(tmp_path_factory: pytest.TempPathFactory, encoding: str, text: str) -> None:
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(text.encode(encoding))
    expected = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    with pytest.MonkeyPatch.context() as patch:
        for size in (1, 3, 1 << 20):
            patch.setattr(encodings, "CHUNK_BYTES", size)
            with path.open("rb") as file:
                assert (list(plain_text.decoded_lines(file, "a.txt", encoding)) or [""]) == expected


@settings(deadline=None, max_examples=60)
@given(content=st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(content=b"\xef\xbb")
@example(content=b"PK\x03\x04")
@example(content=b"Rar!\x1a\x07")
@example(content=b"%PDF-")
def test_any_bytes_are_a_document_a_reason_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    """NULs, half surrogate pairs, the start of a packed file, a single word, nothing at all."""
    folder = tmp_path_factory.mktemp("bytes")
    if content.startswith(tuple(unpacking.PACKED_STARTS)):
        with pytest.raises(BertlineError, match=r"a\.txt is (packed by|a PDF)"):
            read(folder, put(folder / "a.txt", content))
        return
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        with pytest.raises(BertlineError, match=f"a.txt is not utf-8: byte {error.start} is "):
            read(folder, put(folder / "a.txt", content))
        return
    if content.count(0) > max(3, 0.01 * len(content.decode())):
        with pytest.raises(BertlineError, match="NUL characters"):
            read(folder, put(folder / "a.txt", content))
        return
    documents, counts = read(folder, put(folder / "a.txt", content))
    assert counts["read"] == 1 == len(documents) + counts["dropped"].get("empty", 0)


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    start = "*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***"
    documents, _ = read(tmp_path, put(tmp_path / "a.txt", f"\ufeff{start}\nEmma was handsome."))
    assert documents[0]["text"] == "Emma was handsome."


@pytest.mark.parametrize("source", ["files", "warc", "huggingface"])
def test_a_part_that_a_corpus_does_not_have_is_one_line(tmp_path: Path, source: str) -> None:
    settings_ = {"dataset": "a/b", "revision": None, "split": "train"} if source == "huggingface" else {}
    corpus = corpus_recipe(source, {f"part-{number:05d}": [] for number in range(5)}, **settings_)
    message = r"the corpus books has no part 'part-00009', only part-00000, part-00001, part-00002, \.\.\.; name one of"
    with pytest.raises(BertlineError, match=message):
        sources.read_part(corpus, "part-00009", tmp_path / "o.jsonl.zst", tmp_path / "c.json")


def test_bad_files_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    cut = tmp_path / "cut.txt.gz"
    cut.write_bytes(gzip.compress(b"text" * 1000)[:-12])
    plain = tmp_path / "plain.txt.gz"
    plain.write_bytes(b"text")
    for file, message in (
        (cut, r"cut\.txt\.gz is damaged or truncated \(Compressed file ended"),
        (plain, r"plain\.txt\.gz is damaged or truncated \(Not a gzipped file"),
        (tmp_path / "no", "no does not exist"),
        (tmp_path, "is a folder; name the files in it"),
    ):
        with pytest.raises(BertlineError, match=message):
            read(tmp_path, file)
    for encoding in (
        "utf8000",
        "rot13",
        "base64",
        "hex",
        "bz2",
        "undefined",
        "unicode_escape",
        "raw-unicode-escape",
        "idna",
        "punycode",
        "a\0b",
    ):
        with pytest.raises(BertlineError, match=r"the encoding .* is unknown"):
            read(tmp_path, plain, encoding=encoding)
    for name in ("a.xml", "b.XML.gz", "c.xml.bz2", "d.xml.7z", "pages-articles1.xml-p1p41242.bz2", "f.xml-p1p9"):
        with pytest.raises(BertlineError, match=rf"{name} is XML, not plain text; .* `source: wikimedia`.* to \.txt"):
            read(tmp_path, tmp_path / name)
    for name in ("a.warc", "a.WARC.gz", "a.warc.wet.gz", "a.wet.gz", "a.wat.gz"):
        with pytest.raises(BertlineError, match=rf"{name} is of a web crawl, not plain text; use `source: warc`"):
            read(tmp_path, tmp_path / name)
    for name in (
        "a.pdf",
        "a.rtf",
        "a.DOC",
        "a.docx",
        "a.odt",
        "a.epub",
        "a.rtf.gz",
        "a.xlsx",
        "a.feather",
        "a.fb2",
        "a.mht",
    ):
        with pytest.raises(BertlineError, match=rf"{name} is no plain text by its name; convert it to \.txt or \.html"):
            read(tmp_path, tmp_path / name)
    for name in ("a.lzma", "a.rar", "a.RAR", "a.txt.lzma"):
        with pytest.raises(BertlineError, match=rf"{name} is packed in a format that is not read; pack it again as"):
            read(tmp_path, tmp_path / name)
    with pytest.raises(BertlineError, match=r"a\.7z is a 7-Zip archive, not plain text"):
        read(tmp_path, tmp_path / "a.7z")
    unmarked = put(tmp_path / "plain.txt", "text".encode("utf-16-le"))
    with pytest.raises(BertlineError, match=r"plain\.txt is not utf-16: it has no byte order mark; .* as utf-16-le$"):
        read(tmp_path, unmarked, encoding="utf-16")
    unmarked.unlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.txt.gz", "plain.txt.gz"]


def test_no_word_of_a_real_book_is_lost(test_data: Path, tmp_path: Path) -> None:
    for name, encoding in (("melville-moby_dick", "utf-8"), ("chesterton-ball", "latin-1")):
        file = test_data / "books" / f"{name}.txt"
        documents, _ = read(tmp_path, file, encoding=encoding)
        words = file.read_bytes().decode(encoding).partition("End of Project Gutenberg's")[0].split()
        assert len(words) > 79_000
        assert with_letters(documents[0]["text"].split()) == with_letters(words)


def with_letters(words: list[str]) -> list[str]:
    return [word for word in words if any(map(str.isalnum, word))]


def test_ids_do_not_depend_on_where_the_files_lie(tmp_path: Path) -> None:
    (tmp_path / "here/sub").mkdir(parents=True)
    put(tmp_path / "here/sub/a.txt", "One.")
    documents, _ = read(tmp_path, f"{tmp_path}/here/./sub/a.txt", f"{tmp_path}/here/sub/a.txt")
    assert [document["id"] for document in documents] == ["sub/a.txt", "a.txt"]


@settings(deadline=None, max_examples=30)
@given(words=st.lists(st.text(st.sampled_from("ab\u00e9"), min_size=1, max_size=9), min_size=1, max_size=40))
def test_a_long_text_is_divided_and_loses_no_word(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    folder = tmp_path_factory.mktemp("long")
    file = put(folder / "long.txt", "\n".join([" ".join(words)] * 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_text, "MAX_DOCUMENT_LENGTH", 64)
        documents, counts = read(folder, file)
    kept = [word for document in documents for word in document["text"].split()]
    assert kept == words * 3
    assert counts["divided"] == counts["read"] - 1


def test_a_long_line_is_cut_between_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_text, "MAX_LINE_LENGTH", 1000)
    monkeypatch.setattr(encodings, "CHUNK_BYTES", 100)
    words = [f"word{number}" for number in range(2000)]
    documents, _ = read(tmp_path, put(tmp_path / "line.txt", " ".join(words)))
    assert documents[0]["text"].split() == words
    assert max(map(len, documents[0]["text"].split("\n"))) <= 1000


def test_the_two_latin_1_books_are_refused_as_utf_8(test_data: Path, tmp_path: Path) -> None:
    for name in ("chesterton-ball", "shakespeare-caesar"):
        file = test_data / "books" / f"{name}.txt"
        content = file.read_bytes()
        with pytest.raises(BertlineError) as caught:
            read(tmp_path, file)
        with pytest.raises(UnicodeDecodeError) as reference:
            content.decode()
        assert f"byte {reference.value.start} is" in str(caught.value)


WIKITEXT = [
    "A [[link]] and {{x}}.",
    "* an item",
    "formula_1",
    "It (, born) fell ().",
    "| 1990 || 3",
    "Plain.",
    "* * *",
    "",
]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.sampled_from(WIKITEXT), max_size=6), min_size=1, max_size=5),
    st.permutations([name for name in STEPS if name != "headings"]).flatmap(
        lambda all: st.sampled_from([all, all[:2]])
    ),
)
def test_steps_clean_paragraphs_and_what_they_remove_is_counted(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], steps: list[str]
) -> None:
    """Whether texts are files or rows: the same as cleaning the paragraphs that are there without steps."""
    folder = tmp_path_factory.mktemp("texts")
    files = [put(folder / f"{number}.txt", "\n\n".join(lines)) for number, lines in enumerate(texts)]
    rows = put(folder / "rows.jsonl", "".join(json.dumps({"text": "\n\n".join(lines)}) + "\n" for lines in texts))
    as_they_are = {document["id"]: document["text"] for document in read(folder, *files)[0]}
    expected, removed = [], no_counts(steps)
    for number in range(len(texts)):
        text = clean_text(as_they_are.get(f"{number}.txt", ""), [], steps, removed)
        expected += [text] if text else []
    for given_files in (files, [rows]):
        documents, counts = read(folder, *given_files, cleaning=steps)
        assert [document["text"] for document in documents] == expected
        assert counts["cleaning"] == removed
        assert counts["read"] == len(texts) == counts["kept"] + counts["dropped"].get("empty", 0)
    assert "cleaning" not in read(folder, *files)[1]


def test_what_normalisation_removes_and_replaces_is_counted() -> None:
    counts = no_counts(["markup"])
    text = "The mill.\n\u200b\u200e\nThe\u00a0end.\n''\u200b'' \n''''\n \t "
    assert clean_text(text, [], ["markup"], counts) == "The mill.\nThe end."
    # Two lines of what is invisible; the last is empty after the step, which left a space.
    assert counts["normalisation"] == {"lines": 2, "characters": 2 + 4 + 1, "documents": 1}
    assert counts["markup"] == {"lines": 1, "characters": 2 + 3, "documents": 1}
    counts = no_counts([])
    clean_text("The\u00a0end of 10 \u212b.", [], [], counts)  # each for another character
    assert counts["normalisation"] == {"lines": 0, "characters": 0, "documents": 1}


SPLIT = "It rained. Dr. No left\nIt did not stop.\n\n \nThe end\nof it, at last\n\n"


@pytest.mark.parametrize(
    ("settings_", "expected"),
    [
        ({}, ["It rained. Dr. No left\nIt did not stop.", "The end\nof it, at last"]),
        ({"separator": "It did not stop."}, ["It rained. Dr. No left", "The end\nof it, at last"]),
    ],
)
def test_a_text_of_sentences_keeps_its_lines_and_empty_lines_part_documents(
    tmp_path: Path, settings_: dict[str, Any], expected: list[str]
) -> None:
    documents, counts = read(tmp_path, put(tmp_path / "a.txt", SPLIT), sentences="lines", **settings_)
    assert [document["text"] for document in documents] == expected
    assert (counts["read"], counts["dropped"]) == (2, {})
    split = splitter_of(corpus_recipe("files", sentences="lines"))
    assert split("It rained. Dr. No left") == ["It rained. Dr. No left"]


def test_sentences_of_about_equal_length_are_no_wrapped_text() -> None:
    documents = ["\n".join(f"Sentence {place} of document {number} ends." for place in range(5)) for number in range(9)]
    assert plain_text.looks_split("\n\n".join(documents).split("\n"))


@pytest.mark.parametrize("settings_", [{"sentences": "lines"}, {"separator": "\n"}])
def test_a_licence_is_removed_before_empty_lines_divide_a_text(tmp_path: Path, settings_: dict[str, Any]) -> None:
    licence = "".join(f"Paragraph {number} of the licence.\n\n" for number in range(40))
    start, end = (f"*** {word} OF THE PROJECT GUTENBERG EBOOK EMMA ***\n\n" for word in ("START", "END"))
    text = f"{licence}{start}Emma was handsome.\n\n\nShe was clever.\n\n{end}{licence}"
    documents, counts = read(tmp_path, put(tmp_path / "emma.txt", text), **settings_)
    assert [document["text"] for document in documents] == ["Emma was handsome.", "She was clever."]
    assert counts["read"] == 2
    assert counts["gutenberg_lines_removed"] == 4 * 40 + 2 + 1  # and the empty line after the end marker


@pytest.mark.parametrize("mark", [".", "。", ""])  # Thai sentences end without a mark
def test_a_text_of_sentences_that_is_read_as_one_document_is_counted(tmp_path: Path, mark: str) -> None:
    text = "".join(f"{'word ' * (3 + number * 7 % 23)}end{mark}\n" + "\n" * (number % 3 == 2) for number in range(30))
    _, counts = read(tmp_path, put(tmp_path / "sentences.txt", text))
    assert counts["look_split"] == 1
    wrapped = "".join(textwrap.fill(f"{line} And so on.", 40) + "\n\n" for line in text.split("\n"))
    verse = "".join(
        f"{'la ' * (3 + number % 9)}{'.' if number % 4 == 3 else ','}\n" + "\n" * (number % 4 == 3)
        for number in range(40)
    )
    _, counts = read(tmp_path, put(tmp_path / "book.txt", wrapped), put(tmp_path / "verse.txt", verse))
    assert counts["look_split"] == 0
