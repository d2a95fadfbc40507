"""Templates for questions and answers, shared by the kinds of picture.

A question template comes with its answer template. The wording of a question decides the wording
of its answer, so that answers vary widely and a greedy decoder can still know which one to give.
"""

import json
from dataclasses import dataclass
from random import Random

Templates = list[tuple[str, str]]


@dataclass(frozen=True)
class Turn:
    """One question with its answer; `task` names what is asked."""

    task: str
    question: str
    answer: str
    template: str = ""  # of the question: what a constant guess may know


def pick(rng: Random, task: str, templates: Templates, **facts: object) -> Turn:
    """A turn from one of the templates, with the facts filled in."""
    question, answer = rng.choice(templates)
    return Turn(task, question.format(**facts), answer.format(**facts), f"{task}: {question}")


def a(words: str) -> str:
    """With its indefinite article: `a("orange star") -> "an orange star"`."""
    return f"an {words}" if words[0] in "aeiouAEIO" else f"a {words}"


def series(words: list[str]) -> str:
    """As English: `series(["a", "b", "c"]) -> "a, b and c"`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def grid(head: list[str], rows: list[list[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(v) for v in line) + " |" for line in lines)


def bullets(lines: list[str]) -> str:
    """A Markdown list."""
    return "\n".join(f"- {line}" for line in lines)


def numbered(lines: list[str]) -> str:
    """A numbered list."""
    return "\n".join(f"{i}. {line}" for i, line in enumerate(lines, 1))


def as_json(value: object) -> str:
    """JSON on one line."""
    return json.dumps(value)


def two(rng: Random, options: list) -> list:
    """Two different ones, in any order."""
    return rng.sample(options, 2)
