"""What may be asked of scenes."""

from random import Random

from recap.demo.talk.ways import Turn, a, as_json, bullets, grid, numbered, pick, series
from recap.demo.world.board import COLOURS
from recap.demo.world.scene import PLACES, SHAPES


def _full(t: dict) -> str:
    return a(f"{t['size']} {t['colour']} {t['shape']}")


def _of(n: int, noun: str) -> str:
    return f"is 1 {noun}" if n == 1 else f"are {n} {noun}s"


def scene(rng: Random, facts: dict) -> list[Turn]:
    """One question about a scene (with its follow-up, if it has one)."""
    task = rng.choices(tuple(SCENE), [w for w, _ in SCENE.values()])[0]
    return SCENE[task][1](rng, facts["things"])


def _count(rng: Random, things: list[dict]) -> list[Turn]:
    n = len(things)
    ways = [
        ("How many shapes are there?", "There {are}."),
        ("How many shapes do you see in the picture?", "I see {n} {shapes}."),
        ("Count the shapes.", "{n}"),
        ("How many things are in the scene? Answer in a full sentence.",
         "The scene holds {n} {shapes} in all."),
        ("What is the number of shapes?", "The number of shapes is {n}."),
    ]  # fmt: skip
    shapes = "shape" if n == 1 else "shapes"
    return [pick(rng, "count", ways, n=n, shapes=shapes, are=_of(n, "shape"))]


def _seen(things: list[dict]) -> str:
    """All that is there: said before anything is judged, so that the judgement can rest on it."""
    return series([a(f"{t['colour']} {t['shape']}") for t in things])


def _colour(rng: Random, things: list[dict]) -> list[Turn]:
    shapes = [t["shape"] for t in things]
    lone = [s for s in SHAPES if shapes.count(s) == 1]
    gone = [s for s in SHAPES if s not in shapes]
    if not lone or (gone and rng.random() < 0.25):
        if not gone:
            return _where(rng, things)
        shape, colour = rng.choice(gone), None
    else:
        shape = rng.choice(lone)
        colour = next(t["colour"] for t in things if t["shape"] == shape)
    asks = [
        "What colour is the {shape}?", "Which colour does the {shape} have?",
        "What color is the {shape}?", "Tell me the colour of the {shape}.",
    ]  # fmt: skip
    if colour is None:
        answers = [
            "I see {seen}. There is no {shape}.", "I see {seen}: there is no {shape}.",
            "There is {seen}. I see no {shape}.", "It shows {seen}, so there is no {shape}.",
        ]  # fmt: skip
    else:
        answers = [
            "I see {seen}. The {shape} is {colour}.", "I see {seen}: it is {colour}.",
            "There is {seen}. The {shape} is {colour}.", "It shows {seen}, so it is {colour}.",
        ]  # fmt: skip
    ways = list(zip(asks, answers, strict=True))
    return [pick(rng, "colour", ways, shape=shape, colour=colour, seen=_seen(things))]


def _shape(rng: Random, things: list[dict]) -> list[Turn]:
    colours = [t["colour"] for t in things]
    lone = [t for t in things if colours.count(t["colour"]) == 1]
    if not lone:
        return _where(rng, things)
    t = rng.choice(lone)
    ways = [
        ("What is the {colour} thing?", "I see {seen}. The {colour} thing is {ashape}."),
        ("Which shape is {colour}?", "I see {seen}: the {shape} is {colour}."),
        ("What is {colour} in this picture?", "There is {seen}, so it is {ashape}."),
    ]
    return [pick(rng, "shape", ways, ashape=a(t["shape"]), seen=_seen(things), **t)]


def _where(rng: Random, things: list[dict]) -> list[Turn]:
    t = rng.choice(things)
    ways = [
        ("Where is the {colour} {shape}?", "The {colour} {shape} is in the {place}."),
        ("In which part of the picture is the {colour} {shape}?", "It is in the {place}."),
        ("Locate the {colour} {shape}. Be brief.", "{place}"),
        ("Where can I find the {colour} {shape}?",
         "You can find the {colour} {shape} in the {place} of the picture."),
    ]  # fmt: skip
    turns = [pick(rng, "place", ways, **t)]
    others = [u for u in things if u is not t]
    if others and rng.random() < 0.4:
        u = rng.choice(others)
        more = [
            ("And the {colour} {shape}?", "The {colour} {shape} is in the {place}."),
            ("And where is the {colour} {shape}?", "That one is in the {place}."),
        ]
        turns.append(pick(rng, "place", more, **u))
    return turns


def _at(rng: Random, things: list[dict]) -> list[Turn]:
    held = {t["place"]: t for t in things}
    place = rng.choice(PLACES if rng.random() < 0.4 else list(held))
    asks = [
        "What is in the {place}?", "What do you see in the {place}?",
        "Which shape is in the {place}?", "Tell me what is in the {place} of the picture.",
    ]  # fmt: skip
    if place not in held:
        answers = ["There is nothing in the {place}.", "I see nothing there.",
                   "None: the {place} is empty.", "The {place} of the picture is empty."]  # fmt: skip
        return [pick(rng, "what is at", list(zip(asks, answers, strict=True)), place=place)]
    t = held[place]
    answers = ["There is {full} in the {place}.", "I see {full}.",
               "It is {thing}.", "In the {place} of the picture there is {full}."]  # fmt: skip
    thing = a(f"{t['colour']} {t['shape']}")
    ways = list(zip(asks, answers, strict=True))
    return [pick(rng, "what is at", ways, full=_full(t), thing=thing, place=place)]


def _exists(rng: Random, things: list[dict]) -> list[Turn]:
    pairs = {(t["colour"], t["shape"]): t for t in things}
    if rng.random() < 0.5:
        pair = rng.choice(list(pairs))
    elif rng.random() < 0.5:
        pair = (rng.choice(things)["colour"], rng.choice(SHAPES))
    else:
        pair = (rng.choice(list(COLOURS)), rng.choice(SHAPES))
    thing = " ".join(pair)
    asks = ["Is there {athing}?", "Do you see {athing} in the picture?",
            "Does the picture show {athing}?", "Can you find {athing}?"]  # fmt: skip
    if pair in pairs:
        answers = ["I see {seen}, so yes.", "I see {seen}. Yes, there is {athing}.",
                   "It shows {seen}: yes.", "There is {seen}, so yes."]  # fmt: skip
    else:
        answers = ["I see {seen}, so no.", "I see {seen}. No, there is no {thing}.",
                   "It shows {seen}: no.", "There is {seen}, so no."]  # fmt: skip
    ways = list(zip(asks, answers, strict=True))
    return [pick(rng, "is there", ways, athing=a(thing), thing=thing, seen=_seen(things))]


def _how_many(rng: Random, things: list[dict]) -> list[Turn]:
    if rng.random() < 0.6:
        here = rng.choice(things)["shape"] if rng.random() < 0.8 else rng.choice(SHAPES)
        n, noun = sum(t["shape"] == here for t in things), here
    else:
        here = rng.choice(things)["colour"] if rng.random() < 0.8 else rng.choice(list(COLOURS))
        n, noun = sum(t["colour"] == here for t in things), f"{here} shape"
    ways = [
        ("How many {noun}s are there?", "I see {seen}, so there {are}."),
        ("How many {noun}s do you see?", "I see {seen}: {n} in all."),
        ("Count the {noun}s.", "There is {seen}: {n}."),
    ]
    are = f"is no {noun}" if n == 0 else _of(n, noun)
    return [pick(rng, "how many", ways, n=n, noun=noun, are=are, seen=_seen(things))]


def _size(rng: Random, things: list[dict]) -> list[Turn]:
    t = rng.choice(things)
    ways = [
        ("Is the {colour} {shape} large or small?", "The {colour} {shape} is {size}."),
        ("How big is the {colour} {shape}?", "It is {size}."),
        ("What size is the {colour} {shape}? One word.", "{size}"),
    ]
    return [pick(rng, "size", ways, **t)]


def _all(rng: Random, things: list[dict]) -> list[Turn]:
    n = len(things)
    at = [f"{_full(t)} in the {t['place']}" for t in things]
    short = [a(f"{t['colour']} {t['shape']}") for t in things]
    count = "1 shape" if n == 1 else f"{n} shapes"
    cells = [[t["size"], t["colour"], t["shape"], t["place"]] for t in things]
    rest = " ".join(
        f"{'First' if i == 0 else 'Then'} there is {_full(t)} in the {t['place']}."
        for i, t in enumerate(things)
    )
    long = " ".join(
        f"In the {t['place']} there is {a(t['shape'])}; it is {t['colour']} and {t['size']}."
        for t in things
    )
    ways = [
        ("Describe the picture.", f"The picture shows {series(at)}."),
        ("What do you see?", f"I see {count}: {series(at)}."),
        ("Describe everything in detail.", f"This is a simple scene with {count}. {long}"),
        ("Describe the image in full sentences.", f"This scene has {count}. {rest}"),
        ("List all shapes.", bullets(at)),
        ("List everything as a numbered list.", numbered(at)),
        ("Name the shapes briefly.", f"{series(short).capitalize()}."),
        ("Give me the scene as JSON.", as_json([
            {"shape": t["shape"], "colour": t["colour"], "size": t["size"], "place": t["place"]}
            for t in things])),
        ("Show the shapes as a Markdown table.", grid(["size", "colour", "shape", "place"], cells)),
        ("What is shown here? Go from top to bottom.", f"From top to bottom: {'; '.join(at)}."),
    ]  # fmt: skip
    question, answer = rng.choice(ways)
    return [Turn("describe", question, answer, f"describe: {question}")]


SCENE = {
    "count": (6, _count), "colour": (14, _colour), "shape": (8, _shape), "place": (16, _where),
    "what is at": (13, _at), "is there": (16, _exists), "how many": (12, _how_many),
    "size": (6, _size), "describe": (20, _all),
}  # fmt: skip
