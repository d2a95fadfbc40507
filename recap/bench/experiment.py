"""One run of `python -m recap bench`: its decoders on one model and one suite, its tables and files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ..drafters import DECODERS
from ..options import check_writable, drafter_from, split_names, target_from, write_json
from ..targets.base import Target
from . import peers
from .ablations import ablated, comparison, comparison_table
from .figures import PLAIN, group_table, table
from .image_swap import run_image_swap
from .machine import in_words
from .record import Record, answers_file
from .report import page
from .run import first_questions, run_suite
from .runners import EngineRunner, Runner
from .samples import Sample
from .suites import load_suite

TUNED_ON = 2
"""Samples that another library's settings are tried on."""


def measure(options: argparse.Namespace) -> int:
    """One model on one suite -> exit status, 1 if no sample could be measured."""
    samples = load_suite(options.suite, options.limit)
    names = _decoders(options)
    check_writable(options.out)  # now, not after an hour of measuring
    check_writable(options.report)
    if options.image_swap:
        return run_image_swap(options, samples)
    target = target_from(options)
    record = _record(options, len(samples))
    runners = _ours(options, target, [name for name in names if name not in peers.PEERS])
    others = [name for name in names if name in peers.PEERS]
    runners |= _others(target, samples, runners, others, record)
    try:
        result = run_suite(
            target,
            samples,
            runners,
            max_new_tokens=options.max_new_tokens,
            repeats=options.repeats,
            record=record,
            progress=sys.stderr.isatty(),
        )
    except KeyboardInterrupt:
        if record.path is not None and record.done:
            print(f"\n{record.done} samples are kept: continue with --resume.", file=sys.stderr)
        raise
    if options.ablations:
        result["ablations"] = comparison(result["samples"])
    _print(result)
    write_json(options.out, result)
    if options.report is not None:
        options.report.write_text(page(result, remarks(result)), encoding="utf-8")
    return 0 if result["samples_run"] else 1


def _decoders(options: argparse.Namespace) -> list[str]:
    """Names of the decoders to measure. Raises ValueError for one that does not exist."""
    names = split_names(options.decoders)
    known = (*DECODERS, *peers.PEERS)
    if not names:
        raise ValueError(f"--decoders names none: choose from {', '.join(DECODERS)}.")
    for name in names:
        if name.partition(":")[0] not in known:
            raise ValueError(f"Unknown decoder “{name}”: use {', '.join(known)}.")
    if options.ablations:
        names = [PLAIN]
    if options.peers:
        names = [*(name for name in names if name not in peers.PEERS), *peers.PEERS]
    if all(name in peers.PEERS for name in names):
        raise ValueError("--decoders needs one of ours to compare other libraries' decoders with.")
    return names


def _record(options: argparse.Namespace, samples: int) -> Record:
    if options.out is None:
        return Record(None)
    files = ("run", "out", "report", "resume")
    settings = {k: v for k, v in vars(options).items() if k not in files}
    settings["samples"] = samples
    return Record(answers_file(options.out), settings=settings, resume=options.resume)


def _ours(options: argparse.Namespace, target: Target, names: Sequence[str]) -> dict[str, Runner]:
    """Runners of our own decoders."""
    runners = ablated(options, target) if options.ablations else {}
    for name in names:
        drafter = drafter_from(name.removesuffix(":cold"), options, target)
        runners[name] = EngineRunner(drafter, cold=name.endswith(":cold"))
    return runners


def _others(
    target: Target,
    samples: Sequence[Sample],
    ours: dict[str, Runner],
    names: Sequence[str],
    record: Record,
) -> dict[str, Runner]:
    """Runners of other libraries' decoders, tuned now or as the interrupted run had tuned them."""
    questions = []
    if names and record.peers is None:
        questions = first_questions(target, samples, TUNED_ON, ours)
    known, record.peers, made = record.peers, {}, {}
    for name in names:
        if known is not None:
            runner, record.peers[name] = peers.again(target, name, known[name]), known[name]
        else:
            runner, record.peers[name] = peers.tune(target, name, questions)
        if runner is not None:
            made[name] = runner
    return made


def _print(result: dict[str, Any]) -> None:
    """The tables, and what has to be said about them."""
    print(in_words(result))
    print(
        f"n = {result['samples_run']} samples, {result['repeats']} repeat(s), "
        f"at most {result['max_new_tokens']} tokens per answer\n"
    )
    print(table(result).markdown())
    if "ablations" in result:
        print("\nAgainst recap, samples drawn in pairs:\n")
        print(comparison_table(result["ablations"]).markdown())
    elif result["groups"]:
        print("\nTokens per pass, and speed against plain decoding:\n")
        print(group_table(result).markdown())
    for line in remarks(result):
        print(line)


def remarks(result: dict[str, Any]) -> list[str]:
    """What a reader of the tables has to know: other libraries, failures, interruptions."""
    lines = [f"peer {name}: {peers.in_words(about)}" for name, about in result["peers"].items()]
    for failure in result["failed"]:
        by = f" by {failure['decoder']}" if "decoder" in failure else ""
        lines.append(f"failed: {failure['sample']}{by}: {failure['error']}")
    lines += [
        f"resumed after {done} samples: memories started empty there"
        for done in result["resumed_at"]
    ]
    return lines
