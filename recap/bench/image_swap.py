"""Where would another image change the next token, and were those places hard to draft?

    python -m recap bench --image-swap [--suite demo] [--model demo] [--out FILE.json]

Recap answers each question. The conversation is then read again with another image of the same kind, resized
to the size of its own so that every token keeps its position, and the target is teacher-forced along the
answer: its most probable token is compared with the one it gives for the true image (also teacher-forced, so
that low bits of another pass shape do not count as changes). A step belongs to the position of its root, that
is to the first token that it had to get right. Its candidates were rejected whole, accepted in part, or
accepted whole (down to a leaf of the tree); steps without candidates are counted apart. Intervals draw samples.

In the JSON each step holds `image_changes` (another image changes its first token) and `changes`, the same
for each of its tokens.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from PIL import Image
from tqdm import tqdm

from ..compare import answer_on_fork, teacher_forced
from ..conversation import Conversation
from ..drafters import Drafter
from ..options import drafter_from, target_from, write_json
from ..targets.base import Target
from ..trace import Step
from .bootstrap import interval
from .machine import in_words, machine
from .samples import Sample
from .suites import load_suite
from .tables import Table, decimal, span

OUTCOMES = {
    "rejected": "rejected whole",
    "partly": "accepted in part",
    "accepted": "accepted whole",
    "none": "none",
}
"""What became of a step's candidates, and in words; "none": there were no candidates."""


def outcome(step: Step) -> str:
    """What became of the candidates of a recorded step.

    >>> from recap.trace import StepNode
    >>> nodes = [StepNode(5, "", -1, 0, "root", 1.0), StepNode(6, "", 0, 1, "lookup", 0.5),
    ...          StepNode(7, "", 1, 2, "lookup", 0.5)]
    >>> [outcome(Step(0, 3, accepted, 9, "", (), (), {}, 0, 0, 0, tuple(nodes)))
    ...  for accepted in ((), (1,), (1, 2))]
    ['rejected', 'partly', 'accepted']
    """
    if len(step.nodes) < 2:
        return "none"
    if not step.accepted:
        return "rejected"
    last = step.accepted[-1]
    return "partly" if any(node.parent == last for node in step.nodes) else "accepted"


def swapped(sample: Sample, others: Sequence[Sample]) -> list[Image.Image] | None:
    """The first other sample's images of the same kind, resized like the sample's own; None without one."""
    own = sample.open_images()
    for other in others:
        if other.id == sample.id or other.kind != sample.kind or not other.images:
            continue
        if set(map(str, other.images)) & set(map(str, sample.images)):
            continue  # another question about the same image
        theirs = other.open_images()
        return [theirs[i % len(theirs)].resize(image.size) for i, image in enumerate(own)]
    return None


def trace_sample(
    target: Target, sample: Sample, images: Sequence[Image.Image], drafter: Drafter, *, limit: int
) -> list[dict[str, Any]]:
    """The sample's turns with their steps. images: what replaces its own."""
    own_images = sample.open_images()
    answered, true, other = (Conversation(target) for _ in range(3))
    turns = []
    for number, question in enumerate(sample.turns):
        for conversation in (answered, true, other):
            seen = images if conversation is other else own_images
            conversation.ask(question, seen if number == 0 else ())
            conversation.prefill(seed=drafter.seeds, top_k=drafter.top_k)
        if len(answered.ids) != len(other.ids):
            raise ValueError("The other image takes another number of tokens.")
        answer = answer_on_fork(answered, drafter, max_new_tokens=limit, record=True)
        steps = list(answer)
        assert answer.turn is not None
        ids = answer.turn.token_ids
        answered.adopt(answer.conversation)
        pairs = zip(teacher_forced(true, ids), teacher_forced(other, ids), strict=True)
        first, *changes = (one != two for one, two in pairs)
        turns.append(
            {
                "sample": sample.id,
                "kind": sample.kind,
                "turn": number,
                "token_ids": list(ids),
                "first_token_changes": first,
                "steps": _steps(steps, changes),
            }
        )
    return turns


def _steps(steps: Sequence[Step], changes: list[bool]) -> list[dict[str, Any]]:
    """The steps with what another image changes. changes: for each token after the first."""
    described = []
    for step in steps:
        mine, changes = changes[: len(step.token_ids)], changes[len(step.token_ids) :]
        described.append(
            {
                "index": step.index,
                "packed_tokens": step.packed_tokens,
                "accepted": len(step.accepted),
                "outcome": outcome(step),
                "image_changes": mine[0],
                "changes": mine,
            }
        )
    return described


def shares(turns: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Outcome -> of the steps with it, the share whose first token another image changes."""
    return {name: _share(turns, name) for name in OUTCOMES}


def _share(turns: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    by_sample: dict[str, list[int]] = {}
    for turn in turns:
        counts = by_sample.setdefault(turn["sample"], [0, 0])
        for step in turn["steps"]:
            if step["outcome"] == name:
                counts[0] += step["image_changes"]
                counts[1] += 1
    columns = list(zip(*by_sample.values(), strict=True)) or [(), ()]
    changed, steps = map(sum, columns)
    return {
        "steps": steps,
        "changed": changed,
        "share": round(changed / steps, 4) if steps else None,
        "share_95": interval(lambda c, n: c / n, *columns, digits=4),
    }


def table(outcomes: dict[str, dict[str, Any]]) -> Table:
    """The shares, a row per outcome."""
    head = ("candidates were", "steps", "another image changes the next token", "95 % interval")
    rows = [
        (OUTCOMES[name], str(f["steps"]), decimal(f["share"]), span(f["share_95"]))
        for name, f in outcomes.items()
    ]
    return Table(head, rows)


def run_image_swap(options: argparse.Namespace, samples: Sequence[Sample]) -> int:
    """`python -m recap bench --image-swap` -> exit status, 1 if no sample could be used."""
    target = target_from(options)
    if not target.sees_images:
        raise ValueError(f"{target.name} reads text only: there is no image to swap.")
    drafter, others = drafter_from("recap", options, target), load_suite(options.suite)
    turns: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for sample in tqdm(samples, unit="sample", disable=not sys.stderr.isatty()):
        try:
            if not sample.images:
                raise ValueError("It has no image.")
            images = swapped(sample, others)
            if images is None:
                raise ValueError("No other image of its kind is in the suite.")
            turns += trace_sample(target, sample, images, drafter, limit=options.max_new_tokens)
        except (ValueError, RuntimeError) as error:
            skipped.append({"sample": sample.id, "reason": str(error)})
    report = machine(target) | {
        "samples_run": len({turn["sample"] for turn in turns}),
        "skipped": skipped,
        "max_new_tokens": options.max_new_tokens,
        "outcomes": shares(turns),
        "turns": turns,
    }
    print(f"{in_words(report)}; n = {report['samples_run']} samples\n")
    print(table(report["outcomes"]).markdown())
    for one in skipped:
        print(f"skipped: {one['sample']}: {one['reason']}")
    write_json(options.out, report)
    return 0 if report["samples_run"] else 1
