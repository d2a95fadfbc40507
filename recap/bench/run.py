"""Decoders over a suite, from the same state, prefill apart from decoding: what `python -m recap bench` measures.

Each sample is one conversation. At every turn all decoders answer from the same state, our own on forks
of one KV cache; the conversation goes on with plain decoding's answer (or the last named decoder's), so
all of them see the same history. The order of decoders rotates with the sample, the turn and the repeat.
Memories that persist do so over the samples, per decoder; every repeat starts with empty ones. Before the
clock runs every decoder has answered once. Recording is off; the clock is read after the device's results
are on the host.

Answers are written down sample by sample (`record`), so that an interrupted run goes on with `--resume`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tqdm import tqdm

from ..compare import divergence
from ..conversation import Conversation
from ..targets.base import Target
from .figures import PLAIN, figures, groups
from .record import Record
from .runners import EngineRunner, Outcome, Runner
from .suites import Sample

WARM_UP = 8
"""Tokens that every decoder makes before the clock runs."""


def run_suite(
    target: Target,
    samples: Sequence[Sample],
    runners: dict[str, Runner],
    *,
    max_new_tokens: int,
    repeats: int = 1,
    record: Record | None = None,
    progress: bool = False,
    peers: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure the runners -> one JSON-ready object (figures per decoder, a row per answer).

    record: where rows go as they come, and where an interrupted run is taken up. peers: what the report
    says of other libraries. A sample that fails is left out for all decoders, and named; so is an answer
    that another library's decoder fails at.
    """
    record = record or Record(None)
    names = list(runners)
    if record.runners is not None:
        for name, state in record.runners.items():
            runners[name].restore(state)
    else:
        _warm_up(target, samples, runners)
    work = [(repeat, place) for repeat in range(repeats) for place in range(len(samples))]
    with tqdm(
        total=len(work),
        initial=record.done,
        unit="sample",
        file=sys.stderr,
        disable=not progress,
        dynamic_ncols=True,
    ) as bar:
        try:
            for repeat, place in work[record.done :]:
                bar.set_postfix_str(samples[place].id)
                if place == 0 and repeat:
                    for runner in runners.values():
                        runner.reset()
                rows = _sample(target, samples[place], runners, place + repeat, max_new_tokens)
                record.add([row | {"repeat": repeat} for row in rows])
                record.save({name: runner.state() for name, runner in runners.items()})
                bar.update()
        except BaseException:
            # what was measured stays; a sample half done is measured again
            record.save(None, now=True)
            raise
    record.finish()
    return report(target, record.rows, names, max_new_tokens, repeats, peers or {})


def report(
    target: Target,
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    max_new_tokens: int,
    repeats: int,
    peers: dict[str, Any],
) -> dict[str, Any]:
    """The benchmark's object from its rows."""
    failed = [row for row in rows if "error" in row]
    answers = [row for row in rows if "error" not in row]
    hidden = ("token_ids", "steps", "sources")
    return {
        "model": target.name,
        "device": target.device,
        "dtype": target.dtype,
        "threads": _threads(),
        "samples_run": len({row["sample"] for row in answers}),
        "failed": failed,
        "max_new_tokens": max_new_tokens,
        "repeats": repeats,
        "decoders": figures(answers, names),
        "groups": groups(answers, names),
        "peers": peers,
        "samples": [
            {k: v for k, v in row.items() if k not in hidden}
            | {"tokens_per_pass": _tokens_per_pass(row)}
            for row in answers
        ],
    }


def _tokens_per_pass(row: dict[str, Any]) -> float:
    decoded = row["tokens"] - row["prefill_tokens"]
    return round(decoded / row["passes"], 3) if row["passes"] else 0.0


def _warm_up(target: Target, samples: Sequence[Sample], runners: dict[str, Runner]) -> None:
    """Let every decoder answer once, then forget it: kernels, allocations, imports."""
    for conversation in opened(target, samples, 1, runners):
        for runner in runners.values():
            if runner.refuses(conversation) is None:
                runner.answer(conversation, WARM_UP)
    for runner in runners.values():
        runner.reset()


def opened(
    target: Target, samples: Sequence[Sample], count: int, runners: dict[str, Runner]
) -> list[Conversation]:
    """The first `count` samples that can be asked, each at its first question, prefilled."""
    conversations: list[Conversation] = []
    for sample in samples:
        if len(conversations) == count:
            break
        try:
            conversation = Conversation(target)
            conversation.ask(sample.turns[0], sample.pictures())
            conversation.prefill(seed=True, top_k=_top_k(runners))
        except (ValueError, RuntimeError):
            continue  # the measuring itself names it
        conversations.append(conversation)
    return conversations


def _top_k(runners: dict[str, Runner]) -> int:
    return max(runner.top_k for runner in runners.values())


def _sample(
    target: Target,
    sample: Sample,
    runners: dict[str, Runner],
    rotate: int,
    max_new_tokens: int,
) -> list[dict[str, Any]]:
    """All rows of one conversation, or one row that says why there are none."""
    rows: list[dict[str, Any]] = []
    head = {"sample": sample.id, "kind": sample.kind, "turns": len(sample.turns)}
    try:
        images = sample.pictures()
        conversation = Conversation(target)
        for number, question in enumerate(sample.turns):
            conversation.ask(question, images if number == 0 else ())
            outcomes, errors = _turn(conversation, runners, rotate + number, max_new_tokens)
            for name, error in errors.items():
                rows.append(head | {"turn": number, "decoder": name, "error": error})
            plain = outcomes.get(PLAIN)
            for name, outcome in outcomes.items():
                difference = _difference(conversation, outcome, plain)
                rows.append(
                    head
                    | {"turn": number, "decoder": name, "prompt_tokens": conversation.prompt_tokens}
                    | _row(outcome, difference, compared=plain is not None)
                )
            conversation.adopt(_going_on(outcomes))
    except (ValueError, RuntimeError) as error:
        return [head | {"error": str(error)}]
    return rows


def _turn(
    conversation: Conversation, runners: dict[str, Runner], rotate: int, max_new_tokens: int
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Every decoder's answer to the open question, and the errors of other libraries' decoders."""
    names = list(runners)
    at = rotate % len(names)
    conversation.prefill(seed=True, top_k=_top_k(runners))
    outcomes: dict[str, Outcome] = {}
    errors: dict[str, str] = {}
    for name in names[at:] + names[:at]:
        runner = runners[name]
        why = runner.refuses(conversation)
        if why is not None:
            errors[name] = why
            continue
        try:
            outcomes[name] = runner.answer(conversation, max_new_tokens)
        except Exception as error:
            if isinstance(runner, EngineRunner):
                raise  # ours: the sample has failed
            errors[name] = f"{type(error).__name__}: {error}"
    return {name: outcomes[name] for name in names if name in outcomes}, errors


def _going_on(outcomes: dict[str, Outcome]) -> Conversation:
    """The conversation with the answer that the next question follows."""
    ours = {name: o.twin for name, o in outcomes.items() if o.twin is not None}
    return ours.get(PLAIN) or list(ours.values())[-1]


def _row(outcome: Outcome, difference: dict[str, Any] | None, *, compared: bool) -> dict[str, Any]:
    return {
        "tokens": len(outcome.token_ids),
        "prefill_tokens": outcome.prefill_tokens,
        "passes": len(outcome.passes),
        "decode_s": round(outcome.decode_s, 6),
        "prefill_s": round(outcome.prefill_s, 6),
        "identical": (difference is None) if compared else None,
        "first_difference": difference,
        "token_ids": list(outcome.token_ids),
        "steps": [list(step) for step in outcome.passes],
        "sources": {k: [v.lookups, v.hits, v.accepted] for k, v in outcome.sources.items()},
    }


def _difference(
    conversation: Conversation, outcome: Outcome, plain: Outcome | None
) -> dict[str, Any] | None:
    """Where an answer parts from the plain one: place from 0, distance of the two logits there, plain text."""
    apart = None if plain is None else divergence(conversation, outcome.token_ids, plain.token_ids)
    if apart is None:
        return None
    return {"token": apart.place - 1, "margin": _rounded(apart.logits), "text": plain.text[:80]}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _threads() -> int:
    import torch

    return torch.get_num_threads()
