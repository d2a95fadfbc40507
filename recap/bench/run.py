"""Decoders over a suite, from the same state, prefill apart from decoding: what `python -m recap bench` measures.

Each sample is one conversation. At every turn all decoders answer from the same state, our own on forks
of one KV cache; the conversation continues with plain decoding's answer (or that of the last decoder), so
all of them see the same history. The order of decoders rotates with the sample, the turn and the repeat.
Memories that persist live on over the samples, per decoder; every repeat starts with empty ones. Before
the clock runs, every decoder has answered once. Recording is off; the clock is read after the device's
results are on the host.
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
from .machine import machine
from .record import Record
from .runners import EngineRunner, Outcome, Runner
from .samples import Sample

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
) -> dict[str, Any]:
    """Measure the runners -> one JSON-ready object (figures per decoder, every answer).

    record: where answers go as they come, and where an interrupted run continues. A sample that fails is
    left out for all decoders, and named; so is an answer that another library's decoder fails at.
    """
    record = record or Record(None)
    _warm_up(target, samples, runners)
    work = [(repeat, at) for repeat in range(repeats) for at in range(len(samples))]
    bar = tqdm(
        work[record.done :],
        total=len(work),
        initial=record.done,
        unit="sample",
        file=sys.stderr,
        disable=not progress,
        dynamic_ncols=True,
    )
    for repeat, at in bar:
        bar.set_postfix_str(samples[at].id)
        if at == 0 and repeat:
            for runner in runners.values():
                runner.reset()
        answers = _sample(target, samples[at], runners, at + repeat, max_new_tokens)
        record.add([answer | {"repeat": repeat} for answer in answers])
    record.finish()
    settings = {"max_new_tokens": max_new_tokens, "repeats": repeats}
    return machine(target) | settings | _report(record, list(runners))


def _report(record: Record, names: Sequence[str]) -> dict[str, Any]:
    failed = [answer for answer in record.answers if "error" in answer]
    answers = [answer for answer in record.answers if "error" not in answer]
    hidden = ("token_ids", "steps", "sources")
    return {
        "samples_run": len({answer["sample"] for answer in answers}),
        "failed": failed,
        "resumed_at": record.resumed_at,
        "decoders": figures(answers, names),
        "groups": groups(answers, names),
        "peers": record.peers or {},
        "samples": [
            {k: v for k, v in answer.items() if k not in hidden}
            | {"tokens_per_pass": _tokens_per_pass(answer)}
            for answer in answers
        ],
    }


def _tokens_per_pass(answer: dict[str, Any]) -> float:
    decoded = answer["tokens"] - answer["prefill_tokens"]
    return round(decoded / answer["passes"], 3) if answer["passes"] else 0.0


def _warm_up(target: Target, samples: Sequence[Sample], runners: dict[str, Runner]) -> None:
    """Let every decoder answer once, then forget it: kernels, allocations, imports."""
    for conversation in first_questions(target, samples, 1, runners):
        for runner in runners.values():
            if runner.refuses(conversation) is None:
                runner.answer(conversation, WARM_UP)
    for runner in runners.values():
        runner.reset()


def first_questions(
    target: Target, samples: Sequence[Sample], count: int, runners: dict[str, Runner]
) -> list[Conversation]:
    """The first `count` samples that can be asked, each at its first question, prefilled."""
    conversations: list[Conversation] = []
    for sample in samples:
        if len(conversations) == count:
            break
        try:
            conversation = Conversation(target)
            conversation.ask(sample.turns[0], sample.open_images())
            conversation.prefill(seed=True, top_k=_top_k(runners))
        except (ValueError, RuntimeError):
            continue  # the measurement itself names it
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
    """All answers of one conversation, or one entry that says why there are none."""
    answers: list[dict[str, Any]] = []
    about = {"sample": sample.id, "kind": sample.kind, "turns": len(sample.turns)}
    try:
        images = sample.open_images()
        conversation = Conversation(target)
        for number, question in enumerate(sample.turns):
            conversation.ask(question, images if number == 0 else ())
            outcomes, errors = _turn(conversation, runners, rotate + number, max_new_tokens)
            for name, error in errors.items():
                answers.append(about | {"turn": number, "decoder": name, "error": error})
            plain = outcomes.get(PLAIN)
            for name, outcome in outcomes.items():
                answers.append(
                    about
                    | {"turn": number, "decoder": name, "prompt_tokens": conversation.prompt_tokens}
                    | _answer(outcome)
                    | _difference(conversation, outcome, plain)
                )
            conversation.adopt(_continued(outcomes))
    except (ValueError, RuntimeError) as error:
        return [about | {"error": str(error)}]
    return answers


def _turn(
    conversation: Conversation, runners: dict[str, Runner], rotate: int, max_new_tokens: int
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Every decoder's answer to the open question, and the errors of other libraries' decoders."""
    names = list(runners)
    first = rotate % len(names)
    conversation.prefill(seed=True, top_k=_top_k(runners))
    outcomes: dict[str, Outcome] = {}
    errors: dict[str, str] = {}
    for name in names[first:] + names[:first]:
        runner = runners[name]
        refusal = runner.refuses(conversation)
        if refusal is not None:
            errors[name] = refusal
            continue
        try:
            outcomes[name] = runner.answer(conversation, max_new_tokens)
        except Exception as error:
            if isinstance(runner, EngineRunner):
                raise  # ours: the sample has failed
            errors[name] = f"{type(error).__name__}: {error}"
    return {name: outcomes[name] for name in names if name in outcomes}, errors


def _continued(outcomes: dict[str, Outcome]) -> Conversation:
    """The conversation with the answer that the next question follows."""
    forks = {name: o.fork for name, o in outcomes.items() if o.fork is not None}
    return forks.get(PLAIN) or list(forks.values())[-1]


def _answer(outcome: Outcome) -> dict[str, Any]:
    return {
        "tokens": len(outcome.token_ids),
        "prefill_tokens": outcome.prefill_tokens,
        "passes": len(outcome.passes),
        "decode_s": round(outcome.decode_s, 6),
        "prefill_s": round(outcome.prefill_s, 6),
        "token_ids": list(outcome.token_ids),
        "steps": [list(step) for step in outcome.passes],
        "sources": {k: [v.lookups, v.hits, v.accepted] for k, v in outcome.sources.items()},
    }


def _difference(
    conversation: Conversation, outcome: Outcome, plain: Outcome | None
) -> dict[str, Any]:
    """Whether an answer equals the plain one, and where not: token from 0, margin of its logits, plain text."""
    if plain is None:
        return {"identical": None, "first_difference": None}
    found = divergence(conversation, outcome.token_ids, plain.token_ids)
    if found is None:
        return {"identical": True, "first_difference": None}
    margin = None if found.logits is None else round(found.logits, 5)
    at = {"token": found.place - 1, "margin": margin, "text": plain.text[:80]}
    return {"identical": False, "first_difference": at}
