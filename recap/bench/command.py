"""`python -m recap bench`: what it takes, what it prints and writes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..drafters import DECODERS
from ..options import try_out
from ..targets.base import Target
from .ablations import ablated, comparison, comparison_table
from .figures import PLAIN, group_table, in_words, table
from .record import Record
from .run import opened, run_suite
from .runners import EngineRunner, Runner
from .suites import Sample, load_suite

TUNED_ON = 2
"""Samples that a peer's settings are tried on."""


def add_command(commands: Any) -> None:
    """Register `bench` with the command line."""
    from ..options import add_model_options
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
        + ", ".join(FORMATS)
        + "; several with commas between (several models, too) make a run each",
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
    """`python -m recap bench`: every model on every suite, each a run with files of its own."""
    models, suites = _names(options.model), _names(options.suite)
    runs = [(model, suite) for model in models for suite in suites]
    if len(runs) < 2:
        return _bench(options)
    worst = 0
    for model, suite in runs:
        one = argparse.Namespace(**vars(options))
        one.model, one.suite = model, suite
        one.out, one.report = (_apart(path, model, suite) for path in (options.out, options.report))
        print(f"\n## {model}, {suite}\n", flush=True)
        if options.resume and one.out is not None and not Record.interrupted(_rows(one.out)):
            if one.out.is_file() and one.out.stat().st_size:
                print(f"complete: {one.out}")
                continue
            one.resume = False  # it had not begun
        worst = max(worst, _bench(one))
    return worst


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _apart(path: Path | None, model: str, suite: str) -> Path | None:
    """A file's name with the model and the suite in it.

    >>> _apart(Path("out/r.json"), "models/smollm2", "chartqa:data/test.json").as_posix()
    'out/r-smollm2-chartqa-test.json'
    """
    if path is None:
        return None
    name, colon, file = suite.partition(":")
    parts = [Path(model).name, *([name] if colon else []), Path(file if colon else name).stem]
    return path.with_stem("-".join([path.stem, *parts]))


def _rows(out: Path) -> Path:
    """Where a run's answers go."""
    return out.with_suffix(".ndjson")


def _bench(options: argparse.Namespace) -> int:
    """One model on one suite."""
    from ..options import load_from

    for option in ("max_new_tokens", "limit", "repeats"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option.replace('_', '-')} must be at least 1.")
    if options.resume and options.out is None:
        raise ValueError("--resume needs the --out of the run that was interrupted.")
    samples = load_suite(options.suite, options.limit)
    names = _names(options.decoders)
    if not names:
        raise ValueError(f"--decoders names none: choose from {', '.join(DECODERS)}.")
    from .peers import PEERS

    unknown = [n for n in names if n.partition(":")[0] not in (*DECODERS, *PEERS)]
    if unknown:
        known = ", ".join((*DECODERS, *PEERS))
        raise ValueError(f'There is no decoder "{unknown[0]}". Choose from: {known}.')
    for path in (options.out, options.report):
        if path is not None:
            try_out(path)  # now, not after an hour of measuring
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
        record = Record(_rows(options.out), settings=asked, resume=options.resume)
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
    from ..options import drafter_from

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
        setting = f" with {in_words(about['setting'])}" if about.get("setting") else ""
        print(f"peer {name}: {about['status']}{setting}")
    for failure in result["failed"]:
        by = f" by {failure['decoder']}" if "decoder" in failure else ""
        print(f"failed: {failure['sample']}{by}: {failure['error']}")
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if options.report is not None:
        from .report import page

        options.report.write_text(page(result), encoding="utf-8")
