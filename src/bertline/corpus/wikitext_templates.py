"""Templates that show words within a sentence, and their visible text.

A template is a separate page, which is not in a dump of articles, so its visible text cannot be computed. Most are
boxes, notes and references, and are dropped. These few contain their words in the call, and without them a sentence has
a gap: "the tower is {{convert|324|m|ft}} tall". The names are those of the English Wikipedia, many of which other
languages share; each is described at https://en.wikipedia.org/wiki/Template:NAME.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

# A call's positional parameters, in order, and its named ones -> the visible text.
Shown = Callable[[Sequence[str], dict[str, str]], str]
# Names or numbers (from 1) of a template's arguments, in the order in which they are looked for.
Arguments = int | str | list[int | str]

_NUMBERED = re.compile(r"\s*([1-9]\d?)\s*=\s*")
_NAMED = re.compile(r"\s*(0\d?|[^\W\d_][\w -]{0,30}?)\s*=\s*")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z\d]+)*")

_REFERENCE = re.compile(r"(&#?\w+;)")
_NUMBER = re.compile(r"[+\-−]?[\d.,]++(?:[+-]?\d++[/⁄]\d++|[/⁄]\d++|e[+-]?\d++)?")
# Separators between two numbers of {{convert}} -> how they are shown.
_BETWEEN = {
    **{"-": "–", "–": "–", "to": " to ", "to(-)": " to ", "and": " and ", "or": " or "},
    **{"by": " by ", "x": " × ", "×": " × ", "+/-": " ± ", "±": " ± "},
}
# Codes of units that differ from their symbols.
_UNITS = {
    **{"sqmi": "sq mi", "sqft": "sq ft", "sqyd": "sq yd", "acre": "acres", "cuft": "cu ft", "cumi": "cu mi"},
    **{"cuyd": "cu yd", "m2": "m²", "km2": "km²", "cm2": "cm²", "m3": "m³", "km3": "km³", "C": "°C", "F": "°F"},
    **{"kph": "km/h", "nmi": "nautical miles", "foot": "feet", "mile": "miles", "metre": "metres"},
    **{"meter": "meters", "usgal": "US gal", "impgal": "imp gal", "LT": "long tons", "ST": "short tons"},
}
_DIVIDED = ("ft", "foot", "mi", "yd", "lb", "st")  # may be followed by a number of smaller units: 6 ft 2 in


def show_arguments(arguments: Arguments) -> Shown:
    """Return a function that shows the first argument that a call has, by its name or its number, -1 for the last."""
    wanted = arguments if isinstance(arguments, list) else [arguments]

    def shown(positional: Sequence[str], named: dict[str, str]) -> str:
        by_number = {-1: positional[-1] if positional else "", **dict(enumerate(positional, 1))}
        found = (named.get(one) if isinstance(one, str) else by_number.get(one) for one in wanted)
        return next(filter(None, found), "")

    return shown


def _parameter(number: int) -> Shown:
    """Return a function that shows a parameter by its index."""
    return lambda positional, named: positional[number] if len(positional) > number else ""


def _last(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show the last parameter that is not empty. The first of several is a language, a colour or a size."""
    return next(filter(None, reversed(positional[1:])), "" if len(positional) > 1 else "".join(positional))


def _around(before: str, after: str = "") -> Shown:
    return lambda positional, named: f"{before}{positional[0]}{after}" if positional else ""


def _changed(change: Callable[[str], str]) -> Shown:
    return lambda positional, named: change(positional[0]) if positional else ""


def _outside_references(text: str, change: Callable[[str], str]) -> str:
    parts = _REFERENCE.split(text)
    parts[::2] = map(change, parts[::2])
    return "".join(parts)


def _always(text: str) -> Shown:
    return lambda positional, named: text


def _pronunciation(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show {{IPA|/a/}} and {{IPA|fr|/a/}}."""
    first, second, *_ = [*positional, "", ""]
    return second if second and _LANGUAGE.fullmatch(first) else first


def _about(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show {{circa|1500|1600}}, and {{circa}} alone."""
    return " – ".join(f"c. {date}" for date in positional[:2] if date) or "c."


def _fraction(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show {{frac|2}} as 1/2, {{frac|2|3}} as 2/3, {{frac|1|2|3}} as 1 2/3."""
    if not any(positional):
        return ""
    *whole, numerator, denominator = ["1", *positional] if len(positional) < 2 else positional[:3]
    return " ".join([*whole, f"{numerator}/{denominator}"])


def _measure(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show the first of the two measures of {{convert|5|to|8|mi|km}}; a program on the wiki computes the second."""
    shown: list[str] = []
    at = 0
    while at < len(positional) and (_NUMBER.fullmatch(positional[at]) or (shown and positional[at] in _BETWEEN)):
        shown.append(_BETWEEN.get(positional[at], positional[at]))
        at += 1
    while at < len(positional) and shown:
        unit = positional[at]
        shown.append(f" {_UNITS.get(unit, unit)}")
        number, smaller = [*positional[at + 1 : at + 3], "", ""][:2]
        if unit not in _DIVIDED or not _NUMBER.fullmatch(number) or not smaller or _NUMBER.fullmatch(smaller):
            break
        shown.append(f" {number}")
        at += 2
    return "".join(shown)


def _value(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show {{val|6.02|e=23|u=mol}}."""
    power = f" × 10^{named['e']}" if "e" in named else ""
    return f"{positional[0] if positional else ''}{power} {named.get('u') or named.get('ul') or ''}".strip()


def _quotation(positional: Sequence[str], named: dict[str, str]) -> str:
    text = named.get("text") or named.get("quote") or (positional[0] if positional else "")
    return f"\n\n{text}\n\n"


def _japanese(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show {{nihongo|English|kanji|romaji}}."""
    english, *others = [*positional[:3], ""]
    rest = ", ".join(filter(None, others))
    return f"{english} ({rest})" if english and rest else english or rest


def _as_of(positional: Sequence[str], named: dict[str, str]) -> str:
    """Show {{as of|2010|3|14|df=US}}."""
    words = "as of" if "lc" in named else "As of"
    return named.get("alt") or " ".join([words, "-".join(positional[:3])])


_TABLE: dict[str, Shown] = {
    # Words in another language, script or type.
    "abbr|allcaps|as written|big|bold|center|code|em|flag|flagcountry|flagu|formatnum|ital|italic|kbd"
    "|keypress|large|larger|linktext|literal|math|mono|mvar|nastaliq|nobold|nobr|nobreak"
    "|noitalic|not a typo|nowrap|polytonic|proper name|samp|sc|small|smallcaps|small caps|smaller"
    "|strong|sub|sup|typo|u|underline|unicode|vanchor|var|visible anchor": _parameter(0),
    "lc": _changed(lambda text: _outside_references(text, str.lower)),
    "uc": _changed(lambda text: _outside_references(text, str.upper)),
    "lcfirst": _changed(lambda text: text[:1].lower() + text[1:]),
    "ucfirst": _changed(lambda text: text[:1].upper() + text[1:]),
    "color|colour|font color|lang|resize|rtl-lang|script|transl|transliteration|wikt-lang": _last,
    "ill|illm|interlanguage link": show_arguments(["lt", 1]),
    "ipa": _pronunciation,
    "langx": _parameter(1),
    "angbr": _around("⟨", "⟩"),
    "nihongo|nihongo2|nihongo3": _japanese,
    "chem|chem2|gaps": lambda positional, named: "".join(positional),
    # Numbers, measures, dates, money.
    "convert|conv|cvt": _measure,
    "frac|fraction|sfrac": _fraction,
    "val": _value,
    "date|start date": lambda positional, named: "-".join(positional[:3]),
    "as of|asof": _as_of,
    "circa|c.|ca.": _about,
    "floruit|fl.": _around("fl. "),
    "reign|r.": lambda positional, named: "r. " + "–".join(positional[:2]),
    "bc|bce": _around("", " BC"),
    "ad": _around("AD "),
    "us$|usd": _around("US$"),
    "gbp|£": _around("£"),
    "eur|euro|€": _around("€"),
    # Ships: {{HMS|Victory}}, {{ship|HMS|Victory}}.
    **{name.lower(): _around(f"{name} ") for name in ("HMS", "USS", "HMAS", "HMCS", "SMS", "RMS", "MV", "SS")},
    "ship": lambda positional, named: " ".join(filter(None, positional[:2])),
    # Marks.
    "snd|spnd|sndash|spaced ndash|spaced en dash": _always(" – "),
    "ndash|nd|en dash|endash": _always("–"),
    "mdash|em dash|emdash|mdashb": _always("—"),
    "snds|spaced mdash|spaced em dash": _always(" — "),
    "nbsp|space|spaces|thinsp|thin space|hair space": _always(" "),
    "'|apostrophe": _always("&#39;"),
    "'s": _always("&#39;s"),
    "=": _always("="),
    "!": _always("|"),
    "dot|middot|·|•": _always(" · "),
    "okina|ʻ|hamza": _always("ʻ"),
    "co2": _always("CO2"),
    "h2o": _always("H2O"),
    "times": _always("×"),
    # Quotations are paragraphs of their own.
    "quote|blockquote|bquote|cquote|quotation|poemquote|poem quote": _quotation,
}
_FUNCTIONS = ("lc", "uc", "lcfirst", "ucfirst")
_SHOWN = {name: shown for names, shown in _TABLE.items() for name in names.split("|")}


def known_name(name: str) -> str:
    """Return the form of a template's name in which names are compared."""
    return name.strip().lower().replace("_", " ")


def shows(name: str, more: Mapping[str, Shown]) -> Shown | None:
    """Return what shows the template or parser function of this name, or None if it is dropped.

    `more` are further templates, by `known_name`, which come first.
    """
    if more and (known := known_name(name)) in more:
        return more[known]
    return _shown_by_default(name)


@lru_cache(maxsize=10_000)
def _shown_by_default(name: str) -> Shown | None:
    name = known_name(name)
    if name.startswith(("lang-", "formatnum:")):
        return _SHOWN["nowrap"]
    function, colon, _ = name.partition(":")
    return _SHOWN.get(function if colon and function in _FUNCTIONS else name)


def show_call(call: str, shown: Shown) -> str:
    """Return the visible text of a call.

    Args:
        call: the text between the braces, such as `lang|fr|mot`, without links and other templates.
        shown: the result of `shows` for its name.
    """
    name, *parameters = call.split("|")
    positional = [name.partition(":")[2].strip()] if ":" in name else []
    named = {}
    for parameter in parameters:
        if match := _NUMBERED.match(parameter):
            number = int(match[1]) - 1
            positional += [""] * (number + 1 - len(positional))
            positional[number] = parameter[match.end() :].strip()
        elif match := _NAMED.match(parameter):
            named[match[1]] = parameter[match.end() :].strip()
        else:
            positional.append(parameter.strip())
    return shown(positional, named)
