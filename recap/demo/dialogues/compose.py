"""Composes dialogues: several turns about one picture, sometimes about none or a second one."""

from dataclasses import dataclass
from random import Random

from . import charts, off_topic, receipts, scenes, signs, tables
from .templates import Turn


@dataclass(frozen=True)
class Line:
    """One turn of a dialogue; `image`: the number of the picture that is shown with it."""

    turn: Turn
    image: int | None = None


def question(rng: Random, kind: str, facts: dict, brief: float = 0.0) -> list[Turn]:
    """One question about a picture, sometimes with a follow-up; sometimes small talk.

    brief: the share of long answers that are replaced by another question.
    """
    chance = rng.random()
    if chance < 0.04:
        return off_topic.small_talk(rng, kind)
    if kind == "other":
        return off_topic.refuse(rng)
    if chance < 0.07:
        return off_topic.misfit(rng, kind)
    if chance < 0.09:
        return off_topic.kind_of_picture(rng, kind)
    turns = question_about(rng, kind, facts)
    while turns[0].task == "describe" and rng.random() < brief:
        turns = question_about(rng, kind, facts)
    return turns


def question_about(rng: Random, kind: str, facts: dict) -> list[Turn]:
    """One question about what the picture shows (what the model card counts)."""
    if kind == "other":
        return off_topic.refuse(rng)
    if kind == "scene":
        return scenes.scene(rng, facts)
    if kind == "sign":
        return signs.sign(rng, facts)
    if kind in ("receipt", "menu"):
        return receipts.receipt(rng, facts)
    if kind == "table":
        return tables.table(rng, facts)
    return charts.chart(rng, facts, kind)


def as_typed(rng: Random, turn: Turn) -> Turn:
    """As people type: sometimes all in lower case, or without the final punctuation mark."""
    question, chance = turn.question, rng.random()
    if chance < 0.06:
        question = question.lower()
    if chance < 0.03 or chance > 0.97:
        question = question.rstrip("?.!")
    return Turn(turn.task, question, turn.answer, turn.template)


def dialogue(
    rng: Random, pictures: list[tuple[str, dict]], length: int = 900, brief: float = 0.0
) -> list[Line]:
    """A dialogue about the pictures, with about `length` characters for each.

    Without a picture, every question is answered by asking for one.
    """
    lines: list[Line] = []
    if not pictures or rng.random() < 0.05:
        for _ in range(rng.randint(1, 4) if not pictures else 1):
            lines += [Line(as_typed(rng, t)) for t in off_topic.without_picture(rng)]
    for i, (kind, facts) in enumerate(pictures):
        used, first = 0, True
        while used < length:
            for turn in question(rng, kind, facts, brief):
                lines.append(Line(as_typed(rng, turn), i if first else None))
                used += len(turn.question) + len(turn.answer) + 20
                first = False
    return lines
