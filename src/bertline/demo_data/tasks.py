"""Tasks about the world in the layouts of the official files: SQuAD v1.1 and v2.0, and three GLUE tables.

The training files are about the eastern province, the dev files about the western one.
"""

from __future__ import annotations

from random import Random
from typing import Any

from bertline.demo_data.articles import Namer
from bertline.demo_data.language import (
    QUESTIONS,
    WORDINGS,
    Fact,
    Lexicon,
    ask,
    facts_of,
    make_scene,
    say,
    spoil,
)
from bertline.demo_data.world import Person, Province, Town, random_stream, strangers

Row = tuple[str, ...]
PROVINCE_OF_SPLIT = {"train": "east", "dev": "west"}


def squad(seed: int, split: str, province: Province, *, paragraphs: int, impossible: bool) -> dict[str, Any]:
    """Return a SQuAD file of `paragraphs` paragraphs with two questions each, and with v2.0's if `impossible`.

    A paragraph is about two people or two towns; its sentences are in random order.
    """
    rng = random_stream(seed, f"squad/{split}")
    entries = []
    for index in range(paragraphs):
        context, told, namer = _paragraph(rng, province)
        questions: list[dict[str, Any]] = []
        for number, (fact, start) in enumerate(rng.sample(told, 2)):
            question = ask(fact, rng.choice(QUESTIONS[fact.relation]), namer(fact.subject))
            entry: dict[str, Any] = {"id": f"{split}-{index:05d}-{number}", "question": question}
            entry["answers"] = [{"text": fact.value, "answer_start": start}]
            questions.append({**entry, "is_impossible": False} if impossible else entry)
        if impossible:
            untold = _untold(rng, province, told)
            question = ask(untold, rng.choice(QUESTIONS[untold.relation]), namer(untold.subject))
            entry = {"id": f"{split}-{index:05d}-2", "question": question, "answers": [], "plausible_answers": []}
            questions.append({**entry, "is_impossible": True})
        entries.append({"context": context, "qas": questions})
    data = [
        {"title": f"{split.capitalize()}_{start // 20:03d}", "paragraphs": entries[start : start + 20]}
        for start in range(0, paragraphs, 20)
    ]
    return {"version": "v2.0" if impossible else "1.1", "data": data}


def _paragraph(rng: Random, province: Province) -> tuple[str, list[tuple[Fact, int]], Namer]:
    """Return a context, its facts with the character offsets of their values, and the names of its people."""
    if rng.random() < 0.2:
        towns = rng.sample(province.towns, 2)
        facts = [fact for town in towns for fact in rng.sample(facts_of(town), 3)]
        namer = Namer(rng, [])
    else:
        people = strangers(rng, province.people, 2)
        facts = [fact for person in people for fact in rng.sample(facts_of(person), 3)]
        namer = Namer(rng, people)
    rng.shuffle(facts)
    context, told = "", []
    for fact in facts:
        sentence = say(fact, rng.choice(WORDINGS[fact.relation]), namer(fact.subject))
        told.append((fact, len(context) + sentence.value_start))
        context += sentence.text + " "
    return context.rstrip(), told, namer


def _untold(rng: Random, province: Province, told: list[tuple[Fact, int]]) -> Fact:
    """Return a fact about a person or town of the paragraph that the paragraph does not state."""
    subject = rng.choice(told)[0].subject
    known = {(fact.subject, fact.relation) for fact, _ in told}
    entities: list[Person | Town] = [*province.people, *province.towns]
    entity = next(entity for entity in entities if entity.name == subject)
    return rng.choice([fact for fact in facts_of(entity) if (fact.subject, fact.relation) not in known])


def acceptability(seed: int, split: str, lexicon: Lexicon, *, rows: int) -> list[Row]:
    """Return CoLA's rows (source, label, star, sentence), without a header; half of the sentences are ungrammatical."""
    rng = random_stream(seed, f"acceptability/{split}")
    table: list[Row] = []
    for index in range(rows):
        scene = make_scene(rng, lexicon)
        good = index % 2 == 0
        table.append(("gen", "1" if good else "0", "" if good else "*", scene.text() if good else spoil(rng, scene)))
    rng.shuffle(table)
    return table


def paraphrase(seed: int, split: str, province: Province, *, rows: int) -> list[Row]:
    """Return MRPC's header and rows. A paraphrase rewords the fact; the others state another fact about the person."""
    rng = random_stream(seed, f"paraphrase/{split}")
    table = []
    for index in range(rows):
        person = rng.choice(province.people)
        fact, other = rng.sample(facts_of(person), 2)
        first, second = rng.sample(WORDINGS[fact.relation], 2)
        same = index % 2 == 0
        if not same:
            second = rng.choice(WORDINGS[other.relation])
        name = person.family_name if rng.random() < 0.5 else person.name
        told = say(fact if same else other, second, name)
        table.append(("1" if same else "0", say(fact, first, person.name).text, told.text))
    rng.shuffle(table)
    offset = 1_000_000 if split == "train" else 2_000_000
    rows_with_ids = [
        (label, str(offset + 2 * number), str(offset + 2 * number + 1), first, second)
        for number, (label, first, second) in enumerate(table)
    ]
    return [("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), *rows_with_ids]


def entailment(seed: int, split: str, province: Province, *, rows: int) -> list[Row]:
    """Return RTE's header and rows. The premise states two facts on a person, the hypothesis one of them or another."""
    rng = random_stream(seed, f"entailment/{split}")
    table = []
    for index in range(rows):
        person = rng.choice(province.people)
        *facts, untold = rng.sample(facts_of(person), 3)
        used = [rng.choice(WORDINGS[fact.relation]) for fact in facts]
        premise = " ".join(say(fact, wording, fact.subject).text for fact, wording in zip(facts, used, strict=True))
        chosen = rng.randrange(2)
        fact = facts[chosen] if index % 2 == 0 else untold
        wording = rng.choice([text for text in WORDINGS[fact.relation] if text != used[chosen]])
        label = "entailment" if index % 2 == 0 else "not_entailment"
        table.append((premise, say(fact, wording, person.family_name).text, label))
    rng.shuffle(table)
    return [("index", "sentence1", "sentence2", "label"), *((str(number), *row) for number, row in enumerate(table))]
