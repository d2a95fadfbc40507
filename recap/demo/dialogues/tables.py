"""Questions about tables."""

from random import Random

from ..world.table import DAYS, NAMES
from .templates import Turn, a, as_json, bullets, grid, pick, series, two


def table(rng: Random, facts: dict) -> list[Turn]:
    """One question about a table (with its follow-up, if it has one)."""
    names, days, values, theme = (facts[k] for k in ("names", "columns", "values", "theme"))
    at = {(p, d): values[r][c] for r, p in enumerate(names) for c, d in enumerate(days)}
    base = {"theme": theme, "n": len(names), "m": len(days)}
    task = rng.choices(
        ("value", "row", "column", "names", "count", "theme", "most", "compare", "is there", "all"),
        (30, 9, 8, 6, 4, 4, 10, 10, 9, 20),
    )[0]
    if task == "is there":
        name, day = rng.choice((*names, *NAMES)), rng.choice((*days, *DAYS))
        return [pick(rng, task, [
            ("Is {name} in the table?", "The rows are {rows}."),
            ("Is there a row for {name}?", "There are rows for {rows}."),
            ("Is there a column for {day}?", "The columns are {columns}."),
        ], name=name, day=day, rows=series(names), columns=series(days))]  # fmt: skip
    if task == "value":
        name, day = rng.choice(names), rng.choice(days)
        turns = [pick(rng, task, [
            ("How many {theme} does {name} have on {day}?", "{name} has {v} {theme} on {day}."),
            ("What is the value for {name} on {day}?", "The value for {name} on {day} is {v}."),
            ("What does the table say for {name} on {day}?", "For {name} on {day} it says {v}."),
            ("{name}, {day}? Only the number.", "{v}"),
            ("Read the {day} value of {name}.", "It is {v}."),
        ], name=name, day=day, v=at[name, day], **base)]  # fmt: skip
        if rng.random() < 0.4:
            if rng.random() < 0.5:
                name = rng.choice([x for x in names if x != name])
                more = [("And {name}?", "On {day} {name} has {v}."),
                        ("And what about {name}?", "For {name} it is {v} on {day}.")]  # fmt: skip
            else:
                day = rng.choice([d for d in days if d != day])
                more = [("And on {day}?", "On {day} {name} has {v}."),
                        ("And what about {day}?", "On {day} it is {v}.")]  # fmt: skip
            turns.append(pick(rng, task, more, name=name, day=day, v=at[name, day]))
        return turns
    if task == "row":
        r = rng.randrange(len(names))
        pairs = [f"{d} {v}" for d, v in zip(days, values[r], strict=True)]
        spoken = [f"{v} on {d}" for d, v in zip(days, values[r], strict=True)]
        return [pick(rng, task, [
            ("Read the row of {name}.", "{name}: {pairs}."),
            ("What are the values of {name}?", "{name} has {spoken}."),
            ("Give me the numbers of {name} as a list.", "{lines}"),
        ], name=names[r], pairs=", ".join(pairs), spoken=series(spoken),
            lines=bullets(pairs))]  # fmt: skip
    if task == "column":
        c = rng.randrange(len(days))
        pairs = [f"{p} {row[c]}" for p, row in zip(names, values, strict=True)]
        spoken = [f"{row[c]} for {p}" for p, row in zip(names, values, strict=True)]
        return [pick(rng, task, [
            ("Read the column {day}.", "{day}: {pairs}."),
            ("What are the values on {day}?", "On {day} there are {spoken}."),
            ("List the {day} values.", "{lines}"),
        ], day=days[c], pairs=", ".join(pairs), spoken=series(spoken),
            lines=bullets(pairs))]  # fmt: skip
    if task == "names":
        return [pick(rng, task, [
            ("Who is in the table?", "The table lists {names}."),
            ("Which names do you see?", "I see {names}."),
            ("What are the columns?", "The columns are {days}."),
            ("Which days does the table have?", "It has {days}."),
            ("Name all rows.", "{plain}"),
        ], names=series(names), days=series(days), plain=", ".join(names))]  # fmt: skip
    if task == "count":
        return [pick(rng, task, [
            ("How many rows are there?", "There are {n} rows."),
            ("How many people are in the table?", "There are {n} people in the table."),
            ("How many days are shown?", "The table shows {m} days."),
            ("What size is the table?", "It has {n} rows and {m} columns of numbers."),
        ], **base)]  # fmt: skip
    if task == "theme":
        return [pick(rng, task, [
            ("What is the table about?", "The table is about {theme}."),
            ("What is counted? One word.", "{theme}"),
            ("What does the table show?", "It shows the {theme} of {n} people on {m} days."),
        ], **base)]  # fmt: skip
    if task == "most":
        c = rng.randrange(len(days))
        best = max(range(len(names)), key=lambda r: values[r][c])
        pairs = ", ".join(f"{p} {row[c]}" for p, row in zip(names, values, strict=True))
        return [pick(rng, task, [
            ("Who has the most {theme} on {day}?", "On {day}: {pairs}. {name} has the most."),
            ("What is the highest value on {day}?", "{pairs}. The highest is {v}, for {name}."),
            ("Who is best on {day}?", "{day}: {pairs}. So {name} is best."),
        ], pairs=pairs, name=names[best], day=days[c], v=values[best][c], **base)]  # fmt: skip
    if task == "compare":
        one, other = two(rng, names)
        day = rng.choice(days)
        p, q = at[one, day], at[other, day]
        return [pick(rng, task, [
            ("Who has more on {day}, {one} or {other}?", "{one} has {p}, {other} has {q}: {more}."),
            ("Does {one} have more than {other} on {day}?",
             "{one} has {p} and {other} has {q}: {more}."),
        ], one=one, other=other, day=day, p=p, q=q,
            more=f"{one if p > q else other} has more")]  # fmt: skip
    lines = [
        f"{p}: " + ", ".join(f"{d} {v}" for d, v in zip(days, row, strict=True))
        for p, row in zip(names, values, strict=True)
    ]
    sentences = " ".join(
        f"{p} has {series([f'{v} on {d}' for d, v in zip(days, row, strict=True)])}."
        for p, row in zip(names, values, strict=True)
    )
    nest = {p: dict(zip(days, row, strict=True)) for p, row in zip(names, values, strict=True)}
    body = [[p, *row] for p, row in zip(names, values, strict=True)]
    records = [
        {"name": p, "day": d, theme: v}
        for p, row in nest.items() for d, v in row.items()
    ]  # fmt: skip
    csv = [",".join(str(v) for v in line) for line in [["name", *days], *body]]
    templates = [
        ("Transcribe it as a Markdown table.", grid([theme, *days], body)),
        ("Give me the table as JSON.", as_json(nest)),
        ("Give me every value as a JSON record.", as_json(records)),
        ("Write it as CSV.", "\n".join(csv)),
        ("List all rows.", bullets(lines)),
        ("Describe the table.", f"{a('table').capitalize()} of {theme}. {sentences}"),
        ("Describe everything in detail.",
         f"The picture shows a table of {theme} with {len(names)} rows, {series(names)}, and "
         f"the columns {series(days)}. {sentences}"),
        ("What do you see?", f"I see a table of {theme} for {series(names)} on {series(days)}."),
        ("Read the table row by row.", "\n".join(lines)),
    ]  # fmt: skip
    question, answer = rng.choice(templates)
    return [Turn("describe", question, answer, f"describe: {question}")]
