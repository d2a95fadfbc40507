"""Pie charts: two to four slices and a key with the share of each."""

from random import Random

from .bars import FRUITS
from .board import COLOURS, FACES, Board, Picture, shade, tint
from .table import NAMES

TITLES = ("votes", "sales", "shares", "orders")


def parts(rng: Random, count: int) -> list[int]:
    """`count` different multiples of 5 from 5 up that sum to 100."""
    while True:
        cuts = sorted(rng.sample(range(1, 20), count - 1))
        shares = [5 * (b - a) for a, b in zip([0, *cuts], [*cuts, 20], strict=True)]
        if len(set(shares)) == count and max(shares) <= 80:
            return shares


def draw(rng: Random, unit: int, fine: int) -> Picture:
    """A pie chart; facts: `title`, `slices` [{label, share, colour}] in the key's order."""
    board = Board(5, 6, unit, fine, tint(rng, 244))
    face, ink = rng.choice(FACES), (25, 25, 30)
    title = rng.choice(TITLES)
    labels = rng.sample(rng.choice((FRUITS, NAMES)), rng.choice((2, 3, 3, 4)))
    shares = parts(rng, len(labels))
    colours = rng.sample(list(COLOURS), len(labels))
    board.text(3, 0.45, title.capitalize(), face, 0.5, ink)
    board.mark(0, 0, 6, 1, f"title:{title}")
    start = rng.choice((-90, 0, 180))
    for i, (label, share, colour) in enumerate(zip(labels, shares, colours, strict=True)):
        fill = shade(rng, colour)
        end = start + 3.6 * share
        board.pen.pieslice(board.px(0.12, 1.52, 2.88, 4.28), start, end, fill=fill)
        start = end
        y = 1.5 + i
        board.box(3.05, y - 0.17, 3.38, y + 0.17, fill=fill)
        board.text(3.48, y, label, face, 0.42, ink, "lm", max_width=1.3)
        board.text(5.95, y, f"{share}%", face, 0.42, ink, "rm", max_width=1.1)
        marks = [f"label:{label}", f"share:{share}", f"colour:{colour}", f"order:{i + 1}"]
        marks.append(f"next:{labels[i + 1]}" if i + 1 < len(labels) else "next:none")
        marks.append(f"rank:{sum(s > share for s in shares) + 1}")
        if share == max(shares):
            marks.append("most")
        if share == min(shares):
            marks.append("least")
        board.mark(3, y - 0.5, 6, y + 0.5, *marks)
    board.mark_all(f"count:{len(labels)}")
    slices = [
        {"label": a, "share": b, "colour": c}
        for a, b, c in zip(labels, shares, colours, strict=True)
    ]
    return board.done("pie", {"title": title, "slices": slices})
