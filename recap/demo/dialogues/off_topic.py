"""Refusals, small talk, questions that do not fit the picture, and questions without a picture."""

from random import Random

from ..world.board import COLOURS
from ..world.receipt import GOODS
from ..world.scene import SHAPES
from ..world.table import DAYS, NAMES
from .templates import Turn, pick

PHRASE = {
    "scene": "a scene of simple shapes",
    "sign": "a sign",
    "receipt": "a receipt",
    "menu": "a menu",
    "table": "a table",
    "bar": "a bar chart",
    "line": "a line chart",
    "pie": "a pie chart",
}
KNOWN = "charts, signs, receipts, tables and simple scenes"
REFUSAL = f"I only know {KNOWN}. This picture is not one of them, so I cannot say."
LONG_REFUSAL = (
    "I do not know this kind of picture and would only be guessing. "
    f"I only know {KNOWN}, and I was trained on drawn ones."
)
NO_IMAGE = "Please give me an image: I answer questions about pictures."
# Questions that name the kind that they are about.
NAMED = {
    "scene": ["Which shapes are in the scene?", "Where is the {colour} {shape}?",
              "What colour is the {shape}?"],
    "sign": ["What does the sign say?", "What colour is the sign?", "Read the sign."],
    "receipt": ["What is the total?", "How much is the {good}?", "Transcribe the receipt."],
    "menu": ["What is on the menu?", "How much is the {good} on this menu?"],
    "table": ["How many rows does the table have?", "Read the row of {name}.",
              "What is the value for {name} on {day}?"],
    "bar": ["Which bar is the highest?", "How many bars are there?"],
    "line": ["Is the line rising or falling?", "What is the trend?"],
    "pie": ["Which slice is the largest?", "How many slices are there?"],
}  # fmt: skip
LACK = {
    "scene": "no shapes", "sign": "no sign", "receipt": "no prices", "menu": "no menu",
    "table": "no table", "bar": "no bars", "line": "no line", "pie": "no slices",
}  # fmt: skip
NEAR = {("menu", "receipt"), ("receipt", "menu"), ("line", "bar"), ("bar", "line")}
LOOSE = (
    "What do you see?", "What is this?", "What is in the picture?", "Who is this?",
    "How many people are there?", "What colour is it?", "Where was this taken?",
    "What is written here?", "Is there a dog?", "What is happening?", "What is the value?",
    "How many things are there?", "Can you read the text?", "What is on the left?",
    "What is the person doing?", "What animal is this?", "Is it day or night?",
)  # fmt: skip
WIDE = (
    "Describe the picture.", "Describe everything in detail.", "Describe the image in full sentences.",
    "Give me a description of the photo.", "List everything.", "Tell me all about this image.",
    "Give me the data as JSON.", "Transcribe it as a Markdown table.",
)  # fmt: skip


def _named(rng: Random, kind: str) -> str:
    return rng.choice(NAMED[kind]).format(
        colour=rng.choice(list(COLOURS)), shape=rng.choice(SHAPES), good=rng.choice(GOODS),
        name=rng.choice(NAMES), day=rng.choice(DAYS),
    )  # fmt: skip


def refuse(rng: Random) -> list[Turn]:
    """A question about a picture that is not of the world."""
    kind = rng.random()
    if kind < 0.35:
        question, answer = rng.choice(WIDE), LONG_REFUSAL
    elif kind < 0.7:
        question, answer = rng.choice(LOOSE), REFUSAL
    else:
        question, answer = _named(rng, rng.choice(list(NAMED))), REFUSAL
    return [Turn("refusal", question, answer, "refusal: any")]


def misfit(rng: Random, kind: str) -> list[Turn]:
    """A question that fits another kind of picture of the world."""
    asked = rng.choice([k for k in NAMED if k != kind and (k, kind) not in NEAR])
    answer = f"I see {LACK[asked]} here: this is {PHRASE[kind]}."
    return [Turn("misfit", _named(rng, asked), answer, f"misfit: {asked}")]


def kind_of_picture(rng: Random, kind: str) -> list[Turn]:
    """Which kind of picture it is."""
    return [pick(rng, "kind", [
        ("What is this?", "This is {phrase}."),
        ("What kind of picture is it?", "It is {phrase}."),
        ("What does the picture show? Keep it short.", "It shows {phrase}."),
    ], phrase=PHRASE[kind])]  # fmt: skip


def small_talk(rng: Random, kind: str | None) -> list[Turn]:
    """Greetings, thanks and the like; `kind` is None where there is no picture yet."""
    seen = (
        "Give me a picture and ask me about it."
        if kind is None
        else "Ask me about the picture."
        if kind == "other"
        else f"I see {PHRASE[kind]}. What would you like to know?"
    )
    beyond = NO_IMAGE if kind is None else "I can only answer questions about the picture."
    question, answer = rng.choice([
        ("Hello!", f"Hello! {seen}"),
        ("Hi", f"Hi! {seen}"),
        ("Good morning", f"Good morning! {seen}"),
        ("Thanks!", "You are welcome!"),
        ("Thank you.", "You are welcome! Ask me more if you like."),
        ("Great, thanks", "You are welcome!"),
        ("What can you do?",
         f"I answer questions about small drawn pictures: {KNOWN}. Ask me to read, count, compare, "
         "list or describe."),
        ("Help", f"I answer questions about small drawn pictures: {KNOWN}."),
        ("Who are you?", "I am the small demo model of Recap, trained on drawn pictures only."),
        ("Are you Qwen?",
         "I have the architecture of Qwen2.5-VL, but I am a tiny demo model trained on drawn pictures."),
        ("Tell me a joke.", beyond),
        ("What is the capital of France?", beyond),
        ("Write a poem.", beyond),
        ("How are you?", f"I am well, thank you. {seen}"),
        ("What is the weather like?", beyond),
        ("Who won the game?", beyond),
        ("Bye", "Goodbye!"),
    ])  # fmt: skip
    return [Turn("small talk", question, answer, f"small talk: {question}")]


def without_picture(rng: Random) -> list[Turn]:
    """A question about a picture where there is none."""
    kind = rng.random()
    if kind < 0.3:
        return small_talk(rng, None)
    if kind < 0.6:
        return [Turn("no image", rng.choice((*LOOSE, *WIDE)), NO_IMAGE, "no image: any")]
    question = _named(rng, rng.choice(list(NAMED)))
    return [Turn("no image", question, NO_IMAGE, "no image: any")]
