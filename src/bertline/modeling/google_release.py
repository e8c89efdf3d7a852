"""Google's releases of BERT as external weights: a zip that is downloaded, or a folder, converted once."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path, PurePosixPath

from bertline.console import BertlineError
from bertline.corpus.download import download
from bertline.corpus.download_lock import lock_of
from bertline.corpus.expected_file import Expected
from bertline.corpus.unpacking import Allowance, as_damage_error, zip_members
from bertline.files import check_replaceable
from bertline.modeling.conversion import convert_weights
from bertline.modeling.huggingface import FILES
from bertline.unfinished import unfinished_folder

CONFIGURATION, VOCABULARY = "bert_config.json", "vocab.txt"
CHECKPOINT = re.compile(r"[\w.-]+\.ckpt\.(index|data-\d{5}-of-\d{5})")
MAX_RATIO = 20  # weights hardly shrink: Google's zips unpack to 1.1 times their size


def fetch_google_release(
    output: Path,
    *,
    url: str | None = None,
    sha256: str | None = None,
    folder: Path | None = None,
    lowercase: bool = True,
    contact: str | None = None,
) -> None:
    """Write a release in Hugging Face's layout.

    The zip is kept next to `output`, hidden, until it is converted, so that an interrupted download can continue. If
    another process is writing `output`, wait for it and take its result.

    Args:
        output: the folder to write, complete or absent; one that contains nothing but a model is replaced.
        url: of the zip.
        sha256: of the zip.
        folder: a release that is already unpacked, instead of a zip.
        lowercase: whether its vocabulary is lowercase.
        contact: an e-mail address or a URL, for the User-Agent.

    Raises BertlineError for no release or two, a download that fails, a zip that is damaged or leads out of its folder,
    and for files that are not a release.
    """
    if folder is not None and url is not None:
        raise BertlineError("--url and --folder each name a release; leave one out")
    if folder is not None and sha256 is not None:
        raise BertlineError("--sha256 is of a zip, and --folder names a folder; leave out one of them")
    if url is None:
        if folder is None:
            raise BertlineError("no release is given; name its --url and --sha256, or its --folder")
        return convert_weights(folder, output, lowercase=lowercase)
    check_replaceable(output, FILES)
    archive, expected = output.with_name(f".{output.name}.zip"), Expected(sha256=sha256)
    with lock_of(output) as is_made:
        if is_made:
            return
        if sha256 is None or not archive.exists() or expected.problem_of(archive):
            download([url], archive, expected, contact=contact)
        with unfinished_folder(output) as unpacked:
            unpack_release(archive, unpacked, source=url)
            try:
                convert_weights(unpacked, output, lowercase=lowercase)
            except BertlineError as error:  # the folder is deleted
                raise BertlineError(str(error).replace(str(unpacked), str(archive))) from None
        archive.unlink()


def unpack_release(archive: Path, output: Path, *, source: str | None = None) -> None:
    """Write the configuration, the vocabulary and the checkpoint of a zip to a folder; other members are left out.

    Args:
        archive: the zip, untrusted.
        output: an existing folder.
        source: names the zip in errors.

    Raises BertlineError for a zip that is damaged, unpacks to too much, leads out of its folder or lacks a file.
    """
    source = source or str(archive)
    allowance = Allowance(archive, MAX_RATIO, advice="this is not a release of BERT, name another archive")
    with as_damage_error(str(archive)):
        for name, stream in zip_members(archive, allowance, Counter(), _is_wanted):
            path = output / PurePosixPath(name).name
            if path.exists():
                raise BertlineError(f"{source} has two files {path.name}; name an archive of one release")
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file)
    for wanted in (CONFIGURATION, VOCABULARY, "*.ckpt.index"):
        if not any(output.glob(wanted)):
            raise BertlineError(f"{source} has no {wanted}; name the archive of one of Google's releases of BERT")


def _is_wanted(name: str) -> bool:
    file = PurePosixPath(name).name
    return file in (CONFIGURATION, VOCABULARY) or CHECKPOINT.fullmatch(file) is not None
