"""Where would another image change the next token, and were just those places hard to draft?

    python -m recap bench --image-swap [--suite demo] [--model demo] [--out FILE.json]

Recap answers each question. The conversation is then read again with another image of the same kind, resized
to the size of its own so that every token keeps its place, and the target is teacher_forced along the true answer: its
most probable token is compared with the true one at every place (with both images, so that low bits of
another pass shape do not count as changes). A step belongs to the place where its root stands, that is
to the first token that it had to get right. It was rejected whole, accepted in part, or accepted whole
(down to a leaf of its tree); steps without candidates are counted apart. Intervals draw samples.

In the JSON each step holds `image_changes` (the step's mark: another image changes its first token) and
`changes`, the same for each of its tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from PIL import Image
from tqdm import tqdm

from ..compare import answer_on_fork, teacher_forced
from ..conversation import Conversation
from ..drafters import Drafter
from ..targets.base import Target
from ..trace import Step
from .bootstrap import interval, rounded
from .figures import span
from .suites import Sample, load_suite

OUTCOMES = ("rejected", "partly", "accepted", "none")
"""What became of a step's candidates; "none": there were no candidates."""


def outcome(step: Step) -> str:
    """What became of the candidates of a recorded step.

    >>> from recap.trace import StepNode
    >>> nodes = [StepNode(5, "", -1, 0, "root", 1.0), StepNode(6, "", 0, 1, "lookup", 0.5),
    ...          StepNode(7, "", 1, 2, "lookup", 0.5)]
    >>> [outcome(Step(0, 3, rows, 0, "", (), (), {}, 0, 0, 0, tuple(nodes))) for rows in ((), (1,), (1, 2))]
    ['rejected', 'partly', 'accepted']
    """
    if len(step.nodes) == 1:
        return "none"
    if not step.accepted:
        return "rejected"
    last = step.accepted[-1]
    return "partly" if any(node.parent == last for node in step.nodes) else "accepted"


def swapped(sample: Sample, others: Sequence[Sample]) -> list[Image.Image] | None:
    """The first other sample's images of the same kind, each resized as the sample's own; None without one."""
    own = sample.pictures()
    for other in others:
        if other.id == sample.id or other.kind != sample.kind or not other.images:
            continue
        if set(map(str, other.images)) & set(map(str, sample.images)):
            continue  # another question about the same picture
        theirs = other.pictures()
        return [theirs[i % len(theirs)].resize(image.size) for i, image in enumerate(own)]
    return None


def trace_sample(
    target: Target, sample: Sample, images: Sequence[Image.Image], drafter: Drafter, *, limit: int
) -> list[dict[str, Any]]:
    """The sample's turns with their steps. images: what stands in for its own."""
    own, true, other = (Conversation(target) for _ in range(3))
    turns = []
    for number, question in enumerate(sample.turns):
        for conversation, seen in (
            (own, sample.pictures()),
            (true, sample.pictures()),
            (other, images),
        ):
            conversation.ask(question, seen if number == 0 else ())
            conversation.prefill(seed=drafter.seeds, top_k=drafter.top_k)
        if len(own.ids) != len(other.ids):
            raise ValueError("The other image takes another number of tokens.")
        answer = answer_on_fork(own, drafter, max_new_tokens=limit, record=True)
        steps = list(answer)
        assert answer.turn is not None
        ids = answer.turn.token_ids
        own.adopt(answer.conversation)
        pairs = zip(teacher_forced(true, ids), teacher_forced(other, ids), strict=True)
        changes = [one != two for one, two in pairs]
        at, described = 1, []
        for step in steps:
            here = changes[at : at + len(step.token_ids)]
            at += len(step.token_ids)
            described.append(
                {
                    "index": step.index,
                    "packed_tokens": step.packed_tokens,
                    "accepted": len(step.accepted),
                    "outcome": outcome(step),
                    "image_changes": here[0],
                    "changes": here,
                }
            )
        turns.append(
            {
                "sample": sample.id,
                "kind": sample.kind,
                "turn": number,
                "token_ids": list(ids),
                "first_token_changes": changes[0],
                "steps": described,
            }
        )
    return turns


def diagnose(
    target: Target,
    samples: Sequence[Sample],
    drafter: Drafter,
    *,
    max_new_tokens: int,
    others: Sequence[Sample] | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The diagnostic over a suite -> one JSON-ready object. others: where other images come from."""
    others = samples if others is None else others
    turns: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    for sample in tqdm(samples, unit="sample", file=sys.stderr, disable=not progress):
        try:
            if not sample.images:
                raise ValueError("It has no image.")
            images = swapped(sample, others)
            if images is None:
                raise ValueError("No other image of its kind is in the suite.")
            turns += trace_sample(target, sample, images, drafter, limit=max_new_tokens)
        except (ValueError, RuntimeError) as error:
            skipped.append({"sample": sample.id, "reason": str(error)})
    return {
        "model": target.name,
        "device": target.device,
        "dtype": target.dtype,
        "samples_run": len({turn["sample"] for turn in turns}),
        "skipped": skipped,
        "max_new_tokens": max_new_tokens,
        "outcomes": {name: _share(turns, name) for name in OUTCOMES},
        "turns": turns,
    }


def _share(turns: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    """Of the steps with that outcome, the share whose first token another image changes."""
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
        "share_95": rounded(interval(lambda c, n: c / n, *columns), 4) if by_sample else None,
    }


def table(report: dict[str, Any]) -> str:
    """The shares as a markdown table."""
    lines = [
        "| candidates were | steps | another image changes the next token | 95 % interval |",
        "|---|---|---|---|",
    ]
    words = {"rejected": "rejected whole", "partly": "accepted in part"}
    words |= {"accepted": "accepted whole", "none": "none"}
    for name, f in report["outcomes"].items():
        share = "-" if f["share"] is None else f"{f['share']:.2f}"
        lines.append(f"| {words[name]} | {f['steps']} | {share} | {span(f['share_95'])} |")
    return "\n".join(lines)


def run_image_swap(options: argparse.Namespace, samples: Sequence[Sample]) -> int:
    """`python -m recap bench --image-swap`."""
    from ..options import drafter_from, load_from

    target = load_from(options)
    if not target.sees_images:
        raise ValueError(f"{target.name} reads text only: there is no image to swap.")
    report = diagnose(
        target,
        samples,
        drafter_from("recap", options, target),
        max_new_tokens=options.max_new_tokens,
        others=load_suite(options.suite),
        progress=sys.stderr.isatty(),
    )
    print(
        f"{report['model']}, {report['device']}, {report['dtype']}, {report['samples_run']} samples\n"
    )
    print(table(report))
    for one in report["skipped"]:
        print(f"skipped: {one['sample']}: {one['reason']}")
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if report["samples_run"] else 1
