"""The drawn world: pictures from seeds, the facts that they show, and what each cell shows.

>>> picture = draw("bar", seed=7)
>>> picture.kind, len(picture.cells) == picture.rows * picture.cols
('bar', True)
"""

import random
from collections.abc import Callable

from . import bars, other, pie, receipt, scene, sign, table
from .board import Picture

DRAW: dict[str, Callable[..., Picture]] = {
    "scene": scene.draw,
    "sign": sign.draw,
    "receipt": receipt.draw_receipt,
    "menu": receipt.draw_menu,
    "table": table.draw,
    "bar": bars.draw_bar,
    "line": bars.draw_line,
    "pie": pie.draw,
    "other": other.draw,
}
KINDS = tuple(DRAW)
# How often each kind is drawn for training.
WEIGHTS = (32, 6, 10, 7, 18, 20, 9, 9, 6)


def draw(kind: str, seed: int | str, unit: int = 96, fine: int = 1) -> Picture:
    """The picture of `kind` that `seed` names; `unit` is the side of a cell in pixels.

    `fine` > 1 draws larger and shrinks, for smooth edges (the example gallery).
    """
    return DRAW[kind](random.Random(f"{kind}-{seed}"), unit, fine)


def draw_any(seed: int | str) -> Picture:
    """A picture of a kind and size that `seed` chooses (the training mix)."""
    rng = random.Random(f"any-{seed}")
    kind = rng.choices(KINDS, WEIGHTS)[0]
    return draw(kind, seed, unit=rng.choice((80, 96, 112)))
