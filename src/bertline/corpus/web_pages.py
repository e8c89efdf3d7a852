"""The main text of web pages: HTML without menus, by resiliparse."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import BinaryIO, NamedTuple

from bertline.corpus.documents import Dropped
from bertline.corpus.encodings import NOT_OF_FILES, Encodings, mark_of

MAX_PAGE_BYTES = 1 << 23  # read as a whole
# Chrome has 512. The time of resiliparse grows with depth times length: at this depth, a megabyte takes five seconds.
MAX_DEPTH = 256
# Tags of menus, and of ruby without end tags: the parser takes the square of their number, here a tenth of a second.
MAX_COSTLY_TAGS = 4000


def _of_html(pattern: bytes) -> re.Pattern[bytes]:
    r"""Return a pattern in whose classes of bytes `\s` is white space as in HTML: a vertical tab is none."""
    return re.compile(pattern.replace(rb"\s", rb"\t\n\f\r "), re.DOTALL | re.IGNORECASE)


# What browsers look at for a page's encoding: https://html.spec.whatwg.org/#prescan-a-byte-stream-to-determine-its-encoding
_MARKUP = _of_html(rb"<!--(?:-?>|.*?(?:-->|\Z))|(?P<tag><(?:(?P<meta>meta(?=[\s/]))|/?[a-z][^\s>]*))|<[!/?][^>]*")
_ATTRIBUTE = _of_html(
    rb"""[\s/]*(?P<name>[^\s/>][^\s/=>]*)"""
    rb"""(?:[\s]*=[\s]*(?:"(?P<double>[^"]*)"?|'(?P<single>[^']*)'?|(?P<bare>[^\s>]*)))?"""
)
_END_OF_TAG = _of_html(rb"[\s/]*>")
_IN_CONTENT = _of_html(rb"""charset[\s]*=[\s]*(?:"([^"]*)"|'([^']*)'|([^"'\s;][^\s;]*))""")
_LABEL = _of_html(rb"[\s]*([\w.:-]{1,40})[\s]*")
DECLARED_IN_XML = re.compile(rb"<\?xml\b[^<>]{0,200}?\bencoding\s*=\s*[\"']\s*([\w.:-]{1,40})")
DECLARED_WITHIN = 1024  # bytes, https://html.spec.whatwg.org/#charset
# Browsers take these encodings for larger ones, https://encoding.spec.whatwg.org/#names-and-labels. The keys are
# Python's names, and labels that neither it nor resiliparse knows.
AS_IN_BROWSERS = {
    **dict.fromkeys(("ascii", "iso8859-1", "x-user-defined"), "cp1252"),
    "iso8859-9": "cp1254",
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    **dict.fromkeys(("x-mac-cyrillic", "x-mac-ukrainian"), "mac-cyrillic"),
}
# The end tags of others may be left out, or there are none.
_OPTIONAL = "p|li|d[dt]|t[dhr]|thead|tbody|tfoot|option|colgroup|html|head|body|r[bpt]|rtc"
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_TAG = re.compile(rf"<(/?)(?!(?:{_OPTIONAL}|{_VOID})\b)[a-z]", re.IGNORECASE)
_COSTLY = re.compile(r"<(option|r[bpt]c?|/r[bpt]c?)\b", re.IGNORECASE)


class WebPage(NamedTuple):
    """A page's title and main text, which has a paragraph per line; either may be empty."""

    title: str
    text: str


def read_web_page(stream: BinaryIO, encoding: Encodings) -> WebPage | Dropped:
    """Read a page, or return the reason why it is not read: `oversized`, `complex`, or `encoding`.

    Args:
        stream: its bytes.
        encoding: of a page that has no byte order mark and declares none that browsers know, as HTML or XML; of several
            the first that decodes it.
    """
    content = stream.read(MAX_PAGE_BYTES + 1)
    if len(content) > MAX_PAGE_BYTES:
        return Dropped("oversized")
    try:
        page = _decode(content, encoding)
    except (UnicodeError, LookupError, ValueError):
        return Dropped("encoding")
    if _depth(page) > MAX_DEPTH or _costly_tags(page) > MAX_COSTLY_TAGS:
        return Dropped("complex")
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(page.encode("utf-8", "replace").decode())
    text = extract_plain_text(tree, main_content=True, alt_texts=False, list_bullets=False, comments=False)
    return WebPage(tree.title or "", text)


def _decode(content: bytes, encoding: Encodings) -> str:
    if marked := "utf-8-sig" if content.startswith(codecs.BOM_UTF8) else mark_of(content):
        return content.decode(marked)
    in_xml = DECLARED_IN_XML.match(content, 0, DECLARED_WITHIN)
    for declared in (*_declared(content[:DECLARED_WITHIN]), *([in_xml[1]] if in_xml else [])):
        if label := _LABEL.fullmatch(declared):
            with suppress(LookupError):
                return _decode_as_browsers(content, label[1].decode("ascii").lower())
    for one in [encoding] if isinstance(encoding, str) else encoding:
        with suppress(UnicodeError):
            return content.decode(one)
    raise UnicodeError


def _declared(beginning: bytes) -> Iterator[bytes]:
    """Yield the encodings that a page declares in HTML; none in a comment, nor in a description of the page."""
    position = 0
    while markup := _MARKUP.search(beginning, position):
        position = markup.end()
        attributes: dict[bytes, bytes] = {}
        while markup["tag"] and (found := _ATTRIBUTE.match(beginning, position)):
            position = found.end()
            attributes.setdefault(found["name"].lower(), found["double"] or found["single"] or found["bare"] or b"")
        if not markup["meta"] or not _END_OF_TAG.match(beginning, position):
            continue
        if b"charset" in attributes:
            yield attributes[b"charset"]
        elif attributes.get(b"http-equiv", b"").lower() == b"content-type" and (
            in_content := _IN_CONTENT.search(attributes.get(b"content", b""))
        ):
            yield next(filter(None, in_content.groups()), b"")


def _decode_as_browsers(content: bytes, label: str) -> str:
    """Decode a page as its label says. Raises LookupError for one that is unknown."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    name = map_encoding_to_html5(label, fallback_utf8=False) or AS_IN_BROWSERS.get(label, label)
    name = codecs.lookup(name).name
    name = AS_IN_BROWSERS.get(name, name)
    if name in NOT_OF_FILES:  # punycode takes quadratic time
        raise LookupError(name)
    if name.startswith("utf-16"):  # the declaration could not have been read
        name = "utf-8"
    if name.startswith(("cp125", "cp874")):
        return codecs.charmap_decode(content, "strict", _windows_characters(name))[0]
    return content.decode(name)


@cache
def _windows_characters(encoding: str) -> str:
    """Return the characters of the 256 bytes, U+FFFE for none: browsers read those of 0x80 to 0x9F as controls."""
    characters = (bytes([byte]).decode(encoding, "replace") for byte in range(256))
    return "".join(
        character if character != "\ufffd" else chr(byte) if 0x80 <= byte < 0xA0 else "\ufffe"
        for byte, character in enumerate(characters)
    )


def _costly_tags(page: str) -> int:
    tags = Counter(tag[0] for tag in _COSTLY.findall(page.lower()))
    return tags["o"] + max(0, tags["r"] - tags["/"])


def _depth(page: str) -> int:
    """Return how deeply elements are nested at most, without those whose end tags may be left out."""
    depth = deepest = 0
    for tag in _TAG.finditer(page):
        if tag[1]:
            depth = max(0, depth - 1)
        else:
            depth += 1
            deepest = max(deepest, depth)
    return deepest
