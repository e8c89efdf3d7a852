"""External weights that a configuration names: a folder, a model of the Hub, or one of Google's releases."""

from __future__ import annotations

from pathlib import Path

from bertline.console import BertlineError
from bertline.encoding.tokenizer import find_tokenizer
from bertline.files import Json
from bertline.fingerprint import fingerprint
from bertline.modeling.huggingface_config import SEVERAL_FILES, WEIGHTS_INDEX
from bertline.planning.corpora import digests, expand
from bertline.planning.plan import Plan
from bertline.results import paths
from bertline.training.given_files import content_of, files_of_weights

# Layouts that workflow/scripts/convert_weights.py reads.
CONVERTIBLE = (paths.PICKLE, paths.TENSORFLOW_INDEX)
RELEASE = ("bert_config.json", "vocab.txt", "*.ckpt.index", "*.ckpt.data-*")
# Keys of the initial weights of a recipe that do not determine a result.
PLACES = ("directory", "name", "hub")


def external_weights(plan: Plan, key: str, given: str | Json, problems: list[str] | None = None) -> Json:
    """Return for the recipe the `directory` of weights and the digest of their `content`.

    If the graph fetches them, also return their `name` and, for the Hub, the id of their model (`hub`).

    Args:
        key: of the weights in the configuration.
        given: its value: a folder, or the `weights` of the schema, which the graph fetches to the directory.
        problems: missing or unreadable files are appended; None for those of the plan.
    """
    problems = plan.problems if problems is None else problems
    if isinstance(given, str):
        return _folder(problems, key, given)
    if "hub" in given:
        identifying = {"hub": given["hub"], "revision": given["revision"]}
        directory = paths.HUB_WEIGHTS.format(repository=given["hub"], revision=given["revision"])
        name = f"{given['hub']} at {given['revision'][:12]}"
    else:
        release = given["google"]
        if isinstance(release, str):
            files = expand(problems, f"{key}.google", [f"{release}/{pattern}" for pattern in RELEASE])
            content, name = sorted(digests(files).values()), release
        else:
            content, name = release["sha256"], release["url"].rpartition("/")[2]
        identifying = {"google": content, "lowercase": given["lowercase"]}
        directory = paths.GOOGLE_WEIGHTS.format(google=fingerprint(identifying))
    plan.fetched[directory] = given
    of_hub = {"hub": given["hub"]} if "hub" in given else {}
    return {"directory": directory, "content": fingerprint(identifying), "name": name, **of_hub}


def _folder(problems: list[str], key: str, directory: str) -> Json:
    folder = Path(directory)
    if not (folder / paths.WEIGHTS).exists() and any(next(folder.glob(name), None) for name in CONVERTIBLE):
        problems.append(
            f"configuration: {key}: {folder} holds its weights as a pickle or a TensorFlow checkpoint, which are not "
            f"read; convert them: python workflow/scripts/convert_weights.py {folder} --output another-folder"
        )
    elif not (folder / paths.WEIGHTS).exists() and (folder / WEIGHTS_INDEX).exists():
        problems.append(f"configuration: {key}: {folder} {SEVERAL_FILES}")
    else:
        expand(problems, key, [f"{folder}/{paths.CONFIG}", f"{folder}/{paths.WEIGHTS}"])
    return {"directory": str(folder), "content": content_of(digests(files_of_weights(folder)).values())}


def without_directory(initial: Json) -> Json:
    """Return initial weights without their location and name, which do not enter fingerprints."""
    return {key: value for key, value in initial.items() if key not in PLACES}


def external_tokenizer(plan: Plan, key: str, directory: str) -> str:
    """Return the file of the tokenizer in `directory`; of weights that the graph fetches, the directory."""
    if directory in plan.fetched:
        return directory
    try:
        return str(find_tokenizer(Path(directory)))
    except BertlineError as error:
        plan.problems.append(f"configuration: {key}: {error}")
        return str(Path(directory, paths.TOKENIZER))


def release_files(plan: Plan, directory: str) -> list[str]:
    """List the files of the release, in a folder, from which the weights in `directory` are converted."""
    release = plan.fetched[directory]["google"]
    if not isinstance(release, str):
        return []
    return [str(path) for pattern in RELEASE for path in sorted(Path(release).glob(pattern))]


def release_options(plan: Plan, directory: str) -> list[str]:
    """Return the words of the options that name the source of the weights in `directory`, one of Google's releases."""
    given = plan.fetched[directory]
    release = given["google"]
    source = (
        ["--folder", release]
        if isinstance(release, str)
        else [word for key in ("url", "sha256") for word in (f"--{key}", release[key])]
    )
    return [*source, "--lowercase" if given["lowercase"] else "--no-lowercase"]
