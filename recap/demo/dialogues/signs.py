"""Questions about signs."""

from random import Random

from ..world.sign import WORDS
from .templates import Turn, a, as_json, bullets, grid, pick


def sign(rng: Random, facts: dict) -> list[Turn]:
    """One question about a sign."""
    word, way = facts["word"], facts["arrow"]
    colour, board = facts["colour"], facts["board"]
    task = rng.choices(
        ("text", "colour", "board", "arrow", "says", "describe"), (26, 14, 12, 16, 10, 24)
    )[0]
    if task == "text":
        return [pick(rng, task, [
            ("What does the sign say?", 'The sign says "{word}".'),
            ("Read the sign.", "{word}"),
            ("What is written on the sign?", 'It reads "{word}".'),
            ("Which word is on the sign?", "The word on the sign is {word}."),
            ("What is the text? Answer with the text only.", "{word}"),
            ("Please read the text to me.", 'The text is "{word}".'),
        ], word=word)]  # fmt: skip
    if task == "colour":
        return [pick(rng, task, [
            ("What colour is the sign?", "The sign is {colour}."),
            ("Which colour does the board have?", "The board is {colour}."),
            ("Name the colour of the sign in one word.", "{colour}"),
            ("What color is it?", "It is {colour}."),
        ], colour=colour)]  # fmt: skip
    if task == "board":
        return [pick(rng, task, [
            ("What shape is the sign?", "The sign is {board}."),
            ("Which form does the board have?", "The board is {board}."),
            ("Is the sign round, rectangular or diamond-shaped?", "It is {board}."),
        ], board=board)]  # fmt: skip
    if task == "arrow":
        asks = ["Which way does the arrow point?", "Where does the arrow point? One word.",
                "Is there an arrow?", "What direction does the sign show?"]  # fmt: skip
        some = ["The arrow points {way}.", "{way}", "Yes, an arrow that points {way}.",
                "The sign shows the way {way}."]  # fmt: skip
        none = ["There is no arrow on this sign.", "There is no arrow.", "No, there is no arrow.",
                "The sign shows no direction."]  # fmt: skip
        answers = some if way else none
        return [pick(rng, task, list(zip(asks, answers, strict=True)), way=way)]
    if task == "says":
        guess = word if rng.random() < 0.5 else rng.choice(WORDS)
        asks = ["Does the sign say {guess}?", "Is this {guess} sign?"]
        answers = ["It says {word}, so {yes}.", "It is {aword} sign, so {yes}."]
        i = rng.randrange(2)
        given = a(guess) if i else guess
        return [
            pick(
                rng,
                task,
                [(asks[i], answers[i])],
                guess=given,
                word=word,
                aword=a(word),
                yes="yes" if guess == word else "no",
            )
        ]
    parts = {"text": word, "colour": colour, "shape": board, "arrow": way}
    rows = [[k, v if v is not None else "none"] for k, v in parts.items()]
    arrow = f"An arrow points {way}." if way else "There is no arrow."
    templates = [
        ("Describe the picture.", f'The picture shows a {board} {colour} sign that says "{word}". {arrow}'),
        ("Describe everything in detail.",
         f"This is a sign on a post. The board is {board} and its colour is {colour}. "
         f'The word on it is "{word}". {arrow}'),
        ("What do you see?", f'I see {a(colour)} sign with the text "{word}".'),
        ("Give me the sign as JSON.", as_json(parts)),
        ("Show the sign as a Markdown table.", grid(["part", "value"], rows)),
        ("List what the sign shows.", bullets([f"{k}: {v}" for k, v in rows])),
        ("Describe the sign in full sentences.",
         f"The sign is {colour}. It is {board}. It says {word}. {arrow}"),
    ]  # fmt: skip
    question, answer = rng.choice(templates)
    return [Turn("describe", question, answer, f"describe: {question}")]
