"""Texts about the world: articles of an encyclopedia and chapters of books, as sentences with their facts.

A text states a fact two or three times, in different wordings and not far apart, next to similar facts about other
people. So a masked value can be predicted from the context, and only from it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from bertline.demo_data.language import (
    QUESTIONS,
    WORDINGS,
    Fact,
    Lexicon,
    Sentence,
    ask,
    facts_of,
    make_scene,
    say,
)
from bertline.demo_data.world import Person, Province, Town, World, random_stream, strangers

CHAPTER_BREAK = "* * *"


@dataclass(frozen=True)
class Section:
    """A heading (empty for the lead) and the sentences of one paragraph."""

    heading: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class Article:
    """An encyclopedia article about a person or a town."""

    title: str
    subject: Person | Town
    sections: tuple[Section, ...]


class Namer:
    """Name of a subject in a text: a person's full name first, then mostly the family name; any other's name."""

    def __init__(self, rng: Random, people: Sequence[Person]) -> None:
        self._rng = rng
        self._family_names = {person.name: person.family_name for person in people}
        self._known: set[str] = set()

    def __call__(self, subject: str) -> str:
        short = self._family_names.get(subject, subject)
        if subject in self._known and self._rng.random() < 0.9:
            return short
        self._known.add(subject)
        return subject


def tell(rng: Random, facts: Sequence[Fact], namer: Namer, *, times: int) -> list[Sentence]:
    """Return sentences that state every fact `times` times, each time in another wording, in random order."""
    chosen = [(fact, wording) for fact in facts for wording in rng.sample(WORDINGS[fact.relation], times)]
    rng.shuffle(chosen)
    return [say(fact, wording, namer(fact.subject)) for fact, wording in chosen]


def pick_facts(rng: Random, subject: Person | Town, relations: Sequence[str], count: int) -> list[Fact]:
    """Return `count` facts about `subject` whose relation is one of `relations`."""
    return rng.sample([fact for fact in facts_of(subject) if fact.relation in relations], count)


def person_article(rng: Random, person: Person, people: dict[str, Person], province: Province) -> Article:
    """Return an article about `person`, with facts about the spouse, the teacher and a neighbour, too."""
    spouse, teacher = people[person.facts["spouse"]], people[person.facts["teacher"]]
    taken = {person.family_name, spouse.family_name, teacher.family_name}
    neighbour = rng.choice([other for other in province.people if other.family_name not in taken])
    namer = Namer(rng, [person, spouse, teacher, neighbour])
    every = [fact.relation for fact in facts_of(person) if fact.relation not in ("spouse", "teacher")]
    lead = tell(rng, pick_facts(rng, person, every, 3), namer, times=1)
    sections = [
        Section(heading, tuple(tell(rng, [*own, *pick_facts(rng, companion, every, 2)], namer, times=3)))
        for heading, own, companion in (
            ("Early life", pick_facts(rng, person, ("birthplace", "school", "birth_year", "teacher"), 3), teacher),
            ("Home", pick_facts(rng, person, ("residence", "spouse", "dish", "pet"), 3), spouse),
            ("Work", pick_facts(rng, person, ("job", "instrument", "residence", "school"), 3), neighbour),
        )
    ]
    rng.shuffle(sections)
    return Article(person.name, person, (Section("", tuple(lead)), *sections))


def town_article(rng: Random, town: Town, province: Province, lexicon: Lexicon) -> Article:
    """Return an article about `town`: its facts, two people who live there or elsewhere, and its sights."""
    people = strangers(rng, province.people, 2)
    namer = Namer(rng, people)
    own = facts_of(town)
    other = rng.choice([candidate for candidate in province.towns if candidate != town])
    compared = tell(rng, [*own, *rng.sample(facts_of(other), 2)], namer, times=2)
    inhabitants = [fact for person in people for fact in rng.sample(facts_of(person), 2)]
    words = few_words(rng, lexicon)
    sights = [Sentence(make_scene(rng, words).text()) for _ in range(6)]
    return Article(
        town.name,
        town,
        (
            Section("", tuple(tell(rng, rng.sample(own, 2), namer, times=1))),
            Section("History", tuple(compared)),
            Section("People", tuple(tell(rng, inhabitants, namer, times=3))),
            Section("Sights", tuple(sights)),
        ),
    )


def few_words(rng: Random, lexicon: Lexicon) -> Lexicon:
    """Return a random subset of the words of scenery, for one text."""
    return Lexicon(
        tuple(rng.sample(lexicon.nouns, 7)),
        tuple(rng.sample(lexicon.verbs, 4)),
        tuple(rng.sample(lexicon.adjectives, 4)),
    )


def make_articles(seed: int, world: World, lexicon: Lexicon) -> list[Article]:
    """Return every person's and every town's article, in random order."""
    rng = random_stream(seed, "articles")
    people = {person.name: person for person in world.people}
    articles = [person_article(rng, person, people, world.provinces[person.province]) for person in world.people]
    articles += [
        town_article(rng, town, province, lexicon) for province in world.provinces.values() for town in province.towns
    ]
    rng.shuffle(articles)
    return articles


def chapter(rng: Random, cast: Sequence[Person], lexicon: Lexicon) -> list[list[str]]:
    """Return a book's chapter as paragraphs of sentences: facts, scenery, questions with answers."""
    people = rng.sample(cast, 2)
    namer = Namer(rng, people)
    facts = [fact for person in people for fact in rng.sample(facts_of(person), 3)]
    told = [sentence.text for sentence in tell(rng, facts, namer, times=1)]
    seen = [make_scene(rng, lexicon).text() for _ in range(rng.randint(5, 8))]
    talk: list[str] = []
    for fact in rng.sample(facts, 5):
        question = ask(fact, rng.choice(QUESTIONS[fact.relation]), namer(fact.subject))
        answer = say(fact, rng.choice(WORDINGS[fact.relation]), namer(fact.subject)).text
        talk += [question, answer] if rng.random() < 0.5 else [question, f"{fact.value[0].upper()}{fact.value[1:]}."]
    return [told, talk, seen] if rng.random() < 0.5 else [seen, told, talk]


def make_books(seed: int, world: World, lexicon: Lexicon, *, books: int, chapters: int) -> list[tuple[str, str]]:
    """Return books as pairs of title and plain text: chapters with headings, wrapped paragraphs, empty lines between.

    Chapters are independent and separated by a line of CHAPTER_BREAK.
    """
    rng = random_stream(seed, "books")
    shelf = []
    for number in range(books):
        province = world.provinces[rng.choices(("east", "west"), (2, 1))[0]]
        title = f"The {rng.choice(lexicon.adjectives)} {rng.choice(lexicon.nouns)[0]}".title()
        parts = [title.upper(), f"Volume {number + 1}"]
        cast, words = strangers(rng, province.people, 4), few_words(rng, lexicon)
        for index in range(chapters):
            if index:
                parts.append(CHAPTER_BREAK)
            parts.append(f"CHAPTER {index + 1}")
            parts += [textwrap.fill(" ".join(paragraph), width=72) for paragraph in chapter(rng, cast, words)]
        shelf.append((title, "\n\n".join(parts) + "\n"))
    return shelf
