"""The example gallery: crisp pictures from seeds of their own, with questions to try."""

import json
from pathlib import Path

from . import world

# Each: name, kind, seed, title, conversations (each a list of turns).
GALLERY: list[tuple[str, str, int, str, list[list[str]]]] = []


def _add(name: str, kind: str, seed: int, title: str, *conversations: list[str]) -> None:
    GALLERY.append((name, kind, seed, title, list(conversations)))


def alt(picture: world.Picture) -> str:
    """The alternative text of a picture."""
    f = picture.facts
    if picture.kind == "scene":
        things = [f"a {t['size']} {t['colour']} {t['shape']} ({t['place']})" for t in f["things"]]
        return f"A drawn scene of coloured shapes: {', '.join(things)}."
    if picture.kind == "sign":
        arrow = f", with an arrow pointing {f['arrow']}" if f["arrow"] else ""
        return f"A {f['board']} {f['colour']} sign that reads {f['word']}{arrow}."
    if picture.kind in ("receipt", "menu"):
        goods = ", ".join(f"{name} {price}" for name, price in f["goods"])
        total = f"; total {f['total']}" if "total" in f else ""
        return f"A {picture.kind} from {f['shop']}: {goods}{total}."
    if picture.kind == "table":
        rows = "; ".join(
            f"{name} {', '.join(map(str, row))}"
            for name, row in zip(f["names"], f["values"], strict=True)
        )
        return f"A table of {f['theme']} on {', '.join(f['columns'])}: {rows}."
    if picture.kind == "pie":
        parts = ", ".join(f"{s['label']} {s['share']} % ({s['colour']})" for s in f["slices"])
        return f"A pie chart, {f['title']}: {parts}."
    if picture.kind in ("bar", "line"):
        pairs = zip(f["labels"], f["values"], strict=True)
        return f"A {picture.kind} chart, {f['title']}: {', '.join(f'{a} {b}' for a, b in pairs)}."
    return "A blurred, photograph-like picture that the demo model was not trained to know."


_add("menu", "menu", 0, "A menu",
     ["What can I buy here and for how much?", "Name the cheapest item."],
     ["Transcribe it as a Markdown table."],
     ["Describe everything in detail."])  # fmt: skip
_add("scene-garden", "scene", 58, "Shapes in a field",
     ["Describe the picture.", "How many shapes are there?"],
     ["Describe everything in detail.", "Where is the orange star?"],
     ["List everything as a numbered list."])  # fmt: skip
_add("scene-few", "scene", 37, "A quiet scene",
     ["Describe the image in full sentences.", "How many shapes do you see in the picture?"],
     ["Is there a green star?", "What is in the centre?"],
     ["List all shapes.", "Name the shapes briefly."],
     ["Show the shapes as a Markdown table."])  # fmt: skip
_add("sign-arrow", "sign", 187, "A sign with an arrow",
     ["What does the sign say?", "Which way does the arrow point?"],
     ["Describe everything in detail."],
     ["Give me the sign as JSON.", "What colour is the sign?"])  # fmt: skip
_add("sign-word", "sign", 85, "A sign by the road",
     ["Read the sign.", "What shape is the sign?"],
     ["Describe the sign in full sentences.", "Is there an arrow?"])  # fmt: skip
_add("receipt", "receipt", 8, "A receipt",
     ["How much is the coffee?", "And the salad?", "What is the total?"],
     ["Describe everything in detail."],
     ["Transcribe it as a Markdown table.", "How many items are on the receipt?"])  # fmt: skip
_add("receipt-short", "receipt", 3, "A short receipt",
     ["List all items with prices.", "What is the total?"],
     ["Give me the receipt as JSON.", "Which item costs the most?"])  # fmt: skip
_add("table-three", "table", 2, "A table of names and days",
     ["Describe everything in detail."],
     ["Transcribe it as a Markdown table.", "Who is in the table?"],
     ["Give me the table as JSON."])  # fmt: skip
_add("table-two", "table", 5, "A small table",
     ["What is the table about?", "Read the table row by row."],
     ["Write it as CSV."])  # fmt: skip
_add("bar-days", "bar", 8, "A bar chart",
     ["Which bar is the highest?", "Which bar is the lowest?"],
     ["Describe everything in detail."],
     ["Transcribe it as a Markdown table.", "What is the title?"])  # fmt: skip
_add("bar-names", "bar", 11, "Another bar chart",
     ["Summarise the chart.", "Name all values as a numbered list."],
     ["Read the chart from left to right."],
     ["Give me the data as JSON."])  # fmt: skip
_add("line", "line", 9, "A line chart",
     ["What is the trend?", "How does it develop?"],
     ["Describe everything in detail."],
     ["List all values.", "What is the highest value?"])  # fmt: skip
_add("pie", "pie", 2, "A pie chart",
     ["Which slice is the largest?", "How many slices are there?"],
     ["Describe everything in detail."],
     ["Transcribe it as a Markdown table.", "Read the key from top to bottom."])  # fmt: skip
_add("not-of-its-world", "other", 13, "Not of its world",
     ["What do you see?", "Describe everything in detail."],
     ["What can you do?"])  # fmt: skip


def write(folder: Path) -> Path:
    """Draw the gallery and its `examples.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, kind, seed, title, conversations in GALLERY:
        picture = world.draw(kind, f"gallery{seed}", unit=96, fine=2)
        file = f"{name}.png"
        image = picture.image if kind == "other" else picture.image.quantize(128, dither=0)
        image.save(folder / file, optimize=True)
        entries.append({
            "file": file, "kind": kind, "title": title, "alt": alt(picture),
            "conversations": conversations,
        })  # fmt: skip
    path = folder / "examples.json"
    path.write_text(json.dumps(entries, indent=2) + "\n")
    return path
