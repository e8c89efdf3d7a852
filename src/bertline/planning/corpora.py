"""Resolution of a configuration's corpora, and of the files that it names."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from bertline.console import BertlineError
from bertline.files import Json, digest_of_files
from bertline.fingerprint import fingerprint, stage_versions
from bertline.settings.configuration import definition, strip_defaults

BYTES_PER_PART = 100_000_000  # of text files read by one job
CHARACTERS_PER_PART = 60_000  # of their paths
EXAMPLE_CONTACT = "you@university.edu"  # of config/config.yaml
REMEMBERED_DIGESTS = Path("results/digests-of-inputs.json")


def resolve_corpus(config: Json, schema: Json, name: str, problems: list[str]) -> Json:
    """Return the recipe of a corpus, see `corpus.sources`.

    Args:
        config: the whole configuration, completed with defaults.
        schema: config/config.schema.yaml.
        name: the corpus's name under `corpora`.
        problems: missing inputs are appended, because a dry run continues without them.

    Raises BertlineError if a contact is needed and not given, and for incompatible settings.
    """
    corpus = config["corpora"][name]
    kind = corpus["source"]
    semantic = strip_defaults(corpus, definition(schema, kind), schema)
    semantic.pop("licence", None)  # it changes no document
    resolved: Json = {"name": name, "settings": corpus}
    if kind == "wikimedia":
        _check_contact(config, name, problems)
        for setting in ("list_items", "tables", "templates"):
            if setting in semantic and corpus["extractor"] != "bertline":
                raise BertlineError(
                    f"configuration: corpora.{name}.{setting}: given '{corpus[setting]}', but wikiextractor keeps no "
                    f"{setting.replace('_', ' ')}; leave one of the two out"
                )
        resolved["wiki"] = f"{corpus['language']}wiki"
    elif "paths" not in corpus:
        resolved["parts"] = {f"part-{index:05d}": [] for index in range(corpus["parts"])}
    else:
        files = _named_files(problems, f"corpora.{name}.paths", corpus["paths"])
        of_paths = digests(list(files.values()))
        semantic["paths"] = {file: of_paths[str(path)] for file, path in files.items()}
        resolved["parts"] = {f"part-{index:05d}": part for index, part in enumerate(_group(files))}
    _check_stop_words(config["corpora"][name], semantic, name)
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
    if corpus["punkt"] != "trained":
        folder = expand(problems, f"corpora.{name}.punkt", [f"{corpus['punkt']}/*"])
        semantic["punkt"] = sorted(digests(folder).values())
    stages = ["documents", "sentences", *(["extraction"] if corpus.get("extractor") == "bertline" else [])]
    key = fingerprint({"name": name, "corpus": semantic, "versions": stage_versions(*stages)})
    resolved["key"] = f"{name}-{key[:8]}"
    return resolved


def _check_stop_words(corpus: Json, semantic: Json, name: str) -> None:
    """Raise BertlineError if English stop words would be looked for in text that is known to be in another language."""
    kept = corpus.get("language_identification", {}).get("keep", [])
    languages = {corpus.get("language"), *([kept] if isinstance(kept, str) else kept)} - {None, "simple"}
    if "gopher_quality" in corpus["cleaning"] and "stop_words" not in semantic and languages - {"en", "eng"}:
        raise BertlineError(
            f"configuration: corpora.{name}.cleaning: gopher_quality looks for English stop words, but the language is "
            f"{', '.join(sorted(languages))}; set stop_words to common words of that language, or to []"
        )


def _check_contact(config: Json, name: str, problems: list[str]) -> None:
    if not any(mirror.startswith("http") for mirror in config["mirrors"]):
        return
    reason = f"corpora.{name} downloads from Wikimedia, which blocks requests without contact information"
    if "contact" not in config:
        raise BertlineError(f"configuration: the key 'contact' is missing; {reason}")
    if config["contact"] == EXAMPLE_CONTACT:
        problems.append(f"configuration: contact: still {EXAMPLE_CONTACT}; put your e-mail address there: {reason}")


def expand(problems: list[str], key: str, patterns: list[str]) -> list[Path]:
    """Return the files that match the patterns; a pattern without a match is appended to the problems."""
    files: list[Path] = []
    for pattern in patterns:
        found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
        if not found:
            todo = "put it there or change the key"
            if Path(pattern).is_dir():
                todo = f"it is a folder: name its files, such as '{pattern}/*'"
            problems.append(f"configuration: {key}: no file matches '{pattern}'; {todo}")
        files += map(Path, found)
    return files


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
        fixed = Path(*takewhile(lambda part: not glob.has_magic(part), Path(pattern).parent.parts))
        for path in expand(problems, key, [pattern]):
            if path in seen:
                continue
            seen.add(path)
            name = path.relative_to(fixed).as_posix()
            if name in named:
                raise BertlineError(
                    f"configuration: {key}: {named[name]} and {path} would both be called '{name}'; "
                    "name them by one pattern, such as folder/**/*.txt"
                )
            named[name] = path
    return dict(sorted(named.items()))


def _group(files: dict[str, Path]) -> Iterator[list[str]]:
    """Group files into parts of about BYTES_PER_PART with at most CHARACTERS_PER_PART of paths.

    `/./` is put before each name; see `text_files.name_of`.
    """
    part: list[str] = []
    size = length = 0
    for name, path in files.items():
        marked = f"{path.as_posix().removesuffix(name) or './'}./{name}"
        part.append(marked)
        size += path.stat().st_size
        length += len(shlex.quote(marked)) + 1
        if size >= BYTES_PER_PART or length >= CHARACTERS_PER_PART:
            yield part
            part, size, length = [], 0, 0
    if part:
        yield part
