"""`python -m recap bench`: decoders over a suite, from the same state, prefill apart from decoding.

Each sample is one conversation. At every turn all decoders answer from the same state, our own on forks
of one KV cache; the conversation goes on with plain decoding's answer (or the last named decoder's), so
all of them see the same history. The order of decoders rotates with the sample, the turn and the repeat.
Memories that persist do so over the samples, per decoder; every repeat starts with empty ones. Before the
clock runs every decoder has answered once. Recording is off; the clock is read after the device's results
are on the host.

Answers are written down sample by sample (`record`), so that an interrupted run goes on with `--resume`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..chat import Conversation
from ..compare import first_difference
from ..drafters import DECODERS
from ..targets.base import Target
from .ablations import ablated, comparison, comparison_table
from .figures import PLAIN, figures, group_table, groups, table
from .record import Record
from .runners import EngineRunner, Outcome, Runner
from .suites import Sample, load_suite

WARM_UP = 8
"""Tokens that every decoder makes before the clock runs."""

TUNED_ON = 2
"""Samples that a peer's settings are tried on."""


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
    hidden = ("token_ids", "steps", "levels")
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
    return max(2, *(runner.top_k for runner in runners.values()))  # 2: for a difference's margin


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
        "levels": {k: [v.lookups, v.hits, v.accepted] for k, v in outcome.levels.items()},
    }


def _difference(
    conversation: Conversation, outcome: Outcome, plain: Outcome | None
) -> dict[str, Any] | None:
    """Where an answer parts from the plain one: token, margin of the plain choice there, plain text."""
    if plain is None:
        return None
    place = first_difference(outcome.token_ids, plain.token_ids)
    if place is None:
        return None
    return {
        "token": place,
        "margin": margin(conversation, plain.token_ids, place),
        "text": plain.text[:80],
    }


def margin(conversation: Conversation, answer: Sequence[int], place: int) -> float | None:
    """Logit of the best token minus that of the second best before answer[place], in one packed pass.

    None behind the answer's end. The conversation, prefilled, does not move.
    """
    if place >= len(answer):
        return None
    twin = conversation.fork()
    if place == 0:
        done = twin.prefill(seed=True, top_k=2)
        best, second = done.predictions.top_probs[-1][:2]
    else:
        import numpy as np

        chain = list(answer[:place])
        mask = np.tril(np.ones((place, place), dtype=bool))
        made = twin.target.verify(twin.state, chain, list(range(place)), mask, top_k=2)
        best, second = made.top_probs[-1]
    return round(math.log(float(best) / max(float(second), 1e-30)), 5)


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def add_command(commands: Any) -> None:
    """Register `bench` with the command line."""
    from ..cli import add_model_options
    from .formats import FORMATS

    bench = commands.add_parser(
        "bench",
        help="measure decoders over a suite",
        description="Measure decoders over a suite: figures as a table, --out for JSON, --report for a page.",
    )
    bench.add_argument(
        "--suite",
        default="demo",
        help='"demo", "text", a JSONL file or its folder (MMSpec as published), or NAME:FILE for '
        + ", ".join(FORMATS),
    )
    bench.add_argument(
        "--decoders",
        default=",".join(DECODERS),
        help='names with commas between; "token_recycling:16" gives one a budget of its own, '
        '"recap:cold" empties its memory before every answer',
    )
    bench.add_argument(
        "--peers", action="store_true", help="also other libraries' decoders, where installed"
    )
    bench.add_argument("--max-new-tokens", type=int, default=120, metavar="N")
    bench.add_argument("--limit", type=int, metavar="N", help="only the first N samples")
    bench.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="whole runs; times are medians of them"
    )
    bench.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the figures here (JSON), answers beside it (NDJSON)",
    )
    bench.add_argument("--report", type=Path, metavar="FILE", help="write a page with plots (HTML)")
    bench.add_argument(
        "--resume", action="store_true", help="go on where the run of this --out was interrupted"
    )
    bench.add_argument(
        "--ablations",
        action="store_true",
        help="Recap with one thing changed at a time, beside plain decoding (instead of --decoders)",
    )
    bench.add_argument(
        "--image-swap",
        action="store_true",
        help="no speed: where another image would change the next token, by how much of a tree was accepted",
    )
    add_model_options(bench)
    bench.set_defaults(run=run_bench)


def run_bench(options: argparse.Namespace) -> int:
    """`python -m recap bench`."""
    from ..cli import load_from

    for option in ("max_new_tokens", "limit", "repeats"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option.replace('_', '-')} must be at least 1.")
    if options.resume and options.out is None:
        raise ValueError("--resume needs the --out of the run that was interrupted.")
    samples = load_suite(options.suite, options.limit)
    names = [name.strip() for name in options.decoders.split(",") if name.strip()]
    if not names:
        raise ValueError(f"--decoders names none: choose from {', '.join(DECODERS)}.")
    for path in (options.out, options.report):
        if path is not None:
            _try_out(path)  # now, not after an hour of measuring
    if options.image_swap:
        from .image_swap import run_image_swap

        return run_image_swap(options, samples)
    target = load_from(options)
    runners, peers = _runners(options, target, samples, names)
    record = None
    if options.out is not None:
        asked = {
            k: v for k, v in vars(options).items() if k not in ("run", "out", "report", "resume")
        }
        asked |= {"samples": len(samples), "runners": list(runners)}
        record = Record(options.out.with_suffix(".ndjson"), settings=asked, resume=options.resume)
        peers = record.about.setdefault("peers", peers)
    try:
        result = run_suite(
            target,
            samples,
            runners,
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
            record=record,
            progress=sys.stderr.isatty(),
            peers=peers,
        )
    except KeyboardInterrupt:
        if record is not None and record.done:
            print(f"\n{record.done} samples are kept: go on with --resume.", file=sys.stderr)
        raise
    if options.ablations:
        result["ablations"] = comparison(result["samples"])
    _write(result, options)
    return 0 if result["samples_run"] else 1


def _runners(
    options: argparse.Namespace, target: Target, samples: Sequence[Sample], names: Sequence[str]
) -> tuple[dict[str, Runner], dict[str, Any]]:
    """What is to be measured, and what is to be said of other libraries."""
    from ..cli import drafter_from

    runners: dict[str, Runner] = {}
    if options.ablations:
        runners |= ablated(options, target)
        names = [PLAIN]
    ours: list[str] = []
    wanted: list[str] = []
    from .peers import PEERS, tune

    for name in names:
        (wanted if name in PEERS else ours).append(name)
    if options.peers:
        wanted = list(PEERS)
    for name in ours:
        cold = name.endswith(":cold")
        drafter = drafter_from(name.removesuffix(":cold"), options, target)
        runners[name] = EngineRunner(drafter, cold=cold)
    if not runners:
        raise ValueError("--decoders needs one of ours beside other libraries' decoders.")
    peers: dict[str, Any] = {}
    tried = opened(target, samples, TUNED_ON, runners) if wanted else []
    for name in wanted:
        runner, peers[name] = tune(target, name, tried)
        if runner is not None:
            runners[name] = runner
    return runners, peers


def _write(result: dict[str, Any], options: argparse.Namespace) -> None:
    """Print the tables, write the files."""
    print(f"{result['model']}, {result['device']}, {result['dtype']}, {result['threads']} threads")
    print(f"{result['samples_run']} samples, at most {options.max_new_tokens} tokens an answer\n")
    print(table(result))
    if result["groups"] and not options.ablations:
        print("\nTokens a pass, and speed against plain decoding:\n")
        print(group_table(result))
    if options.ablations:
        print(
            f"\nAgainst recap, samples drawn in pairs:\n\n{comparison_table(result['ablations'])}"
        )
    for name, about in result["peers"].items():
        setting = f", {about['setting']}" if about.get("setting") else ""
        print(f"peer {name}: {about['status']}{setting}")
    for failure in result["failed"]:
        by = f" by {failure['decoder']}" if "decoder" in failure else ""
        print(f"failed: {failure['sample']}{by}: {failure['error']}")
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if options.report is not None:
        from .report import page

        options.report.write_text(page(result), encoding="utf-8")


def _try_out(path: Path) -> None:
    """Open a file for writing, what it holds untouched. Raises ValueError with one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise ValueError(f"The report cannot be written to {path}: {error.strerror}.") from None
