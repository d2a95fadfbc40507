"""Questions about receipts and menus."""

from random import Random

from ..world.receipt import GOODS
from .templates import Turn, as_json, bullets, grid, numbered, pick, series, two


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
        (28, 10, 6, 5, 6, 6, 11, 6, 9, 7, 22),
    )[0]  # fmt: skip
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
        return [pick(rng, task, [
            ("Is there {good} on the {kind}?", "The items are {names}."),
            ("Do you see {good}?", "I see {names}."),
            ("Is {good} listed?", "It lists {names}."),
        ], good=name, names=series(names), **base)]  # fmt: skip
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
        return [pick(rng, task, [
            ("Which costs more, {one} or {other}?", "{one} is {p}, {other} is {q}: {so}."),
            ("Is the {one} dearer than the {other}?",
             "The {one} is {p} and the {other} is {q}: {so}."),
            ("What is more expensive, the {one} or the {other}?",
             "At {p} against {q}, {so}."),
        ], one=one, other=other, p=price[one], q=price[other],
            so=f"the {best} costs more")]  # fmt: skip
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
    templates = [
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
    question, answer = rng.choice(templates)
    return [Turn("describe", question, answer, f"describe: {question}")]
