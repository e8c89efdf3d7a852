"""Resolution of a configuration's corpora, and of the files that it names."""

from __future__ import annotations

import codecs
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path

from bertline.console import BertlineError
from bertline.corpus.books import read_checksums
from bertline.corpus.dump_files import check_name, is_multistream, natural_order
from bertline.corpus.encodings import check_encoding
from bertline.corpus.quality import comparable_stop_words
from bertline.corpus.unpacking import check_is_text, is_archive, is_web_page, without_lists
from bertline.files import Json, check_is_utf8, digest_of_files
from bertline.fingerprint import STAGE_VERSIONS, fingerprint, stage_versions
from bertline.planning.entries import CorpusEntry, CorpusText
from bertline.planning.patterns import check_for_snakemake, find_files, fixed_part
from bertline.results import paths
from bertline.settings.configuration import definition, strip_defaults

BYTES_PER_PART = 100_000_000  # of text files read by one job
LOCAL_FILES_PER_PART = 1000
FILES_PER_PART = 100  # of those to download, whose sizes are not known
EXAMPLE_CONTACT = "you@university.edu"  # of config/config.yaml
REMEMBERED_DIGESTS = Path(paths.DIGESTS_OF_INPUTS)


def resolve_corpus(
    config: Json, schema: Json, name: str, problems: list[str], downloads: dict[str, Json]
) -> CorpusEntry:
    """Return the recipe of a corpus.

    Args:
        config: the whole configuration, completed with defaults.
        schema: config/config.schema.yaml.
        name: the corpus's name under `corpora`.
        problems: missing inputs are appended, because a dry run continues without them.
        downloads: files that the graph downloads are added, path -> source.

    Raises BertlineError if a contact is needed and not given, and for incompatible settings.
    """
    corpus = config["corpora"][name]
    kind = corpus["source"]
    semantic = strip_defaults(corpus, definition(schema, kind), schema)
    if kind == "wikimedia":
        _check_wikimedia(corpus, semantic, name)
    _check_stop_words(corpus, semantic, name)
    _check_sentences(corpus, name)
    if "encoding" in corpus:
        try:
            check_encoding(corpus["encoding"])
        except BertlineError as error:
            raise BertlineError(f"configuration: corpora.{name}.encoding: {error}") from None
    separator = corpus.get("separator", "\n")
    if separator != "\n" and ("\n" in separator.strip() or not separator.strip()):
        problem = "has a line break" if separator.strip() else "is white space, which does not count"
        raise BertlineError(
            f"configuration: corpora.{name}.separator: {separator!r} {problem}; give a line with a visible mark, or "
            '"\\n" for empty lines'
        )
    _leave_out_spelling(semantic, schema)
    before = len(problems)
    text = _text_of(config, name, semantic, problems, downloads)
    files = [file for part in text.get("parts", {}).values() for file in part]
    if len(problems) == before:  # all files are known
        _check_columns(corpus, semantic, name, files)
    if corpus["punkt"] != "trained":
        folder = expand(problems, f"corpora.{name}.punkt", [f"{corpus['punkt']}/*"])
        of_model = digests(folder)
        semantic["punkt"] = sorted(of_model.values())
        text["sha256"] = {**text.get("sha256", {}), **of_model}
    stages = ["documents", "sentences"]
    if corpus.get("extractor") == "bertline":
        stages.append("extraction")
    stages.append("dump" if kind == "wikimedia" else "plain_text")
    packed_pages_count = corpus.get("format") != "leipzig"
    if kind == "files" and any(is_web_page(file) or (is_archive(file) and packed_pages_count) for file in files):
        stages.append("web_pages")
    stages += [step for step in corpus["cleaning"] if step in STAGE_VERSIONS]
    key = fingerprint({"name": name, "corpus": semantic, "versions": stage_versions(*stages)})
    return {"name": name, "settings": corpus, **text, "key": f"{name}-{key[:8]}"}


def _leave_out_spelling(semantic: Json, schema: Json) -> None:
    """Write the settings that identify a corpus in one way, without those that change no document."""
    semantic.pop("licence", None)
    if not semantic.get("salvage"):  # else a file is read up to this limit; without, it is refused
        semantic.pop("unpack_ratio", None)
    if "encoding" in semantic:
        given = semantic["encoding"]
        names = [codecs.lookup(encoding).name for encoding in ([given] if isinstance(given, str) else given)]
        semantic["encoding"] = names if len(names) > 1 else names[0]
        if semantic["encoding"] == "utf-8":
            del semantic["encoding"]
    if "stop_words" in semantic:
        words = [*comparable_stop_words(tuple(semantic.pop("stop_words")))]
        if words != definition(schema, "stop_words")["default"]:
            semantic["stop_words"] = words
    identification = semantic.get("language_identification", {})
    if "keep" in identification:
        keep = identification["keep"]
        languages = sorted({keep} if isinstance(keep, str) else set(keep))
        semantic["language_identification"] = {
            **identification,
            "keep": languages if len(languages) > 1 else languages[0],
        }


def _text_of(config: Json, name: str, semantic: Json, problems: list[str], downloads: dict[str, Json]) -> CorpusText:
    """Return what names a corpus's text.

    Args:
        semantic: the settings that identify the corpus; digests of files replace their paths and addresses.
    """
    corpus = config["corpora"][name]
    if corpus["source"] == "wikimedia":
        if "paths" in corpus:
            of_dump, listing = _dump_files(name, corpus, problems)
            semantic["paths"] = list(of_dump.values())
            semantic.pop("language", None)  # only cards show it
            return {"listing": listing, "sha256": of_dump}
        _check_contact(config, name, problems)
        return {"wiki": f"{corpus['language']}wiki"}
    if corpus["source"] == "gutenberg":
        _check_contact(config, name, problems, "gutenberg_mirrors")
        return {"parts": _gutenberg_parts(name, corpus, semantic, problems, downloads)}
    if "urls" in corpus:
        if "paths" in corpus:
            raise BertlineError(
                f"configuration: corpora.{name}.urls: given with paths; leave one of the two out, or make two corpora"
            )
        semantic["paths"] = _files_to_download(name, semantic.pop("urls"), downloads)
        located = [
            paths.TEXT_FILE.format(sha256=digest, file=f"./{file}") for file, digest in semantic["paths"].items()
        ]
        # The corpus of `paths` has this key, too, and may have other files in parts of these numbers.
        return {"parts": _numbered(located, FILES_PER_PART, "urls" if len(located) > 1 else "part")}
    if "paths" not in corpus:
        return {"parts": {f"part-{index:05d}": [] for index in range(corpus["parts"])}}
    files = _named_files(problems, f"corpora.{name}.paths", corpus["paths"])
    if corpus.get("format") == "leipzig":
        files = {file: files[file] for file in without_lists(files)}
    if corpus["source"] == "files":
        for path in files.values():
            check_is_text(path)
    of_paths = digests(list(files.values()))
    semantic["paths"] = {file: of_paths[str(path)] for file, path in files.items()}
    return {"parts": {f"part-{index:05d}": part for index, part in enumerate(_group(files))}, "sha256": of_paths}


def _check_wikimedia(corpus: Json, semantic: Json, name: str) -> None:
    """Raise BertlineError for settings that the files, or the extractor, of a dump do not use."""
    for setting, needed in (("dump", False), ("salvage", True), ("unpack_ratio", True)):
        if setting in semantic and needed != ("paths" in corpus):
            raise BertlineError(
                f"configuration: corpora.{name}.{setting}: given '{corpus[setting]}', but "
                + ("it is for files named by paths" if needed else "paths name the files")
                + "; leave one of the two out"
            )
    for setting in ("list_items", "tables", "templates"):
        if setting in semantic and corpus["extractor"] != "bertline":
            raise BertlineError(
                f"configuration: corpora.{name}.{setting}: given '{corpus[setting]}', but wikiextractor keeps no "
                f"{setting.replace('_', ' ')}; leave one of the two out"
            )


def _check_sentences(corpus: Json, name: str) -> None:
    """Raise BertlineError for settings of sentence splitters that contradict each other."""
    if corpus.get("format") == "leipzig" and corpus["sentences"] != "lines":
        raise BertlineError(
            f"configuration: corpora.{name}.sentences: given '{corpus['sentences']}', but the Leipzig corpora have one "
            "sentence per line; set sentences: lines"
        )
    if corpus["punkt"] != "trained" and corpus["sentences"] != "punkt":
        raise BertlineError(
            f"configuration: corpora.{name}.punkt: given '{corpus['punkt']}', but sentences is {corpus['sentences']}; "
            "leave one of the two out"
        )
    if ("sentence_language" in corpus) != (corpus["sentences"] == "sentencex"):
        raise BertlineError(
            f"configuration: corpora.{name}: sentences is {corpus['sentences']}, and sentence_language "
            + (f"is '{corpus['sentence_language']}'" if "sentence_language" in corpus else "is missing")
            + "; give both `sentences: sentencex` and a language, or neither"
        )


def _check_stop_words(corpus: Json, semantic: Json, name: str) -> None:
    """Raise BertlineError for unused stop words, ones that are no words, and English ones for another language."""
    if "stop_words" in semantic:
        if "gopher_quality" not in corpus["cleaning"]:
            raise BertlineError(
                f"configuration: corpora.{name}.stop_words: given, but only gopher_quality uses them, which is "
                "not in cleaning; leave them out, or add it there"
            )
        try:
            comparable_stop_words(tuple(corpus["stop_words"]))
        except BertlineError as error:
            raise BertlineError(f"configuration: corpora.{name}.{error}") from None
    kept = corpus.get("language_identification", {}).get("keep", [])
    languages = {corpus.get("language"), *([kept] if isinstance(kept, str) else kept)} - {None, "simple"}
    if "gopher_quality" in corpus["cleaning"] and "stop_words" not in semantic and languages - {"en", "eng"}:
        raise BertlineError(
            f"configuration: corpora.{name}.cleaning: gopher_quality looks for English stop words, but the language is "
            f"{', '.join(sorted(languages))}; set stop_words to common words of that language, or to []"
        )


def _check_columns(corpus: Json, semantic: Json, name: str, files: list[str]) -> None:
    """Raise BertlineError for a column if none of the files is a table; members of archives are not."""
    given = [key for key in ("text", "id", "title", "url") if key in semantic]
    if not given or not files:
        return
    from bertline.corpus.tables import is_table  # imports pyarrow

    if not any(is_table(Path(file)) for file in files):
        raise BertlineError(
            f"configuration: corpora.{name}.{given[0]}: given '{corpus[given[0]]}', but none of the files is a table "
            "with columns; leave it out"
        )


def _dump_files(name: str, corpus: Json, problems: list[str]) -> tuple[dict[str, str], Json]:
    """Return the digests of a dump's files by path, and their listing, see `corpus.sources.slices_of`."""
    files = sorted(set(expand(problems, f"corpora.{name}.paths", corpus["paths"])), key=natural_order)
    for file in files:
        check_name(file)
    listed = {
        f"part-{index:05d}": {"file": str(file), "size": file.stat().st_size, "multistream": is_multistream(file)}
        for index, file in enumerate(files)
    }
    return digests(files), {"parts": listed}


def _files_to_download(name: str, urls: list[Json], downloads: dict[str, Json]) -> dict[str, str]:
    """Add files to the downloads, and return their names and digests. Raises BertlineError for a repeated name."""
    found: dict[str, str] = {}
    for source in urls:
        check_is_text(source["url"])
        file = source["url"].rpartition("/")[2]
        if file in found:
            raise BertlineError(
                f"configuration: corpora.{name}.urls: two files would be called '{file}'; download one of them "
                "yourself, and make a corpus of its path"
            )
        found[file] = source["sha256"]
        downloads[paths.TEXT_FILE.format(sha256=source["sha256"], file=file)] = source
    for file, digest in found.items():
        if repeated := re.search(r"(.{1,3}?)\1{20}", digest):  # Snakemake takes it for an endless loop
            raise BertlineError(
                f"configuration: corpora.{name}.urls: the sha256 of '{file}' repeats '{repeated[1]}'; put in the file's"
            )
    return dict(sorted(found.items()))


def _gutenberg_parts(
    name: str, corpus: Json, semantic: Json, problems: list[str], downloads: dict[str, Json]
) -> dict[str, list[str]]:
    """Add the books to the downloads, and return the parts; the checksums of a file enter the `semantic` settings."""
    digest_of: dict[str, str] = {}
    is_known = "sha256" in corpus and bool(digests_of_one(problems, f"corpora.{name}.sha256", corpus["sha256"]))
    if is_known:
        digest_of = read_checksums(Path(corpus["sha256"]))
    if "sha256" in corpus:
        semantic["sha256"] = {}
    files = []
    for book in sorted(corpus["books"]):
        file = paths.GUTENBERG_BOOK.format(book=book)
        known = {}
        if "sha256" in corpus:
            known = {"sha256": digest_of[f"{book}.txt"]} if f"{book}.txt" in digest_of else {}
            semantic["sha256"] |= {str(book): value for value in known.values()}
            if is_known and not known:
                raise BertlineError(
                    f"configuration: corpora.{name}.books: {corpus['sha256']} has no checksum of book {book}; add it, "
                    "or leave out the book"
                )
            if known and Path(file).exists() and digests([Path(file)])[file] != known["sha256"]:
                raise BertlineError(
                    f"{file} has another checksum than {corpus['sha256']} states; delete it, and it is downloaded again"
                )
        downloads[file] = downloads.get(file) or known
        files.append(file)
    semantic["books"] = sorted(corpus["books"])
    return _numbered(files, FILES_PER_PART)


def _numbered(files: list[str], size: int, name: str = "part") -> dict[str, list[str]]:
    return {f"{name}-{at // size:05d}": files[at : at + size] for at in range(0, len(files), size)}


def _check_contact(config: Json, name: str, problems: list[str], mirrors: str = "mirrors") -> None:
    if not any(mirror.startswith("http") for mirror in config[mirrors]):
        return
    of_whom = {
        "mirrors": "Wikimedia, which blocks requests without contact information",
        "gutenberg_mirrors": "mirrors of Project Gutenberg, which ask for a contact",
    }
    reason = f"corpora.{name} downloads from {of_whom[mirrors]}"
    if "contact" not in config:
        raise BertlineError(f"configuration: the key 'contact' is missing; {reason}")
    if config["contact"] == EXAMPLE_CONTACT:
        problems.append(f"configuration: contact: still {EXAMPLE_CONTACT}; put your e-mail address there: {reason}")


def expand(problems: list[str], key: str, patterns: list[str]) -> list[Path]:
    """Return the files that match the patterns; one without a match, or with links that lead nowhere, is a problem."""
    files: list[Path] = []
    for pattern in patterns:
        try:
            found, lost = find_files(pattern)
            for path in (*found, *lost):
                check_is_utf8(path)
                check_for_snakemake(path)
        except BertlineError as error:
            raise BertlineError(f"configuration: {key}: {error}") from None
        files += map(Path, found)
        if lost:
            also = f", and {len(lost) - 1} more lead nowhere" if lost[1:] else ""
            problems.append(
                f"configuration: {key}: {lost[0]} is a link to {os.readlink(lost[0])}, which does not exist{also}; put "
                "it there, or remove the link"
            )
        elif not found:
            problems.append(f"configuration: {key}: no file matches '{pattern}'; {_advice(pattern)}")
    return files


def _advice(pattern: str) -> str:
    """Return what to do about a pattern that matches no file."""
    literal = pattern.replace("[", "[[]")
    if literal != pattern and any(find_files(literal)):
        return f"brackets are wildcards: write '{literal}' for those in a name"
    if pattern.startswith("~"):
        return f"~ is not expanded: write '{os.path.expanduser(pattern)}'"
    if Path(pattern).is_dir():
        return f"it is a folder: name its files, such as '{glob.escape(pattern)}/*'"
    return "put it there or change the key"


def digests_of_one(problems: list[str], key: str, path: str) -> list[str]:
    """Return the digest of the file of the configuration's `key`; if it is absent, append to the problems instead."""
    if Path(path).is_file():
        return list(digests([Path(path)]).values())
    what = "is a folder" if Path(path).is_dir() else "does not exist"
    problems.append(f"configuration: {key}: {path} {what}; put the file there or change the key")
    return []


def digests(files: list[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, keyed by its path as given; cached between starts of the graph."""
    return digest_of_files(files, REMEMBERED_DIGESTS)


def _named_files(problems: list[str], key: str, patterns: list[str]) -> dict[str, Path]:
    """Return the files that match the patterns by name, which does not depend on the location of a folder of texts.

    A name is the path after the part of the pattern without wildcards: `a/b.txt` for `texts/**/*.txt`. Raises
    BertlineError if two files have the same name.
    """
    named: dict[str, Path] = {}
    seen: set[Path] = set()
    for pattern in patterns:
        for path in expand(problems, key, [pattern]):
            if path in seen:
                continue
            seen.add(path)
            name = path.relative_to(fixed_part(pattern)).as_posix()
            if name in named:
                raise BertlineError(
                    f"configuration: {key}: {named[name]} and {path} would both be called '{name}'; "
                    "name them by one pattern, such as folder/**/*.txt"
                )
            named[name] = path
    return dict(sorted(named.items()))


def _group(files: dict[str, Path]) -> Iterator[list[str]]:
    """Group files into parts of about BYTES_PER_PART with at most LOCAL_FILES_PER_PART files.

    The location of a folder of texts alters no part. `/./` is put before each name; see `text_files.name_of`.
    """
    part: list[str] = []
    size = 0
    for name, path in files.items():
        marked = f"{path.as_posix().removesuffix(name) or './'}./{name}"
        part.append(marked)
        size += path.stat().st_size
        if size >= BYTES_PER_PART or len(part) >= LOCAL_FILES_PER_PART:
            yield part
            part, size = [], 0
    if part:
        yield part
