"""Dialogues: several turns about one picture, sometimes none, sometimes a second one."""

from dataclasses import dataclass
from random import Random

from .dialogues import aside, charts, receipts, scenes, signs, tables
from .dialogues.ways import Turn


@dataclass(frozen=True)
class Line:
    """One turn of a dialogue; `image` is the number of the picture that is shown with it."""

    turn: Turn
    image: int | None = None


def ask(rng: Random, kind: str, facts: dict, brief: float = 0.0) -> list[Turn]:
    """One question about a picture, now and then with its follow-up.

    `brief` is the share of the long answers that are left out for another question.
    """
    chance = rng.random()
    if chance < 0.04:
        return aside.small_talk(rng, kind)
    if kind == "other":
        return aside.refuse(rng)
    if chance < 0.07:
        return aside.misfit(rng, kind)
    if chance < 0.09:
        return aside.what(rng, kind)
    turns = about(rng, kind, facts)
    while turns[0].task == "describe" and rng.random() < brief:
        turns = about(rng, kind, facts)
    return turns


def about(rng: Random, kind: str, facts: dict) -> list[Turn]:
    """One question of the kind's own (what the model card counts)."""
    if kind == "other":
        return aside.refuse(rng)
    if kind == "scene":
        return scenes.scene(rng, facts)
    if kind == "sign":
        return signs.sign(rng, facts)
    if kind in ("receipt", "menu"):
        return receipts.receipt(rng, facts)
    if kind == "table":
        return tables.table(rng, facts)
    return charts.chart(rng, facts, kind)


def rough(rng: Random, turn: Turn) -> Turn:
    """As people type: sometimes all in small letters, or without the mark at the end."""
    question, chance = turn.question, rng.random()
    if chance < 0.06:
        question = question.lower()
    if chance < 0.03 or chance > 0.97:
        question = question.rstrip("?.!")
    return Turn(turn.task, question, turn.answer, turn.way)


def talk(
    rng: Random, pictures: list[tuple[str, dict]], room: int = 900, brief: float = 0.0
) -> list[Line]:
    """A dialogue about the pictures, about `room` characters for each of them.

    With no picture it is about there being none.
    """
    lines: list[Line] = []
    if not pictures or rng.random() < 0.05:
        for _ in range(rng.randint(1, 4) if not pictures else 1):
            lines += [Line(rough(rng, t)) for t in aside.blind(rng)]
    for i, (kind, facts) in enumerate(pictures):
        used, first = 0, True
        while used < room:
            for turn in ask(rng, kind, facts, brief):
                lines.append(Line(rough(rng, turn), i if first else None))
                used += len(turn.question) + len(turn.answer) + 20
                first = False
    return lines
