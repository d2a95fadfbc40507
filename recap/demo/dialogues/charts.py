"""Questions about bar, line and pie charts."""

from random import Random

from ..world import bars, table
from .templates import Turn, as_json, bullets, grid, numbered, pick, series, two

NAMES = {"bar": "bar chart", "line": "line chart", "pie": "pie chart"}
PARTS = {"bar": "bar", "line": "point", "pie": "slice"}
FAMILIES = (table.DAYS, bars.MONTHS, bars.FRUITS, table.NAMES)


def chart(rng: Random, facts: dict, kind: str) -> list[Turn]:
    """One question about a chart (with its follow-up, if it has one)."""
    if kind == "pie":
        labels = [s["label"] for s in facts["slices"]]
        shown = {s["label"]: f"{s['share']}%" for s in facts["slices"]}
        size = {s["label"]: s["share"] for s in facts["slices"]}
    else:
        labels = facts["labels"]
        size = dict(zip(labels, facts["values"], strict=True))
        shown = {k: str(v) for k, v in size.items()}
    base = {"title": facts["title"], "n": len(labels), "chart": NAMES[kind], "part": PARTS[kind]}
    tasks = {
        "value": 26, "label of": 9, "highest": 8, "lowest": 7, "count": 5, "title": 5, "labels": 7,
        "compare": 10, "order": 5, "is there": 6, "colour": 4 if kind != "pie" else 9,
        "trend": 10 if kind == "line" else 0, "all": 24,
    }  # fmt: skip
    task = rng.choices(tuple(tasks), list(tasks.values()))[0]
    if task == "is there":
        family = next(f for f in FAMILIES if labels[0] in f)
        label = rng.choice((*labels, *family))
        return [pick(rng, task, [
            ("Is {label} in the chart?", "The labels are {names}."),
            ("Does the {chart} show {label}?", "It shows {names}."),
        ], label=label, names=series(labels), **base)]  # fmt: skip
    if task == "value":
        one, other = two(rng, labels)
        turns = [pick(rng, task, [
            ("What is the value of {label}?", "The value of {label} is {v}."),
            ("How much is {label}?", "{label} is {v}."),
            ("What does the chart say for {label}?", "For {label} the chart says {v}."),
            ("{label}? Only the number.", "{v}"),
            ("What is the number for {label}?", "The number for {label} is {v}."),
            ("Read the {part} of {label}.", "The {part} of {label} is at {v}."),
        ], label=one, v=shown[one], **base)]  # fmt: skip
        if rng.random() < 0.4:
            turns.append(pick(rng, task, [
                ("And {label}?", "{label} is {v}."),
                ("And what about {label}?", "That one is {v}."),
            ], label=other, v=shown[other]))  # fmt: skip
        return turns
    if task == "label of":
        label = rng.choice(labels)
        return [pick(rng, task, [
            ("Which {part} has the value {v}?", "Here are all of them: {pairs}."),
            ("What label belongs to {v}?", "I see {pairs}."),
        ], v=shown[label], pairs=", ".join(f"{x} {shown[x]}" for x in labels),
            **base)]  # fmt: skip
    if task in ("highest", "lowest"):
        best = (max if task == "highest" else min)(labels, key=size.get)
        word = rng.choice(("highest", "largest") if task == "highest" else ("lowest", "smallest"))
        return [pick(rng, task, [
            ("Which {part} is the {word}?", "The {word} {part} is {label} with {v}."),
            ("What is the {word} value?", "The {word} value is {v}, for {label}."),
            ("Name the {word} one.", "{label}"),
            ("Which one is the {word}? Answer in a full sentence.",
             "The chart shows that {label} is the {word} with {v}."),
        ], label=best, v=shown[best], word=word, **base)]  # fmt: skip
    if task == "count":
        return [pick(rng, task, [
            ("How many {part}s are there?", "There are {n} {part}s."),
            ("How many values does the chart show?", "The {chart} shows {n} values."),
            ("Count the {part}s.", "{n}"),
        ], **base)]  # fmt: skip
    if task == "title":
        return [pick(rng, task, [
            ("What is the title?", "The title is {title}."),
            ("What is the chart about?", "The {chart} is about {title}."),
            ("What does the chart show? One word.", "{title}"),
        ], **base)]  # fmt: skip
    if task == "labels":
        return [pick(rng, task, [
            ("Which labels do you see?", "The labels are {names}."),
            ("Name all {part}s.", "{plain}"),
            ("What is shown in the chart, without numbers?", "It shows {names}."),
        ], names=series(labels), plain=", ".join(labels), **base)]  # fmt: skip
    if task == "compare":
        one, other = two(rng, labels)
        high = max(one, other, key=size.get)
        low = other if high == one else one
        return [pick(rng, task, [
            ("Which is higher, {one} or {other}?", "{one} is {p}, {other} is {q}: {high} is higher."),
            ("Is {one} higher than {other}?", "{one} is {p} and {other} is {q}: {high} is higher."),
            ("Compare {one} and {other}.", "{one} is {p} and {other} is {q}, so {high} is higher."),
            ("Which is lower, {one} or {other}?", "{one} is {p}, {other} is {q}: {low} is lower."),
        ], one=one, other=other, high=high, low=low, p=shown[one],
            q=shown[other])]  # fmt: skip
    if task == "order":
        i, word = rng.choice(((0, "first"), (-1, "last"), (1, "second")))
        return [pick(rng, task, [
            ("What is the {word} {part}?", "The {word} {part} is {label} with {v}."),
            ("Which label comes {word}?", "{label} comes {word}."),
        ], word=word, label=labels[i], v=shown[labels[i]], **base)]  # fmt: skip
    ranked = sorted(labels, key=size.get, reverse=True)
    if task == "colour" and kind == "pie":
        piece = rng.choice(facts["slices"])
        return [pick(rng, task, [
            ("What colour is the slice of {label}?", "The slice of {label} is {colour}."),
            ("What is the {colour} slice?", "The {colour} slice is {label} with {share}%."),
            ("Which label is {colour}?", "{label} is {colour}."),
            ("How large is the {colour} slice?", "It is {share}%."),
        ], **piece)]  # fmt: skip
    if task == "colour":
        return [pick(rng, task, [
            ("What colour is the {thing}?", "The {thing} is {colour}."),
            ("Which colour is used in the chart? One word.", "{colour}"),
        ] if kind == "line" else [
            ("What colour are the {thing}?", "The {thing} are {colour}."),
            ("Which colour is used in the chart? One word.", "{colour}"),
        ], thing="line" if kind == "line" else "bars", colour=facts["colour"])]  # fmt: skip
    first, last = labels[0], labels[-1]
    if task == "trend":
        return [pick(rng, task, [
            ("What is the trend?", "The trend is {trend}."),
            ("Is the line rising or falling?", "The line is {trend}."),
            ("How does the line go? One word.", "{trend}"),
            ("How does it develop?", "It is {trend}: it starts at {p} and ends at {q}."),
        ], trend=facts["trend"], p=shown[first], q=shown[last])]  # fmt: skip
    return [_all(rng, kind, facts, labels, shown, ranked)]


def _all(rng: Random, kind: str, facts: dict, labels: list, shown: dict, ranked: list) -> Turn:
    """The long answers."""
    title, n = facts["title"], len(labels)
    name, part = NAMES[kind], PARTS[kind]
    pairs = [f"{x} {shown[x]}" for x in labels]
    spoken = [f"{x} with {shown[x]}" for x in labels]
    top, low = ranked[0], ranked[-1]
    end = f" The trend is {facts['trend']}." if kind == "line" else ""
    if kind == "pie":
        sentences = " ".join(
            f"The {s['colour']} slice is {s['label']} with {s['share']}%." for s in facts["slices"]
        )
    else:
        sentences = " ".join(
            f"{x} is {'at ' if i % 2 else ''}{shown[x]}." for i, x in enumerate(labels)
        )
        sentences = (
            f"{'The line is' if kind == 'line' else 'The bars are'} {facts['colour']}. {sentences}"
        )
    step = " ".join(
        f"{('First comes', 'Then comes', 'Next is')[min(i, 2)]} {x} with {shown[x]}."
        for i, x in enumerate(labels)
    )
    whole = {"title": title, "values": shown}
    templates = [
        ("Describe the chart.", f"The {name} {title} shows {series(spoken)}."),
        ("Describe everything in detail.",
         f"This is a {name} about {title} with {n} {part}s. {sentences} "
         f"The highest is {top} and the lowest is {low}.{end}"),
        ("What do you see?", f"I see a {name} about {title}: {', '.join(pairs)}."),
        ("List all values.", bullets([f"{x}: {shown[x]}" for x in labels])),
        ("Transcribe it as a Markdown table.", grid(["label", title], [[x, shown[x]] for x in labels])),
        ("Give me the data as JSON.", as_json(whole)),
        ("Write it as CSV.", "\n".join([f"label,{title}", *(f"{x},{shown[x]}" for x in labels)])),
        ("Read the chart from left to right." if kind != "pie" else "Read the key from top to bottom.",
         step),
        ("Summarise the chart.",
         f"{title.capitalize()}: {top} is the highest with {shown[top]}, {low} is the lowest with "
         f"{shown[low]}.{end}"),
        ("Name all values as a numbered list.", numbered(pairs)),
    ]  # fmt: skip
    question, answer = rng.choice(templates)
    return Turn("describe", question, answer, f"describe: {question}")
