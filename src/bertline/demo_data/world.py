"""A fictional world: people and towns with names made of syllables, and facts about them.

The world has two provinces that share no name and no value. Tasks train on one and are scored on the other, so no
entity of a dev set occurs in the task's training text; the pretraining corpus covers both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

PROVINCES = ("east", "west")

# Values that are ordinary words, one list for each relation. Every list is split between the two provinces.
ORDINARY_VALUES = {
    relation: words.split()
    for relation, words in {
        "job": "actor baker banker barber builder clerk dancer doctor engineer gardener judge lawyer "
        "miller nurse painter poet potter sailor smith tailor",
        "instrument": "banjo cello clarinet drum fiddle flute guitar harp horn lute oboe organ "
        "piano trumpet tuba whistle",
        "dish": "beans bread cake cheese cherries eggs fish honey mushrooms olives pears plums porridge rice soup stew",
        "pet": "canary cat crow dog donkey duck goat goose hare hedgehog lizard otter owl parrot pigeon tortoise",
        "product": "boots candles carpets clocks copper glass gloves hats iron knives lace paper ropes salt silk soap",
    }.items()
}


@dataclass(frozen=True)
class Person:
    """A person; within one text the family name is unique."""

    given_name: str
    family_name: str
    province: str
    facts: dict[str, str] = field(default_factory=dict, compare=False, hash=False)

    @property
    def name(self) -> str:
        return f"{self.given_name} {self.family_name}"


@dataclass(frozen=True)
class Town:
    """A town; its name is unique in the world."""

    name: str
    province: str
    facts: dict[str, str] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True)
class Province:
    """People and towns that share names and values with no other province."""

    people: tuple[Person, ...]
    towns: tuple[Town, ...]
    values: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class World:
    provinces: dict[str, Province]

    @property
    def people(self) -> list[Person]:
        return [person for province in self.provinces.values() for person in province.people]

    @property
    def towns(self) -> list[Town]:
        return [town for province in self.provinces.values() for town in province.towns]


def random_stream(seed: int, purpose: str) -> Random:
    """Return random numbers for one purpose, independent of other purposes."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - no secret


def make_world(seed: int, *, people: int = 800) -> World:
    """Generate the world of a seed. Two thirds of the names and of the people belong to the eastern province."""
    rng = random_stream(seed, "world")
    taken = {value for values in ORDINARY_VALUES.values() for value in values}
    pools = {
        "female": _names(rng, 24, taken, 2, "aei"),
        "male": _names(rng, 24, taken, 2, "bdgknost"),
        "family": _names(rng, 60, taken, 2, "klmnrstvx"),
        "town": _names(rng, 30, taken, 2, "dfglmnprt"),
        "river": _names(rng, 15, taken, 1, "hklmnrstz"),
        "year": [str(year) for year in sorted(rng.sample(range(1710, 1930), 30))],
        **{relation: list(values) for relation, values in ORDINARY_VALUES.items()},
    }
    shares: dict[str, dict[str, tuple[str, ...]]] = {name: {} for name in PROVINCES}
    for kind, pool in pools.items():
        rng.shuffle(pool)
        border = round(len(pool) * 0.64)
        shares["east"][kind], shares["west"][kind] = tuple(pool[:border]), tuple(pool[border:])
    counts = {"east": round(people * 0.64), "west": people - round(people * 0.64)}
    return World({name: _make_province(rng, name, shares[name], counts[name]) for name in PROVINCES})


def _names(rng: Random, count: int, taken: set[str], syllables: int, endings: str) -> list[str]:
    """Return `count` new names of `syllables` open syllables and one closing letter, and add them to `taken`."""
    names: list[str] = []
    while len(names) < count:
        name = "".join(rng.choice("bdfghjklmnprstvz") + rng.choice("aeiou") for _ in range(syllables))
        name += rng.choice(endings) if endings[0] not in "aeiou" else rng.choice("lmnrsv") + rng.choice(endings)
        if name not in taken:
            taken.add(name)
            names.append(name.capitalize())
    return names


def strangers(rng: Random, people: Sequence[Person], count: int) -> list[Person]:
    """Return `count` of the people with different family names."""
    while True:
        chosen = rng.sample(people, count)
        if len({person.family_name for person in chosen}) == count:
            return chosen


def _make_province(rng: Random, name: str, values: dict[str, tuple[str, ...]], count: int) -> Province:
    pairs: set[tuple[str, str]] = set()
    unsettled: list[Person] = []
    while len(unsettled) < count:
        given = rng.choice(values["female" if rng.random() < 0.5 else "male"])
        # Family names are assigned in turn, so that all are about equally frequent.
        family = values["family"][len(unsettled) % len(values["family"])]
        if (given, family) not in pairs:
            pairs.add((given, family))
            unsettled.append(Person(given, family, name))
    people = tuple(_settle(rng, person, unsettled, values) for person in unsettled)
    towns = tuple(
        Town(
            town,
            name,
            {
                "river": rng.choice(values["river"]),
                "product": rng.choice(values["product"]),
                "mayor": rng.choice(people).name,
                "founding_year": rng.choice(values["year"]),
            },
        )
        for town in values["town"]
    )
    return Province(people, towns, values)


def _settle(rng: Random, person: Person, others: list[Person], values: dict[str, tuple[str, ...]]) -> Person:
    """Return the person with facts: three different towns, two different companions, one value of each other kind."""
    birthplace, residence, school = rng.sample(values["town"], 3)
    spouse, teacher = person, person
    while len({person.family_name, spouse.family_name, teacher.family_name}) < 3:
        spouse, teacher = rng.sample(others, 2)
    facts = {
        "birthplace": birthplace,
        "residence": residence,
        "school": school,
        "birth_year": rng.choice(values["year"]),
        "spouse": spouse.name,
        "teacher": teacher.name,
        **{relation: rng.choice(values[relation]) for relation in ("job", "instrument", "dish", "pet")},
    }
    return replace(person, facts=facts)
