"""What may be asked of signs."""

from random import Random

from recap.demo.talk.ways import Turn, a, as_json, bullets, grid, pick
from recap.demo.world.sign import NUMBERED, WORDS


def sign(rng: Random, facts: dict) -> list[Turn]:
    """One question about a sign."""
    word, number, way = facts["word"], facts["number"], facts["arrow"]
    whole = word if number is None else f"{word} {number}"
    colour, board = facts["colour"], facts["board"]
    task = rng.choices(
        ("text", "number", "colour", "board", "arrow", "says", "describe"),
        (24, 14, 14, 12, 14, 10, 24),
    )[0]
    if task == "text":
        return [pick(rng, task, [
            ("What does the sign say?", 'The sign says "{whole}".'),
            ("Read the sign.", "{whole}"),
            ("What is written on the sign?", 'It reads "{whole}".'),
            ("Which word is on the sign?", "The word on the sign is {word}."),
            ("What is the text? Answer with the text only.", "{whole}"),
            ("Please read the text to me.", 'The text is "{whole}".'),
        ], whole=whole, word=word)]  # fmt: skip
    if task == "number":
        asks = ["What number is on the sign?", "Which number do you see?", "Give me the number only.",
                "Is there a number on the sign?"]  # fmt: skip
        some = ["The number is {number}.", "I see the number {number}.", "{number}",
                "Yes, the number {number}."]  # fmt: skip
        none = ["There is no number on this sign.", "I see no number.", "There is no number.",
                "No, there is no number on it."]  # fmt: skip
        answers = none if number is None else some
        return [pick(rng, task, list(zip(asks, answers, strict=True)), number=number)]
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
        guess = word if rng.random() < 0.5 else rng.choice((*WORDS, *NUMBERED))
        asks = ["Does the sign say {guess}?", "Is this {guess} sign?"]
        yes = ["Yes, it says {word}.", "Yes, it is {guess} sign."]
        no = ["No, it says {word}.", "No, it is {aword} sign."]
        i = rng.randrange(2)
        answer = (yes if guess == word else no)[i]
        given = f"a {guess}" if i else guess
        return [pick(rng, task, [(asks[i], answer)], guess=given, word=word, aword=f"a {word}")]
    parts = {"text": word, "number": number, "colour": colour, "shape": board, "arrow": way}
    rows = [[k, v if v is not None else "none"] for k, v in parts.items()]
    num = f"Below it stands the number {number}. " if number is not None else ""
    arrow = f"An arrow points {way}." if way else "There is no arrow."
    numb = f"The number is {number}" if number is not None else "There is no number"
    ways = [
        ("Describe the picture.", f'The picture shows a {board} {colour} sign that says "{whole}". {arrow}'),
        ("Describe everything in detail.",
         f"This is a sign on a post. The board is {board} and its colour is {colour}. "
         f'The word on it is "{word}". {num}{arrow}'),
        ("What do you see?", f'I see {a(colour)} sign with the text "{whole}".'),
        ("Give me the sign as JSON.", as_json(parts)),
        ("Show the sign as a Markdown table.", grid(["part", "value"], rows)),
        ("List what the sign shows.", bullets([f"{k}: {v}" for k, v in rows])),
        ("Describe the sign in full sentences.",
         f"The sign is {colour}. It is {board}. It says {word}. {numb}. {arrow}"),
    ]  # fmt: skip
    question, answer = rng.choice(ways)
    return [Turn("describe", question, answer, f"describe: {question}")]
