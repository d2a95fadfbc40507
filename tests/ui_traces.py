"""Synthetic traces for the page's tests: trees of any size, with token texts that try to break out.

`python -m tests.ui_traces 400 80 > long.ndjson` writes one of 400 steps of 80 nodes.
"""

from __future__ import annotations

import random
import sys

from recap.drafters.tree import ROOT, Contribution, TreeBuilder
from recap.trace import SourceCount, Step, StepNode, Turn, start_line, step_line, turn_line

NASTY = (
    "<img src=x onerror=document.title='broken'>",
    "</script>",
    "<b>bold</b>",
    "אבג",
    "e\u0301\u0323",
    "👩‍🚀",
    "\ufffd",
    "\ud800",
    "\n",
    "",
    " ${value}",
    "{{this}}",
)
PLAIN = (" the", " a", " red", " circle", " left", " of", " is", ".", ",", " and", " sign", " two")
SOURCES = ("3-token", "2-token", "1-token", "lookup")


def synthetic_step(
    index: int, *, nodes: int, random_: random.Random, table: bool, nasty: bool
) -> Step:
    vocabulary = PLAIN + NASTY if nasty else PLAIN
    builder = TreeBuilder(root=0)
    places = [(ROOT, 1.0)]
    while len(builder) < nodes:
        parent, score = random_.choice(places[-12:] + places[:4])
        token = random_.randrange(len(vocabulary))
        source = "table" if table else random_.choice(SOURCES)
        contributions = () if table else synthetic_contributions(random_, source)
        score *= random_.uniform(0.1, 0.9)
        before = len(builder)
        handle = builder.add(parent, token, source=source, score=score, contributions=contributions)
        if len(builder) > before:
            places.append((handle, score))
    tree = builder.pack()
    accepted: list[int] = []
    last = ROOT
    while random_.random() < 0.7:
        children = [n for n in range(1, len(tree)) if tree.parents[n] == last]
        if not children:
            break
        last = children[0]
        accepted.append(last)
    used = {tree.tokens[n] for n in range(1, len(tree)) if tree.parents[n] == last}
    bonus = next(t for t in range(len(vocabulary) + 1) if t not in used)
    text = (*vocabulary, " other")
    tokens = [tree.tokens[n] for n in accepted] + [bonus]
    shown = [StepNode(tree.tokens[0], text[tree.tokens[0]], -1, 0, "root", 1.0)]
    for n in tree.nodes:
        found = tuple((c.source, c.weight, c.probability, c.confidence) for c in n.contributions)
        node = StepNode(n.token, text[n.token], n.parent, n.depth, n.source, n.score, n.rank, found)
        shown.append(node)
    stored = [] if table else [(at, synthetic_stored(random_, text)) for at in (0, *accepted)]
    counts = (
        {"table": SourceCount(len(tree), len(tree) - 3, len(accepted))}
        if table
        else {name: SourceCount(9, 5, i % 3) for i, name in enumerate(SOURCES)}
    )
    return Step(
        index=index,
        packed_tokens=len(tree),
        accepted=tuple(accepted),
        bonus=bonus,
        bonus_text=text[bonus],
        token_ids=tuple(tokens),
        texts=tuple(text[t] for t in tokens),
        sources=counts,
        draft_s=0.0004,
        verify_s=0.006,
        observe_s=0.0003,
        nodes=tuple(shown),
        stored=tuple(stored),
    )


def synthetic_stored(
    random_: random.Random, text: tuple[str, ...]
) -> dict[str, tuple[tuple[str, float], ...]]:
    names = [source for source in SOURCES if random_.random() < 0.7]
    return {
        name: tuple((random_.choice(text), 0.5**rank) for rank in range(1, 9))
        for name in [*names, "mixed"]
    }


def synthetic_contributions(random_: random.Random, source: str) -> tuple[Contribution, ...]:
    asked = [other for other in SOURCES if other == source or random_.random() < 0.5]
    weights = [random_.uniform(0.1, 1) * (3 if other == source else 1) for other in asked]
    return tuple(
        Contribution(
            other, w / sum(weights), random_.random() * (other == source), random_.random()
        )
        for other, w in zip(asked, weights, strict=True)
    )


def synthetic_trace(
    *, steps: int = 20, nodes: int = 40, decoder: str = "recap", nasty: bool = False, seed: int = 1
) -> str:
    """One run as NDJSON, ending with its turn line."""
    random_ = random.Random(seed)
    table = decoder == "token_recycling"
    head = {"first_token": 0, "first_text": "The", "prompt_tokens": 61, "turn": seed}
    head["question"] = "<b>What</b> & <img src=x onerror=y>?" if nasty else "What is it?"
    lines = [start_line(decoder=decoder, model="synthetic", device="cpu", dtype="float32", **head)]
    ids = [0]
    for index in range(steps):
        step = synthetic_step(index, nodes=nodes, random_=random_, table=table, nasty=nasty)
        ids += step.token_ids
        lines.append(step_line(step))
    turn = Turn(
        decoder=decoder,
        model="synthetic",
        device="cpu",
        dtype="float32",
        text="The",
        token_ids=tuple(ids),
        prompt_tokens=61,
        cached_tokens=0,
        passes=steps,
        prefill_s=0.05,
        decode_s=0.0067 * steps,
        finish_reason="eos",
    )
    lines.append(turn_line(turn))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(synthetic_trace(steps=int(sys.argv[1]), nodes=int(sys.argv[2])))
