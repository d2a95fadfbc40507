"""Tables: two to four people by two or three columns of whole numbers."""

from random import Random

from .board import FACES, Board, Picture, tint

NAMES = ("Anna", "Ben", "Carl", "Dora", "Emma", "Finn", "Gina", "Hugo")
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
THEMES = ("goals", "books", "points", "hours")
TOP = 20


def draw(rng: Random, unit: int, fine: int) -> Picture:
    """A table; facts: `theme`, `names`, `columns`, `values` [row][column], all different."""
    board = Board(5, 6, unit, fine, tint(rng, 240))
    face = rng.choice(FACES)
    ink, soft = (25, 25, 30), rng.choice(((150, 160, 175), (165, 165, 150), (175, 155, 155)))
    head = rng.choice(((205, 220, 245), (215, 240, 215), (245, 225, 200), (235, 215, 240)))
    names = rng.sample(NAMES, rng.choice((2, 3, 3, 4)))
    columns = sorted(rng.sample(DAYS, rng.choice((2, 3))), key=DAYS.index)
    theme = rng.choice(THEMES)
    drawn = iter(rng.sample(range(1, TOP + 1), len(names) * len(columns)))
    values = [[next(drawn) for _ in columns] for _ in names]
    wide = 4 / len(columns)
    board.box(0.05, 0.05, 5.95, 1, fill=head)
    board.text(0.2, 0.52, theme.capitalize(), face, 0.42, ink, "lm", max_width=1.7)
    board.mark(0, 0, 2, 1, f"theme:{theme}")
    for c, day in enumerate(columns):
        x = 2 + wide * (c + 0.5)
        board.text(x, 0.52, day, face, 0.46, ink)
        after = columns[c + 1] if c + 1 < len(columns) else "none"
        board.mark(
            x - wide / 2, 0, x + wide / 2, 1, f"column:{day}", f"order:{c + 1}", f"next:{after}"
        )
    for r, name in enumerate(names):
        y = r + 1.5
        if rng.random() < 0.5 and r % 2:
            board.box(0.05, y - 0.5, 5.95, y + 0.5, fill=tuple(v - 12 for v in tint(rng, 244)))
        board.text(0.2, y, name, face, 0.46, ink, "lm", max_width=1.75)
        after = names[r + 1] if r + 1 < len(names) else "none"
        board.mark(0, y - 0.5, 2, y + 0.5, f"name:{name}", f"order:{r + 1}", f"next:{after}")
        for c, day in enumerate(columns):
            x = 2 + wide * (c + 0.5)
            board.text(x, y, str(values[r][c]), face, 0.5, ink)
            marks = [f"value:{values[r][c]}", f"name:{name}", f"column:{day}", f"cell:{name} {day}"]
            if values[r][c] == max(row[c] for row in values):
                marks.append("most")
            board.mark(x - wide / 2, y - 0.5, x + wide / 2, y + 0.5, *marks)
    low = len(names) + 1
    for r in range(low + 1):
        board.line([(0.05, max(0.05, r)), (5.95, max(0.05, r))], soft)
    for c in range(len(columns) + 1):
        board.line([(2 + wide * c - 0.02, 0.05), (2 + wide * c - 0.02, low)], soft)
    board.line([(0.05, 0.05), (0.05, low)], soft)
    board.mark_all(f"count:{len(names)}", f"wide:{len(columns)}")
    facts = {"theme": theme, "names": names, "columns": columns, "values": values}
    return board.done("table", facts)
