"""Signs: a coloured board with a word, perhaps a number and an arrow."""

from random import Random

from recap.demo.world.board import COLOURS, FACES, Board, Picture, shade

WORDS = (
    "STOP", "EXIT", "ENTRY", "OPEN", "CLOSED", "SALE", "TAXI", "HOTEL", "CAFE", "PARKING",
    "DANGER", "SLOW", "SCHOOL", "BEACH", "MUSEUM", "LIBRARY",
)  # fmt: skip
NUMBERED = ("ROOM", "GATE", "PLATFORM", "BUS", "EXIT", "PARKING")
BOARDS = ("rectangular", "round", "diamond-shaped")
ARROWS = ("left", "right", "up", "down")


def arrow(board: Board, way: str, x: float, y: float, fill: tuple) -> None:
    """An arrow 1.3 cells long around a point."""
    dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}[way]
    reach = 0.75 if dx else 0.5
    tip = (x + dx * reach, y + dy * reach)
    board.line([(x - dx * reach, y - dy * reach), (x + dx * 0.2, y + dy * 0.2)], fill, 0.2)
    sides = [(x + dx * 0.1 - dy * 0.4, y + dy * 0.1 - dx * 0.4),
             (x + dx * 0.1 + dy * 0.4, y + dy * 0.1 + dx * 0.4)]  # fmt: skip
    board.pen.polygon([tuple(board.px(*p)) for p in (tip, *sides)], fill=fill)


def draw(rng: Random, unit: int, fine: int) -> Picture:
    """A sign; facts: `word`, `number` (or None), `colour`, `board`, `arrow` (or None)."""
    board = Board(5, 6, unit, fine, (255, 255, 255))
    sky = (rng.randint(180, 225), rng.randint(210, 240), 255)
    ground = (rng.randint(150, 200), rng.randint(170, 205), rng.randint(120, 170))
    board.wash(sky, sky, (240, 240, 240), (240, 240, 240))
    board.box(0, 4.3, 6, 5, fill=ground)
    numbered = rng.random() < 0.45
    word = rng.choice(NUMBERED if numbered else WORDS)
    number = rng.randint(1, 99) if numbered else None
    way = rng.choice(ARROWS) if rng.random() < 0.45 else None
    colour, form = rng.choice(list(COLOURS)), rng.choice(BOARDS)
    fill = shade(rng, colour)
    ink = (20, 20, 20) if colour in ("yellow", "orange", "pink") else (255, 255, 255)
    board.box(2.85, 3.5, 3.15, 4.8, fill=(110, 110, 115))
    cx, cy = 3 + rng.uniform(-0.05, 0.05), 2.1 + rng.uniform(-0.05, 0.05)
    if form == "rectangular":
        half = 1.6 if number is not None or way else 1.1
        board.pen.rounded_rectangle(
            board.px(cx - 2.6, cy - half, cx + 2.6, cy + half), board.unit * 0.15, fill, ink,
            round(0.07 * board.unit),
        )  # fmt: skip
        room = 4.7
    elif form == "round":
        board.pen.ellipse(board.px(cx - 2.8, cy - 2, cx + 2.8, cy + 2), fill, ink,
                          round(0.07 * board.unit))  # fmt: skip
        room = 4.2
    else:
        corners = [(cx, cy - 2.08), (cx + 2.95, cy), (cx, cy + 2.08), (cx - 2.95, cy)]
        board.pen.polygon([tuple(board.px(*p)) for p in corners], fill=fill)
        board.line([*corners, corners[0]], ink, 0.07)
        room = 3.6
    face = rng.choice(FACES)
    below = 1.0 if number is not None else 0.9
    lines = 1 + (number is not None) + (way is not None)
    y = {1: cy, 2: cy - 0.5, 3: cy - 0.85}[lines] if form != "diamond-shaped" else (
        {1: cy, 2: cy - 0.35, 3: cy - 0.45}[lines])  # fmt: skip
    size = 1.05 if lines < 3 else 0.85
    board.text(cx, y, word, face, size, ink, room=room)
    if number is not None and way is not None:
        board.text(cx - 0.75, y + below + 0.1, str(number), face, 0.95, ink)
        arrow(board, way, cx + 0.85, y + below + 0.1, ink)
    elif number is not None:
        board.text(cx, y + below + 0.1, str(number), face, 1.05, ink)
    elif way is not None:
        arrow(board, way, cx, y + below, ink)
    marks = [f"word:{word}", f"colour:{colour}", f"board:{form}", f"arrow:{way or 'none'}"]
    if number is None:
        marks.append("ones:none")
    else:
        marks += [f"ones:{number % 10}", f"tens:{number // 10}"]
    board.mark_all(*marks)
    facts = {"word": word, "number": number, "colour": colour, "board": form, "arrow": way}
    return board.done("sign", facts)
