"""Bar charts and line charts: three to five labels, each with a printed whole number."""

from itertools import pairwise
from random import Random

from .board import COLOURS, FACES, Board, Picture, shade, tint
from .table import DAYS, NAMES, TOP

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun")
FRUITS = ("apple", "pear", "plum", "kiwi", "grape", "lemon", "melon", "cherry")
TITLES = ("sales", "visits", "points", "hours", "votes", "trips")


def trend(values: list[int]) -> str:
    """Which way a series goes: "rising", "falling" or "mixed"."""
    steps = [b > a for a, b in pairwise(values)]
    return "rising" if all(steps) else "mixed" if any(steps) else "falling"


def draw_bar(rng: Random, unit: int, fine: int) -> Picture:
    """A bar chart; facts: `title`, `labels`, `values` (all different), `colour`."""
    family = rng.choice((DAYS, MONTHS, FRUITS, NAMES))
    labels = rng.sample(family, rng.choice((3, 4, 4, 5)))
    if family in (DAYS, MONTHS):
        labels.sort(key=family.index)
    values = rng.sample(range(1, TOP + 1), len(labels))
    return _draw(rng, unit, fine, "bar", labels, values)


def draw_line(rng: Random, unit: int, fine: int) -> Picture:
    """A line chart; facts: `title`, `labels`, `values` (all different), `colour`, `trend`."""
    family = rng.choice((DAYS, MONTHS))
    count = rng.choice((3, 4, 4, 5))
    first = rng.randrange(len(family) - count + 1)
    values = rng.sample(range(1, TOP + 1), count)
    turn = rng.random()
    if turn < 0.5:
        values.sort(reverse=turn < 0.25)
    return _draw(rng, unit, fine, "line", list(family[first : first + count]), values)


def _draw(rng: Random, unit: int, fine: int, kind: str, labels: list, values: list) -> Picture:
    board = Board(5, 6, unit, fine, tint(rng, 244))
    face, ink, soft = rng.choice(FACES), (25, 25, 30), (205, 205, 210)
    title = rng.choice(TITLES)
    colour = rng.choice(list(COLOURS))
    fill = shade(rng, colour)
    board.text(3, 0.4, title.capitalize(), face, 0.5, ink)
    board.mark(0, 0, 6, 1, f"title:{title}")
    floor, tall, left = 4.15, 2.45, 0.25
    wide = (6 - left) / len(labels)
    for i in range(5):
        y = floor - tall * i / 4
        board.line([(left, y), (5.95, y)], soft, 0.015)
    board.line([(left, floor), (5.95, floor)], ink, 0.035)
    board.line([(left, floor), (left, 1.3)], ink, 0.035)
    spots = [(left + wide * (i + 0.5), floor - tall * v / TOP) for i, v in enumerate(values)]
    half = wide * rng.uniform(0.26, 0.36)
    if kind == "line":
        board.line(spots, fill, 0.07)
    for i, (x, y) in enumerate(spots):
        if kind == "bar":
            board.box(x - half, y, x + half, floor, fill=fill)
        else:
            board.pen.ellipse(board.px(x - 0.1, y - 0.1, x + 0.1, y + 0.1), fill=fill)
        board.text(x, y - 0.3, str(values[i]), face, 0.44, ink)
        board.text(x, 4.55, labels[i], face, 0.42, ink, max_width=wide * 0.94)
        marks = [f"label:{labels[i]}", f"value:{values[i]}", f"order:{i + 1}"]
        marks.append(f"next:{labels[i + 1]}" if i + 1 < len(labels) else "next:none")
        marks.append(f"rank:{sum(v > values[i] for v in values) + 1}")
        if values[i] == max(values):
            marks.append("most")
        if values[i] == min(values):
            marks.append("least")
        board.mark(x - wide / 2, 1, x + wide / 2, 5, *marks)
    board.mark_all(f"count:{len(labels)}", f"colour:{colour}")
    facts = {"title": title, "labels": labels, "values": values, "colour": colour}
    if kind == "line":
        facts["trend"] = trend(values)
        board.mark_all(f"trend:{facts['trend']}")
    return board.done(kind, facts)
