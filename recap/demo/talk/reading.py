"""What may be asked of receipts, menus and tables."""

from random import Random

from recap.demo.talk.ways import Turn, a, as_json, bullets, grid, numbered, pick, series, two
from recap.demo.world.receipt import GOODS
from recap.demo.world.table import DAYS, NAMES


def receipt(rng: Random, facts: dict) -> list[Turn]:
    """One question about a receipt or a menu (with its follow-up, if it has one)."""
    goods, shop, total = facts["goods"], facts["shop"], facts.get("total")
    kind = "menu" if total is None else "receipt"
    names = [name for name, _ in goods]
    price = dict(goods)
    amount = {name: float(p) for name, p in goods}
    n = len(goods)
    base = {"kind": kind, "shop": shop, "total": total, "n": n}
    task = rng.choices(
        ("price", "total", "shop", "count", "most", "least", "is there", "order", "compare",
         "goods", "all"),
        (24, 12, 7, 6, 6, 6, 8, 6, 7, 8, 24),
    )[0]  # fmt: skip
    if task == "price" and rng.random() < 0.2:
        gone = rng.choice([g for g in GOODS if g not in names])
        return [pick(rng, "missing", [
            ("How much is the {good}?", "There is no {good} on this {kind}."),
            ("What does the {good} cost?", "I see no {good} on the {kind}."),
            ("What is the price of the {good}?", "There is no {good} here."),
        ], good=gone, **base)]  # fmt: skip
    if task == "price":
        name, *rest = rng.sample(names, min(2, n))
        turns = [pick(rng, task, [
            ("How much is the {good}?", "The {good} is {price}."),
            ("What does the {good} cost?", "The {good} costs {price}."),
            ("What is the price of the {good}?", "The price of the {good} is {price}."),
            ("Price of the {good}? Only the number.", "{price}"),
            ("How much is the {good} on this {kind}?", "It is {price}."),
            ("Tell me what the {good} costs.", "It costs {price}."),
        ], good=name, price=price[name], **base)]  # fmt: skip
        if rest and rng.random() < 0.4:
            turns.append(pick(rng, task, [
                ("And the {good}?", "The {good} costs {price}."),
                ("And how much is the {good}?", "That is {price}."),
            ], good=rest[0], price=price[rest[0]], **base))  # fmt: skip
        return turns
    if task == "total":
        asks = ["What is the total?", "How much is it in all?", "What is the sum? Only the number.",
                "How much was paid?"]  # fmt: skip
        some = ["The total is {total}.", "In all it is {total}.", "{total}", "{total} was paid."]
        none = ["There is no total on this menu.", "A menu has no total.", "There is no total.",
                "This is a menu: it has no total."]  # fmt: skip
        answers = none if total is None else some
        return [pick(rng, task, list(zip(asks, answers, strict=True)), **base)]
    if task == "shop":
        return [pick(rng, task, [
            ("What is the name of the shop?", "The name at the top is {shop}."),
            ("Where is this {kind} from?", "It is from {shop}."),
            ("Which shop is it? One word.", "{shop}"),
            ("What is written at the top?", "At the top it says {shop}."),
        ], **base)]  # fmt: skip
    if task == "count":
        return [pick(rng, task, [
            ("How many items are on the {kind}?", "There are {n} items on the {kind}."),
            ("How many lines of goods do you see?", "I see {n} of them."),
            ("Count the items.", "{n}"),
        ], **base)]  # fmt: skip
    if task in ("most", "least"):
        best = (max if task == "most" else min)(names, key=amount.get)
        word, verb = ("most expensive", "most") if task == "most" else ("cheapest", "least")
        return [pick(rng, task, [
            ("What is the {word} item?", "The {word} item is the {good} at {price}."),
            ("Which item costs the {verb}?", "The {good} costs the {verb}, {price}."),
            ("Name the {word} item.", "{good}"),
        ], word=word, verb=verb, good=best, price=price[best])]  # fmt: skip
    if task == "is there":
        name = rng.choice(names) if rng.random() < 0.5 else rng.choice(GOODS)
        asks = ["Is there {good} on the {kind}?", "Do you see {good}?", "Is {good} listed?"]
        if name in price:
            answers = ["Yes, {good} for {price}.", "Yes, there is {good} at {price}.", "Yes."]
        else:
            answers = ["No, there is no {good}.", "No, I see no {good}.", "No."]
        ways = list(zip(asks, answers, strict=True))
        return [pick(rng, task, ways, good=name, price=price.get(name), **base)]
    if task == "order":
        if rng.random() < 0.6:
            i, word = rng.choice(((0, "first"), (-1, "last"), (1, "second")))
            return [pick(rng, task, [
                ("What is the {word} item?", "The {word} item is {good} for {price}."),
                ("Which item is {word} on the {kind}?", "{good} is the {word} one."),
            ], word=word, good=names[i], price=price[names[i]], **base)]  # fmt: skip
        i = rng.randrange(n - 1)
        return [pick(rng, task, [
            ("What comes after the {good}?", "After the {good} comes the {after}."),
            ("Which item is below the {good}?", "Below the {good} is the {after}."),
        ], good=names[i], after=names[i + 1])]  # fmt: skip
    if task == "compare":
        one, other = two(rng, names)
        best = max(one, other, key=amount.get)
        low = min(one, other, key=amount.get)
        return [pick(rng, task, [
            ("Which costs more, {one} or {other}?", "The {best} costs more: {high} against {low}."),
            ("Is the {one} dearer than the {other}?", "{yes}, the {best} is dearer."),
            ("What is more expensive, the {one} or the {other}?", "The {best}, at {high}."),
        ], one=one, other=other, best=best, high=price[best], low=price[low],
            yes="Yes" if best == one else "No")]  # fmt: skip
    if task == "goods":
        return [pick(rng, task, [
            ("What items are listed?", "The items are {names}."),
            ("Name all items without prices.", "{plain}"),
            ("Which goods can you read?", "I can read {names}."),
            ("List the items.", "{lines}"),
        ], names=series(names), plain=", ".join(names), lines=bullets(names))]  # fmt: skip
    priced = [f"{name} {p}" for name, p in goods]
    spoken = [f"{name} for {p}" for name, p in goods]
    rows = [[name, p] for name, p in goods]
    end = f" The total is {total}." if total else ""
    tail = [["total", total]] if total else []
    whole = {"shop": shop, "items": {name: p for name, p in goods}}
    if total:
        whole["total"] = total
    one = " ".join(
        f"The {name} {'is' if i % 2 else 'costs'} {p}." for i, (name, p) in enumerate(goods)
    )
    last = f"\nTOTAL {total}" if total else ""
    ways = [
        ("List all items with prices.", bullets([f"{name}: {p}" for name, p in goods])),
        (f"Describe the {kind}.", f"It is a {kind} from {shop} with {n} items: {series(spoken)}.{end}"),
        ("Describe everything in detail.",
         f"The picture shows a {kind}. At the top it says {shop}. There are {n} items. {one}{end}"),
        (f"Transcribe the {kind}.", "\n".join([shop, *priced]) + last),
        ("Transcribe it as a Markdown table.", grid(["item", "price"], rows + tail)),
        (f"Give me the {kind} as JSON.", as_json(whole)),
        ("Write it as CSV.", "\n".join(["item,price", *(f"{name},{p}" for name, p in goods)])),
        ("What do you see?", f"I see a {kind} from {shop}: {', '.join(priced)}.{end}"),
        ("Read me the prices as a numbered list.", numbered([f"{name}, {p}" for name, p in goods])),
        ("What can I buy here and for how much?", f"You can buy {series(spoken)}."),
    ]  # fmt: skip
    question, answer = rng.choice(ways)
    return [Turn("describe", question, answer, f"describe: {question}")]


def table(rng: Random, facts: dict) -> list[Turn]:
    """One question about a table (with its follow-up, if it has one)."""
    names, days, values, theme = (facts[k] for k in ("names", "columns", "values", "theme"))
    at = {(p, d): values[r][c] for r, p in enumerate(names) for c, d in enumerate(days)}
    base = {"theme": theme, "n": len(names), "m": len(days)}
    task = rng.choices(
        ("value", "row", "column", "names", "count", "theme", "most", "compare", "all"),
        (30, 10, 8, 7, 6, 5, 8, 6, 22),
    )[0]
    if task == "value" and rng.random() < 0.2:
        gone = rng.choice([x for x in NAMES if x not in names])
        day = rng.choice(days)
        if rng.random() < 0.4:
            absent = rng.choice([d for d in DAYS if d not in days])
            return [pick(rng, "missing", [
                ("What is the value for {name} on {day}?", "There is no column for {day}."),
                ("How many {theme} does {name} have on {day}?", "The table has no {day}."),
            ], name=rng.choice(names), day=absent, **base)]  # fmt: skip
        return [pick(rng, "missing", [
            ("What is the value for {name} on {day}?", "There is no row for {name}."),
            ("How many {theme} does {name} have on {day}?", "{name} is not in this table."),
        ], name=gone, day=day, **base)]  # fmt: skip
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
        return [pick(rng, task, [
            ("Who has the most {theme} on {day}?", "{name} has the most on {day}: {v}."),
            ("What is the highest value on {day}?", "The highest is {v}, for {name}."),
            ("Who is best on {day}? One word.", "{name}"),
        ], name=names[best], day=days[c], v=values[best][c], **base)]  # fmt: skip
    if task == "compare":
        one, other = two(rng, names)
        day = rng.choice(days)
        high = max(one, other, key=lambda p: at[p, day])
        low = other if high == one else one
        return [pick(rng, task, [
            ("Who has more on {day}, {one} or {other}?", "{high} has more: {x} against {y}."),
            ("Does {one} have more than {other} on {day}?", "{yes}, {one} has {p} and {other} has {q}."),
        ], one=one, other=other, day=day, high=high, x=at[high, day], y=at[low, day],
            p=at[one, day], q=at[other, day], yes="Yes" if high == one else "No")]  # fmt: skip
    lines = [
        f"{p}: " + ", ".join(f"{d} {v}" for d, v in zip(days, row, strict=True))
        for p, row in zip(names, values, strict=True)
    ]
    told = " ".join(
        f"{p} has {series([f'{v} on {d}' for d, v in zip(days, row, strict=True)])}."
        for p, row in zip(names, values, strict=True)
    )
    nest = {p: dict(zip(days, row, strict=True)) for p, row in zip(names, values, strict=True)}
    body = [[p, *row] for p, row in zip(names, values, strict=True)]
    csv = [",".join(str(v) for v in line) for line in [["name", *days], *body]]
    ways = [
        ("Transcribe it as a Markdown table.", grid([theme, *days], body)),
        ("Give me the table as JSON.", as_json(nest)),
        ("Write it as CSV.", "\n".join(csv)),
        ("List all rows.", bullets(lines)),
        ("Describe the table.", f"{a('table').capitalize()} of {theme}. {told}"),
        ("Describe everything in detail.",
         f"The picture shows a table of {theme} with {len(names)} rows, {series(names)}, and "
         f"the columns {series(days)}. {told}"),
        ("What do you see?", f"I see a table of {theme} for {series(names)} on {series(days)}."),
        ("Read the table row by row.", "\n".join(lines)),
    ]  # fmt: skip
    question, answer = rng.choice(ways)
    return [Turn("describe", question, answer, f"describe: {question}")]
