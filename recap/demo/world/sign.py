"""Signs: a coloured board with a word and perhaps an arrow."""

from random import Random

from .board import COLOURS, FACES, Board, Picture, font, shade

WORDS = (
    "STOP", "EXIT", "ENTRY", "OPEN", "CLOSED", "SALE", "TAXI", "HOTEL", "CAFE", "PARKING",
    "DANGER", "SLOW", "SCHOOL", "BEACH", "MUSEUM", "LIBRARY", "ROOM", "GATE", "PLATFORM", "BUS",
)  # fmt: skip
BOARDS = ("rectangular", "round", "diamond-shaped")
ARROWS = ("left", "right", "up", "down")


def arrow(board: Board, way: str, x: float, y: float, fill: tuple) -> None:
    """An arrow 1.1 cells long around a point."""
    dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[way]
    reach = 0.55 if dx else 0.42
    tip = (x + dx * reach, y + dy * reach)
    board.line([(x - dx * reach, y - dy * reach), (x + dx * 0.1, y + dy * 0.1)], fill, 0.15)
    sides = [(x + dx * 0.05 - dy * 0.32, y + dy * 0.05 - dx * 0.32),
             (x + dx * 0.05 + dy * 0.32, y + dy * 0.05 + dx * 0.32)]  # fmt: skip
    board.pen.polygon([tuple(board.px(*p)) for p in (tip, *sides)], fill=fill)


def draw(rng: Random, unit: int, fine: int) -> Picture:
    """A sign; facts: `word`, `colour`, `board`, `arrow` (or None)."""
    board = Board(5, 6, unit, fine, (255, 255, 255))
    sky = (rng.randint(180, 225), rng.randint(210, 240), 255)
    ground = (rng.randint(150, 200), rng.randint(170, 205), rng.randint(120, 170))
    board.wash(sky, sky, (240, 240, 240), (240, 240, 240))
    board.box(0, 4.3, 6, 5, fill=ground)
    word = rng.choice(WORDS)
    way = rng.choice(ARROWS) if rng.random() < 0.6 else None
    colour, form = rng.choice(list(COLOURS)), rng.choice(BOARDS)
    fill = shade(rng, colour)
    ink = (20, 20, 20) if colour in ("yellow", "orange", "pink") else (255, 255, 255)
    cx, cy = 3 + rng.uniform(-0.05, 0.05), (2 if way else 1.5) + rng.uniform(-0.05, 0.05)
    board.box(2.88, cy, 3.12, 4.8, fill=(110, 110, 115))
    high = 1.25 if way else 0.8
    rim = round(0.06 * board.unit)
    if form == "rectangular":
        box = board.px(cx - 2.3, cy - high, cx + 2.3, cy + high)
        board.pen.rounded_rectangle(box, board.unit * 0.15, fill, ink, rim)
        max_width = 4.2
    elif form == "round":
        box = board.px(cx - 2.4, cy - high * 1.2, cx + 2.4, cy + high * 1.2)
        board.pen.ellipse(box, fill, ink, rim)
        max_width = 3.4
    else:
        tall = high * 1.5
        corners = [(cx, cy - tall), (cx + 2.9, cy), (cx, cy + tall), (cx - 2.9, cy)]
        board.pen.polygon([tuple(board.px(*p)) for p in corners], fill=fill)
        board.line([*corners, corners[0]], ink, 0.06)
        max_width = 3.2
    face = rng.choice(FACES)
    top, low = (cy - 0.5, cy + 0.5) if way else (cy, cy)
    wide = min(max_width, font(face, 60).getlength(word) / 60 * 0.6) / 2 + 0.2
    # The word stands on a white field, as dark letters do everywhere in this world.
    board.box(cx - wide, top - 0.38, cx + wide, top + 0.38, fill=(250, 250, 250))
    board.text(cx, top, word, face, 0.6, (20, 20, 25), max_width=max_width)
    if way:
        arrow(board, way, cx, low, ink)
    board.mark_all(f"colour:{colour}", f"board:{form}")
    board.mark(0, top - 0.5, 6, top + 0.5, f"word:{word}")
    board.mark(0, low - 0.5, 6, low + 0.5, f"arrow:{way or 'none'}")
    facts = {"word": word, "colour": colour, "board": form, "arrow": way}
    return board.done("sign", facts)
