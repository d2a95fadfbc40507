"""Receipts (with a total) and menus (without): two to five goods with prices."""

from random import Random

from .board import FACES, Board, Picture, tint

SHOPS = ("BAKERY", "CAFE", "MARKET", "KIOSK", "DINER", "DELI")
GOODS = (
    "tea", "coffee", "milk", "bread", "soup", "rice", "eggs", "cake", "salad", "juice", "pasta",
    "pizza", "water", "honey",
)  # fmt: skip
PRICES = tuple(f"{whole}.{part}" for whole in range(1, 10) for part in ("00", "50"))


def draw_receipt(rng: Random, unit: int, fine: int) -> Picture:
    """A receipt; facts: `shop`, `goods` [(name, price)], `total`."""
    return _draw(rng, unit, fine, "receipt")


def draw_menu(rng: Random, unit: int, fine: int) -> Picture:
    """A menu; facts: `shop`, `goods` [(name, price)]."""
    return _draw(rng, unit, fine, "menu")


def _draw(rng: Random, unit: int, fine: int, kind: str) -> Picture:
    paper = tint(rng, 244) if kind == "receipt" else tint(rng, 215)
    board = Board(7, 5, unit, fine, paper)
    face = rng.choice(FACES)
    ink = (
        (20, 20, 25)
        if kind == "receipt"
        else rng.choice(((90, 20, 20), (20, 50, 90), (30, 70, 30)))
    )
    shop = rng.choice(SHOPS)
    goods = rng.sample(GOODS, rng.choice((2, 3, 3, 4, 4, 5) if kind == "receipt" else (3, 4, 5)))
    prices = rng.sample(PRICES, len(goods))
    amounts = [float(p) for p in prices]
    board.text(2.5, 0.5, shop, face, 0.62, ink, max_width=4.4)
    board.mark(0, 0, 5, 1, f"shop:{shop}")
    if kind == "menu":
        board.box(0.1, 0.08, 4.9, 6.92, line=ink, width=0.04)
        board.text(2.5, 6.5, "MENU", face, 0.5, ink)
        board.line([(0.6, 0.97), (4.4, 0.97)], ink)
    for i, (name, price) in enumerate(zip(goods, prices, strict=True)):
        y = i + 1.5 + rng.uniform(-0.05, 0.05)
        board.text(0.3, y, name, face, 0.5, ink, "lm", max_width=2.4)
        board.text(4.7, y, price, face, 0.5, ink, "rm")
        marks = [f"good:{name}", f"price:{price}", f"order:{i + 1}"]
        marks.append(f"next:{goods[i + 1]}" if i + 1 < len(goods) else "next:none")
        marks.append(f"rank:{sum(a > amounts[i] for a in amounts) + 1}")
        if amounts[i] == max(amounts):
            marks.append("most")
        if amounts[i] == min(amounts):
            marks.append("least")
        board.mark(0, i + 1, 5, i + 2, *marks)
    facts = {"shop": shop, "goods": list(zip(goods, prices, strict=True))}
    if kind == "receipt":
        facts["total"] = f"{sum(amounts):.2f}"
        row = len(goods) + 1
        board.line([(0.3, row + 0.04), (4.7, row + 0.04)], ink)
        board.text(0.3, row + 0.5, "TOTAL", face, 0.52, ink, "lm", max_width=2.2)
        board.text(4.7, row + 0.5, facts["total"], face, 0.52, ink, "rm", max_width=2.0)
        whole = int(sum(amounts))
        board.mark(0, row, 5, row + 1, "total", f"tens:{whole // 10}", f"ones:{whole % 10}",
                   f"cents:{facts['total'][-2:]}")  # fmt: skip
    board.mark_all(f"count:{len(goods)}")
    return board.done(kind, facts)
