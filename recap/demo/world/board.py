"""A board of square cells to draw on, which records what each cell shows.

A cell becomes one merged token of the model (28 x 28 pixels after the image processor). The marks of a
cell are what the vision encoder is trained to recognise there. All coordinates are in cells.
"""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageFont

FONT_DIR = Path(__file__).parents[3] / "assets" / "fonts"
FACES = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSerif", "DejaVuSansMono-Bold", "")
COLOURS = {
    "red": (214, 40, 40),
    "blue": (33, 82, 204),
    "green": (30, 140, 60),
    "yellow": (250, 212, 20),
    "orange": (245, 130, 20),
    "purple": (125, 50, 160),
    "pink": (245, 140, 185),
    "black": (30, 30, 34),
}
RGB = tuple[int, int, int]


@dataclass(frozen=True)
class Picture:
    """One drawn image with everything that is known about it."""

    kind: str
    image: Image.Image
    facts: dict
    rows: int
    cols: int
    cells: tuple[frozenset[str], ...] = field(repr=False)  # row-major
    glyphs: tuple[str, ...] = field(repr=False)  # the letters in each quarter cell, row-major


@functools.lru_cache(maxsize=256)
def font(face: str, size: int) -> ImageFont.FreeTypeFont:
    """The font of a face ("" is Pillow's own) at a size in pixels."""
    if not face:
        return ImageFont.load_default(size)
    return ImageFont.truetype(str(FONT_DIR / f"{face}-ascii.ttf"), size)


def shade(rng: Random, colour: str, spread: int = 14) -> RGB:
    """The colour of that name, varied a little."""
    return tuple(max(0, min(255, v + rng.randint(-spread, spread))) for v in COLOURS[colour])


def tint(rng: Random, low: int = 232) -> RGB:
    """A light paper colour."""
    return tuple(rng.randint(low, 255) for _ in range(3))


class Board:
    """A canvas of `rows` x `cols` cells of `unit` pixels."""

    def __init__(self, rows: int, cols: int, unit: int, fine: int, paper: RGB) -> None:
        self.rows, self.cols, self.fine = rows, cols, fine
        self.unit = unit * fine
        self.image = Image.new("RGB", (cols * self.unit, rows * self.unit), paper)
        self.pen = ImageDraw.Draw(self.image)
        self.marks: list[set[str]] = [set() for _ in range(rows * cols)]
        self.glyphs: list[set[str]] = [set() for _ in range(4 * rows * cols)]

    def px(self, *values: float) -> list[float]:
        """Cells -> pixels."""
        return [v * self.unit for v in values]

    def wash(self, top_left: RGB, top_right: RGB, low_left: RGB, low_right: RGB) -> None:
        """Fill with a soft gradient between four corners."""
        seed = Image.new("RGB", (2, 2))
        seed.putdata([top_left, top_right, low_left, low_right])
        box = (0.5, 0.5, 1.5, 1.5)
        self.image.paste(seed.resize(self.image.size, Image.Resampling.BILINEAR, box=box))

    def box(self, x0: float, y0: float, x1: float, y1: float, fill=None, line=None, width=0.03):
        """A rectangle."""
        w = max(1, round(width * self.unit)) if line else 0
        self.pen.rectangle(self.px(x0, y0, x1, y1), fill=fill, outline=line, width=w)

    def line(self, points: list[tuple[float, float]], fill: RGB, width: float = 0.03) -> None:
        """A polyline."""
        flat = [tuple(self.px(*p)) for p in points]
        self.pen.line(flat, fill=fill, width=max(1, round(width * self.unit)), joint="curve")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        face: str,
        size: float,
        fill: RGB,
        anchor="mm",
        max_width: float | None = None,
    ) -> None:
        """Text at a point, `size` cells high, smaller where it would be wider than `max_width` cells."""
        f = font(face, round(size * self.unit))
        if max_width is not None:
            wide = f.getlength(words) / self.unit
            if wide > max_width:
                f = font(face, int(size * self.unit * max_width / wide))
        self.pen.text(tuple(self.px(x, y)), words, font=f, fill=fill, anchor=anchor)
        wide, high = f.getlength(words) / self.unit, f.size / self.unit * 0.7
        left = x - wide * {"l": 0, "m": 0.5, "r": 1}[anchor[0]]
        for i, glyph in enumerate(words):
            x0 = left + f.getlength(words[:i]) / self.unit
            x1 = left + f.getlength(words[: i + 1]) / self.unit
            self._spell(glyph, 2 * x0, 2 * (y - high / 2), 2 * x1, 2 * (y + high / 2))

    def _spell(self, glyph: str, x0: float, y0: float, x1: float, y1: float) -> None:
        """Record a letter in the quarter cells that it fills, or in the one at its centre."""
        wide, high = 2 * self.cols, 2 * self.rows
        xs = [c for c in range(wide) if x0 <= c + 0.5 <= x1] or [int((x0 + x1) / 2)]
        ys = [r for r in range(high) if y0 <= r + 0.5 <= y1] or [int((y0 + y1) / 2)]
        for c in xs:
            for r in ys:
                if 0 <= c < wide and 0 <= r < high:
                    self.glyphs[r * wide + c].add(glyph)

    def mark(self, x0: float, y0: float, x1: float, y1: float, *marks: str) -> None:
        """Record marks in the cells whose centres are in the box, or in the cell at its centre."""
        hit = [
            r * self.cols + c
            for r in range(self.rows)
            for c in range(self.cols)
            if x0 <= c + 0.5 <= x1 and y0 <= r + 0.5 <= y1
        ]
        if not hit:
            c = min(self.cols - 1, max(0, int((x0 + x1) / 2)))
            r = min(self.rows - 1, max(0, int((y0 + y1) / 2)))
            hit = [r * self.cols + c]
        for i in hit:
            self.marks[i].update(marks)

    def mark_all(self, *marks: str) -> None:
        """Record marks of the whole picture in every cell."""
        for cell in self.marks:
            cell.update(marks)

    def done(self, kind: str, facts: dict) -> Picture:
        """The finished picture."""
        self.mark_all(f"kind:{kind}")
        image = self.image
        if self.fine > 1:
            size = (image.width // self.fine, image.height // self.fine)
            image = image.resize(size, Image.Resampling.LANCZOS)
        cells = tuple(frozenset(m) for m in self.marks)
        glyphs = tuple("".join(sorted(g)) for g in self.glyphs)
        return Picture(kind, image, facts, self.rows, self.cols, cells, glyphs)
