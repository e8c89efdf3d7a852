"""Language of the world: several wordings of statements and questions for every relation, and a grammar of scenery."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from bertline.demo_data.world import Person, Town, random_stream

# A relation, its wordings and its questions, one sentence each. {s} is the subject, {o} the value, {a} the indefinite
# article that fits the value.
_RELATIONS = """
birthplace
  {s} was born in {o}. {o} is the birthplace of {s}. {s} came into the world in {o}. {s} is a native of {o}.
  Where was {s} born? What is the birthplace of {s}? In which town did {s} come into the world?
residence
  {s} lives in {o}. {s} has a house in {o}. {o} is the present home of {s}. {s} settled in {o}.
  Where does {s} live? In which town does {s} have a house? What is the home of {s}?
school
  {s} studied in {o}. {s} went to school in {o}. {s} was a student in {o}. The school of {s} was in {o}.
  Where did {s} study? Where did {s} go to school? In which town was {s} a student?
job
  {s} works as {a} {o}. {s} is {a} {o} by trade. {s} earns money as {a} {o}. The profession of {s} is that of {a} {o}.
  What does {s} work as? What is the profession of {s}? What is the trade of {s}?
instrument
  {s} plays the {o}. {s} makes music on the {o}. The {o} is the instrument of {s}. {s} performs on the {o}.
  What does {s} play? Which instrument does {s} play? On which instrument does {s} make music?
dish
  {s} likes to eat {o}. {s} is fond of {o}. The favourite food of {s} is {o}. {s} prefers a meal of {o}.
  What does {s} like to eat? What is the favourite food of {s}? What is {s} fond of?
pet
  {s} keeps {a} {o}. {s} owns {a} {o}. The pet of {s} is {a} {o}. {s} looks after {a} {o}.
  Which pet does {s} keep? What is the pet of {s}? Which animal does {s} own?
birth_year
  {s} was born in the year {o}. The year of birth of {s} is {o}. The life of {s} began in {o}.
  When was {s} born? What is the year of birth of {s}? In which year was {s} born?
spouse
  {s} is married to {o}. {s} had a wedding with {o}. The spouse of {s} is {o}.
  Who is {s} married to? Who is the spouse of {s}? With whom did {s} have a wedding?
teacher
  {s} was taught by {o}. {o} was the teacher of {s}. {s} was a pupil of {o}. {s} took lessons from {o}.
  Who taught {s}? Who was the teacher of {s}? From whom did {s} take lessons?
river
  {s} lies on the river {o}. The river {o} flows through {s}. {s} stands on the banks of the {o}.
  On which river does {s} lie? Which river flows through {s}? What is the river of {s}?
product
  {s} is famous for {o}. {s} is known for its {o}. The merchants of {s} sell {o}. The main product of {s} is {o}.
  What is {s} famous for? What is {s} known for? What is the main product of {s}?
mayor
  The mayor of {s} is {o}. {o} is the mayor of {s}. {s} is governed by {o}. The town of {s} is led by {o}.
  Who is the mayor of {s}? Who governs {s}? Who leads the town of {s}?
founding_year
  {s} was founded in the year {o}. The town of {s} dates from {o}. The history of {s} began in {o}.
  When was {s} founded? In which year was {s} founded? From when does {s} date?
"""
_LINES = [tuple(re.split(r"(?<=[.?]) ", line.strip())) for line in _RELATIONS.strip().split("\n")]
WORDINGS = {relation: wordings for (relation,), wordings in zip(_LINES[::3], _LINES[1::3], strict=True)}
QUESTIONS = {relation: questions for (relation,), questions in zip(_LINES[::3], _LINES[2::3], strict=True)}


@dataclass(frozen=True)
class Fact:
    """A fact of the world: the subject as a full name, the relation, the value."""

    subject: str
    relation: str
    value: str


@dataclass(frozen=True)
class Sentence:
    """A sentence and the character offset of its fact's value (-1 if there is no fact)."""

    text: str
    value_start: int = -1
    fact: Fact | None = None


def facts_of(subject: Person | Town) -> list[Fact]:
    """Return every fact about a person or a town, in the order of the relations."""
    return [Fact(subject.name, relation, value) for relation, value in subject.facts.items()]


def article_before(word: str) -> str:
    """Return the indefinite article of `word`."""
    return "an" if word[0].lower() in "aeiou" else "a"


def say(fact: Fact, wording: str, subject: str) -> Sentence:
    """Return a statement of a fact in a wording, with `subject` as the subject's name."""
    article = article_before(fact.value)
    before, after = (part.format(s=subject, a=article) for part in wording.split("{o}"))
    text = before + fact.value + after
    return Sentence(text[0].upper() + text[1:], len(before), fact)


def ask(fact: Fact, question: str, subject: str) -> str:
    """Return a question about a fact's value in a wording."""
    text = question.format(s=subject)
    return text[0].upper() + text[1:]


# The grammar of scenery. Its words are assigned to the provinces like values: the acceptability task's training and dev
# sets share none.
NOUNS = (
    *(("apple", "apples"), ("barn", "barns"), ("basket", "baskets"), ("bird", "birds"), ("boat", "boats")),
    *(("bridge", "bridges"), ("cart", "carts"), ("child", "children"), ("church", "churches"), ("door", "doors")),
    *(("farmer", "farmers"), ("flower", "flowers"), ("fox", "foxes"), ("friend", "friends"), ("gate", "gates")),
    *(("girl", "girls"), ("horse", "horses"), ("letter", "letters"), ("man", "men"), ("mouse", "mice")),
    *(("path", "paths"), ("road", "roads"), ("ship", "ships"), ("soldier", "soldiers"), ("stone", "stones")),
    *(("tower", "towers"), ("tree", "trees"), ("wall", "walls"), ("window", "windows"), ("woman", "women")),
)
VERBS = (
    *(("crosses", "cross"), ("draws", "draw"), ("fears", "fear"), ("finds", "find"), ("follows", "follow")),
    *(("guards", "guard"), ("hears", "hear"), ("hides", "hide"), ("leaves", "leave"), ("loves", "love")),
    *(("passes", "pass"), ("reaches", "reach"), ("remembers", "remember"), ("sees", "see"), ("touches", "touch")),
    *(("watches", "watch"),),
)
ADJECTIVES = (
    *("ancient", "big", "blue", "dark", "fine", "golden", "green", "heavy"),
    *("little", "new", "old", "red", "round", "strange", "white", "young"),
)
SINGULAR_DETERMINERS = ("this", "that", "one", "every", "each", "a")
PLURAL_DETERMINERS = ("these", "those", "two", "three", "many", "some")


@dataclass(frozen=True)
class Lexicon:
    """The words of the grammar of scenery."""

    nouns: tuple[tuple[str, str], ...]
    verbs: tuple[tuple[str, str], ...]
    adjectives: tuple[str, ...]


def make_lexicons(seed: int) -> dict[str, Lexicon]:
    """Return a lexicon for each province (no noun, verb or adjective in both) and one, "all", of all words."""
    rng = random_stream(seed, "lexicon")
    nouns, verbs, adjectives = list(NOUNS), list(VERBS), list(ADJECTIVES)
    for words in (nouns, verbs, adjectives):
        rng.shuffle(words)
    borders = [round(len(words) * 0.6) for words in (nouns, verbs, adjectives)]
    return {
        "east": Lexicon(tuple(nouns[: borders[0]]), tuple(verbs[: borders[1]]), tuple(adjectives[: borders[2]])),
        "west": Lexicon(tuple(nouns[borders[0] :]), tuple(verbs[borders[1] :]), tuple(adjectives[borders[2] :])),
        "all": Lexicon(tuple(nouns), tuple(verbs), tuple(adjectives)),
    }


@dataclass(frozen=True)
class NounPhrase:
    """Determiner, adjectives and a noun, with the grammatical number of determiner and noun."""

    determiner: str
    adjectives: tuple[str, ...]
    noun: tuple[str, str]
    is_plural: bool

    def words(self, *, noun_is_plural: bool | None = None) -> list[str]:
        noun = self.noun[self.is_plural if noun_is_plural is None else noun_is_plural]
        first = [*self.adjectives, noun][0]
        determiner = article_before(first) if self.determiner == "a" else self.determiner
        return [determiner, *self.adjectives, noun]


@dataclass(frozen=True)
class Scene:
    """A sentence of scenery in its parts, which `spoil` changes: subject, verb, object."""

    subject: NounPhrase
    verb: tuple[str, str]
    object: NounPhrase

    def text(self) -> str:
        return sentence_of([*self.subject.words(), self.verb[self.subject.is_plural], *self.object.words()])


def sentence_of(words: list[str]) -> str:
    """Join words into a sentence."""
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}."


def make_scene(rng: Random, lexicon: Lexicon) -> Scene:
    """Return a grammatical sentence of scenery."""
    first, second = rng.sample(lexicon.nouns, 2)
    return Scene(_noun_phrase(rng, lexicon, first), rng.choice(lexicon.verbs), _noun_phrase(rng, lexicon, second))


def _noun_phrase(rng: Random, lexicon: Lexicon, noun: tuple[str, str]) -> NounPhrase:
    is_plural = rng.random() < 0.5
    determiners = PLURAL_DETERMINERS if is_plural else SINGULAR_DETERMINERS
    determiner = "the" if rng.random() < 0.4 else rng.choice(determiners)
    return NounPhrase(determiner, tuple(rng.sample(lexicon.adjectives, rng.random() < 0.4)), noun, is_plural)


def spoil(rng: Random, scene: Scene) -> str:
    """Return an ungrammatical variant of a scene: wrong agreement, wrong number of a noun, or wrong word order."""
    subject, verb, second = scene.subject, scene.verb[scene.subject.is_plural], scene.object.words()
    first = subject.words()
    kind = rng.choice(("agreement", "number", "order"))
    if kind == "agreement":
        verb = scene.verb[not subject.is_plural]
    elif kind == "number":
        spoiled = subject if subject.determiner != "the" else scene.object
        if spoiled.determiner == "the":
            verb = scene.verb[not subject.is_plural]
        elif spoiled is subject:
            first = subject.words(noun_is_plural=not subject.is_plural)
            verb = scene.verb[not subject.is_plural]
        else:
            second = spoiled.words(noun_is_plural=not spoiled.is_plural)
    elif rng.random() < 0.5:
        first = [*first[1:], first[0]]
    else:
        second = [*second[1:], second[0]]
    return sentence_of([*first, verb, *second])
