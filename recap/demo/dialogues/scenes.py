"""Questions about scenes."""

from random import Random

from ..world.board import COLOURS
from ..world.scene import SHAPES
from .templates import Turn, a, as_json, bullets, grid, numbered, pick, series


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
    templates = [
        ("How many shapes are there?", "There {are}."),
        ("How many shapes do you see in the picture?", "I see {n} {shapes}."),
        ("Count the shapes.", "{n}"),
        ("How many things are in the scene? Answer in a full sentence.",
         "The scene holds {n} {shapes} in all."),
        ("What is the number of shapes?", "The number of shapes is {n}."),
    ]  # fmt: skip
    shapes = "shape" if n == 1 else "shapes"
    return [pick(rng, "count", templates, n=n, shapes=shapes, are=_of(n, "shape"))]


def _listed(rng: Random, things: list[dict]) -> list[Turn]:
    """What needs picking out or a judgement (a colour, yes or no, how many of a kind).

    The model sees well and judges badly: it is taught to say what it sees, and no more.
    """
    seen = series([a(f"{t['colour']} {t['shape']}") for t in things])
    near = rng.choice(things)
    colour = near["colour"] if rng.random() < 0.6 else rng.choice(list(COLOURS))
    shape = near["shape"] if rng.random() < 0.6 else rng.choice(SHAPES)
    noun = rng.choice((shape, f"{colour} shape"))
    task, templates = rng.choice([
        ("colour", [
            ("What colour is the {shape}?", "I see {seen}."),
            ("Which colour does the {shape} have?", "What I see: {seen}."),
            ("What color is the {shape}?", "There is {seen}."),
            ("Tell me the colour of the {shape}.", "It shows {seen}."),
        ]),
        ("shape", [
            ("What is the {colour} thing?", "I see {seen}."),
            ("Which shape is {colour}?", "What I see: {seen}."),
            ("What is {colour} in this picture?", "There is {seen}."),
        ]),
        ("is there", [
            ("Is there {athing}?", "You can tell by what I see: {seen}."),
            ("Do you see {athing} in the picture?", "I see {seen}."),
            ("Does the picture show {athing}?", "It shows {seen}."),
            ("Can you find {athing}?", "What I find: {seen}."),
        ]),
        ("how many", [
            ("How many {noun}s are there?", "You can count them: I see {seen}."),
            ("How many {noun}s do you see?", "I see {seen}."),
            ("Count the {noun}s.", "There is {seen}."),
        ]),
    ])  # fmt: skip
    thing = f"{colour} {shape}"
    return [
        pick(
            rng, task, templates, colour=colour, shape=shape, noun=noun, athing=a(thing), seen=seen
        )
    ]


def _where(rng: Random, things: list[dict]) -> list[Turn]:
    t = rng.choice(things)
    templates = [
        ("Where is the {colour} {shape}?", "The {colour} {shape} is in the {place}."),
        ("In which part of the picture is the {colour} {shape}?", "It is in the {place}."),
        ("Locate the {colour} {shape}. Be brief.", "{place}"),
        ("Where can I find the {colour} {shape}?",
         "You can find the {colour} {shape} in the {place} of the picture."),
    ]  # fmt: skip
    turns = [pick(rng, "place", templates, **t)]
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
    place = rng.choice(list(held))
    asks = [
        "What is in the {place}?", "What do you see in the {place}?",
        "Which shape is in the {place}?", "Tell me what is in the {place} of the picture.",
    ]  # fmt: skip
    t = held[place]
    answers = ["There is {full} in the {place}.", "I see {full}.",
               "It is {thing}.", "In the {place} of the picture there is {full}."]  # fmt: skip
    thing = a(f"{t['colour']} {t['shape']}")
    templates = list(zip(asks, answers, strict=True))
    return [pick(rng, "what is at", templates, full=_full(t), thing=thing, place=place)]


def _size(rng: Random, things: list[dict]) -> list[Turn]:
    t = rng.choice(things)
    templates = [
        ("Is the {colour} {shape} large or small?", "The {colour} {shape} is {size}."),
        ("How big is the {colour} {shape}?", "It is {size}."),
        ("What size is the {colour} {shape}? One word.", "{size}"),
    ]
    return [pick(rng, "size", templates, **t)]


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
    templates = [
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
    question, answer = rng.choice(templates)
    return [Turn("describe", question, answer, f"describe: {question}")]


SCENE = {
    "count": (8, _count), "listed": (24, _listed), "place": (22, _where), "what is at": (16, _at),
    "size": (9, _size), "describe": (20, _all),
}  # fmt: skip
