"""Write short tales by rules: a text to try language models on, the same on every machine.

A tale has a hero, a friend, something lost and where it was found. To write one, a net must remember names, what was
lost, and who is she or he.
"""

from __future__ import annotations

from typing import NamedTuple

from ..data.transform.transformer import batch_rng

_STREAM = 1 << 38  # of random numbers, apart from those of data


class _Being(NamedTuple):
    name: str
    kind: str
    she: str
    her: str  # whose
    it: str  # whom


_BEINGS = tuple(
    _Being(name, kind, *(("she", "her", "her") if female else ("he", "his", "him")))
    for name, kind, female in (
        ("Mila", "mouse", True),
        ("Oskar", "owl", False),
        ("Hanna", "hen", True),
        ("Finn", "fox", False),
        ("Bella", "bear", True),
        ("Rufus", "rabbit", False),
        ("Clara", "cat", True),
        ("Toby", "toad", False),
        ("Dora", "duck", True),
        ("Max", "mole", False),
        ("Greta", "goose", True),
        ("Sam", "squirrel", False),
    )
)
_ADJECTIVES = ("little", "old", "brave", "shy", "clever", "hungry", "cheerful", "sleepy")
_HOMES = (
    "under the old oak",
    "beside the mill",
    "at the edge of the wood",
    "behind the garden wall",
    "on the hill",
    "near the pond",
)
_THINGS = (
    *("red button", "silver key", "wooden spoon", "blue hat", "round stone", "golden bell", "warm scarf", "paper boat"),
)
_PLACES = (
    *("in the tall grass", "under a flat stone", "behind the well", "in an empty nest", "at the bottom of a basket"),
    *("among the roots of a tree", "on the roof of the barn", "beneath the bridge"),
)
_SKIES = (
    *("The sun was shining", "A soft rain was falling", "The wind was blowing", "The first snow lay on the fields"),
    *("The moon had just come up", "A thin fog hung over the water"),
)
_TIMES = ("One morning", "One evening", "Early in spring", "Late in autumn", "On a quiet Sunday", "On market day")
_FOODS = ("a piece of cheese", "a bowl of soup", "three ripe plums", "a slice of bread", "a pot of honey", "warm milk")
_MORALS = (
    "A friend who looks with you sees twice as much.",
    "What is lost alone is often found together.",
    "Those who share their bread never eat alone.",
    "The longest way is short with a friend.",
    "It is better to ask than to weep.",
)


def tale(number: int, seed: int = 0) -> str:
    """Return tale `number`, a paragraph of plain English in ASCII that ends in two line feeds."""
    rng = batch_rng(seed, number, _STREAM)

    def one(of: tuple[str, ...]) -> str:
        return of[int(rng.integers(len(of)))]

    hero, friend = (_BEINGS[int(k)] for k in rng.choice(len(_BEINGS), 2, replace=False))
    thing, place, food = one(_THINGS), one(_PLACES), one(_FOODS)
    wrong = one(tuple(p for p in _PLACES if p != place))
    she, her, it = hero.she, hero.her, hero.it
    begin = one(
        (
            f"There once was a {one(_ADJECTIVES)} {hero.kind} called {hero.name}, who lived {one(_HOMES)}.",
            f"{hero.name} the {hero.kind} lived {one(_HOMES)}, and {she} owned a {thing}.",
            f"{one(_HOMES).capitalize()} lived a {one(_ADJECTIVES)} {hero.kind}, and {her} name was {hero.name}.",
        )
    )
    loss = one(
        (
            f"{one(_TIMES)} {hero.name} could not find {her} {thing}.",
            f"{one(_TIMES)} {she} saw that {her} {thing} was gone.",
            f"{one(_TIMES)} {she} went for a walk and lost {her} {thing}.",
        )
    )
    sky = one((f"{one(_SKIES)}, and nobody was about.", f"{one(_SKIES)}.", ""))
    asked = one(
        (
            f'"Have you seen my {thing}?" {she} asked {friend.name} the {friend.kind}.',
            f'{hero.name} ran to {friend.name} the {friend.kind}. "Please help me, my {thing} is lost."',
            f'"Why are you sad?" asked {friend.name} the {friend.kind}. "I have lost my {thing}," {she} said.',
        )
    )
    answer = one(
        (
            f'"No," said {friend.name}, "but I will look with you."',
            f'"Do not weep," said {friend.name}. "Let us look together."',
            f'{friend.name} thought for a while. "I saw something {wrong}," {friend.she} said.',
        )
    )
    search = one(
        (
            f"First they looked {wrong}, but there was nothing.",
            f"They looked {wrong}, and they looked again, but the {thing} was not there.",
            f"They walked all day and looked {wrong} in vain.",
        )
    )
    found = one(
        (
            f"Then {friend.name} looked {place}, and there lay the {thing}!",
            f'"Here it is!" cried {friend.name}. The {thing} was {place}.',
            f"At last {hero.name} found {her} {thing} {place}.",
        )
    )
    end = one(
        (
            f"{hero.name} was so glad that {she} gave {friend.name} {food}.",
            f"{hero.name} thanked {friend.name}, and they ate {food} together.",
            f"So {friend.name} brought {it} home, and they shared {food}.",
        )
    )
    moral = one((one(_MORALS), ""))
    return " ".join(s for s in (begin, loss, sky, asked, answer, search, found, end, moral) if s) + "\n\n"


def tales(count: int = 400, seed: int = 0) -> str:
    """Return so many tales; 400 are about 190 KB."""
    return "".join(tale(number, seed) for number in range(count))
