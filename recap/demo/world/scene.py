"""Simple scenes: one to three coloured shapes on a three by three field of places."""

import math
from random import Random

from .board import COLOURS, Board, Picture, shade

SHAPES = ("circle", "square", "triangle", "star", "heart", "diamond")
SIZES = ("small", "large")
PLACES = (
    "top left", "top middle", "top right",
    "middle left", "centre", "middle right",
    "bottom left", "bottom middle", "bottom right",
)  # fmt: skip


def outline(shape: str, x: float, y: float, r: float) -> list[tuple[float, float]]:
    """The corners of a shape of radius `r` around a point."""
    if shape == "square":
        return [(x - r * 0.86, y - r * 0.86), (x + r * 0.86, y - r * 0.86),
                (x + r * 0.86, y + r * 0.86), (x - r * 0.86, y + r * 0.86)]  # fmt: skip
    if shape == "diamond":
        return [(x, y - r * 1.12), (x + r * 0.72, y), (x, y + r * 1.12), (x - r * 0.72, y)]
    if shape == "triangle":
        return [(x, y - r), (x + r, y + r * 0.85), (x - r, y + r * 0.85)]
    if shape == "star":
        turn = [math.pi * i / 5 - math.pi / 2 for i in range(10)]
        rays = [r * (1.12 if i % 2 == 0 else 0.46) for i in range(10)]
        return [(x + q * math.cos(t), y + q * math.sin(t)) for q, t in zip(rays, turn, strict=True)]
    if shape == "heart":
        steps = [2 * math.pi * i / 40 for i in range(40)]
        return [
            (
                x + r / 16 * 16 * math.sin(t) ** 3,
                y - r / 16 * (13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t)),
            )
            for t in steps
        ]
    steps = [2 * math.pi * i / 60 for i in range(60)]
    return [(x + r * math.cos(t), y + r * math.sin(t)) for t in steps]


def draw(rng: Random, unit: int, fine: int) -> Picture:
    """A scene; facts: `things`, a list of {colour, shape, size, place} in reading order."""
    board = Board(6, 6, unit, fine, (255, 255, 255))
    warm, cool = rng.randint(244, 255), rng.randint(214, 232)
    # The light always falls from the top left: every place has its own shade.
    board.wash((255, warm, 235), (cool, 240, 255), (225, 245, 215), (205, 205, 225))
    board.box(0.06, 0.06, 5.94, 5.94, line=(90, 90, 90), width=0.05)
    count = rng.choice((1, 2, 2, 3, 3))
    seen: set[tuple[str, str]] = set()
    things = []
    for spot in sorted(rng.sample(range(9), count)):
        while True:
            colour, shape = rng.choice(list(COLOURS)), rng.choice(SHAPES)
            if things and rng.random() < 0.3:
                colour = rng.choice(things)["colour"]
            if things and rng.random() < 0.3:
                shape = rng.choice(things)["shape"]
            if (colour, shape) not in seen:
                break
        seen.add((colour, shape))
        size = rng.choice(SIZES)
        things.append({"colour": colour, "shape": shape, "size": size, "place": PLACES[spot]})
        radius = rng.uniform(0.4, 0.48) if size == "small" else rng.uniform(0.76, 0.86)
        x = spot % 3 * 2 + 1 + rng.uniform(-0.08, 0.08)
        y = spot // 3 * 2 + 1 + rng.uniform(-0.08, 0.08)
        points = [tuple(board.px(*p)) for p in outline(shape, x, y, radius)]
        board.pen.polygon(points, fill=shade(rng, colour))
    for i, t in enumerate(things):
        spot = PLACES.index(t["place"])
        x, y = spot % 3 * 2, spot // 3 * 2
        after = things[i + 1] if i + 1 < len(things) else None
        board.mark(
            x, y, x + 2, y + 2, f"colour:{t['colour']}", f"shape:{t['shape']}", f"size:{t['size']}",
            f"thing:{t['colour']} {t['shape']}", f"order:{i + 1}",
            f"alike:{sum(u['shape'] == t['shape'] for u in things)}",
            f"tinted:{sum(u['colour'] == t['colour'] for u in things)}",
            f"next:{after['colour']}" if after else "next:none",
            f"next shape:{after['shape']}" if after else "next shape:none",
        )  # fmt: skip
    for spot, place in enumerate(PLACES):
        x, y = spot % 3 * 2, spot // 3 * 2
        bare = [] if place in {t["place"] for t in things} else ["empty"]
        board.mark(x, y, x + 2, y + 2, f"place:{place}", *bare)
    board.mark_all(f"count:{count}")
    return board.done("scene", {"things": things})
