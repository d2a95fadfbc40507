"""`python -m recap bench`: its options, and a run for every model and suite."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..drafters import DECODERS
from ..options import add_model_options, split_names
from .formats import FORMATS
from .record import answers_file, interrupted


def add_command(commands: Any) -> None:
    """Register `bench` with the command line."""
    bench = commands.add_parser(
        "bench",
        help="measure decoders over a suite",
        description="Measure decoders over a suite and print a table. All decoders answer from the same "
        "state; docs/measurement.md says what is timed.",
    )
    bench.add_argument(
        "--suite",
        default="demo",
        help='"demo" (default), "text", a JSONL file or its folder, or FORMAT:FILE with one of the formats '
        f"{', '.join(FORMATS)}; several suites or models, separated by commas, make a run each",
    )
    bench.add_argument(
        "--decoders",
        default=",".join(DECODERS),
        metavar="NAMES",
        help='separated by commas (default: %(default)s); "token_recycling:16" sets a budget, '
        '"recap:cold" empties the memory before every answer',
    )
    bench.add_argument(
        "--peers", action="store_true", help="measure other libraries' decoders too, if installed"
    )
    bench.add_argument(
        "--max-new-tokens", type=int, default=120, metavar="N", help="longest answer (default: 120)"
    )
    bench.add_argument("--limit", type=int, metavar="N", help="only the first N samples")
    bench.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="measure N times and take median times"
    )
    bench.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write the figures here (JSON), and every answer next to it (NDJSON)",
    )
    bench.add_argument("--report", type=Path, metavar="FILE", help="write a report (HTML)")
    bench.add_argument(
        "--resume",
        action="store_true",
        help="continue the interrupted run of this --out; memories start empty there",
    )
    bench.add_argument(
        "--ablations",
        action="store_true",
        help="measure Recap with one part changed at a time (instead of --decoders)",
    )
    bench.add_argument(
        "--image-swap",
        action="store_true",
        help="measure no speed, but where another image would change the next token",
    )
    add_model_options(bench)
    bench.set_defaults(run=run_bench)


def run_bench(options: argparse.Namespace) -> int:
    """`python -m recap bench`: every model on every suite, each a run with its own files."""
    for option in ("max_new_tokens", "limit", "repeats"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option.replace('_', '-')} must be at least 1.")
    if options.resume and options.out is None:
        raise ValueError("--resume needs the --out of the run that was interrupted.")
    from .experiment import measure  # torch and transformers take seconds to import: not for --help

    runs = [(m, s) for m in split_names(options.model) for s in split_names(options.suite)]
    if len(runs) < 2:
        return measure(options)
    worst = 0
    for model, suite in runs:
        one = argparse.Namespace(**vars(options))
        one.model, one.suite = model, suite
        one.out = _with_names(options.out, model, suite)
        one.report = _with_names(options.report, model, suite)
        print(f"\n## {model}, {suite}\n", flush=True)
        if one.resume and not interrupted(answers_file(one.out)):
            if one.out.is_file():
                print(f"complete: {one.out}")
                continue
            one.resume = False  # it had not begun
        worst = max(worst, measure(one))
    return worst


def _with_names(path: Path | None, model: str, suite: str) -> Path | None:
    """A file's name with the model and the suite in it.

    >>> _with_names(Path("out/r.json"), "models/smollm2", "chartqa:data/test.json").as_posix()
    'out/r-smollm2-chartqa-test.json'
    """
    if path is None:
        return None
    name, colon, file = suite.partition(":")
    parts = [Path(model).name, *([name] if colon else []), Path(file if colon else name).stem]
    return path.with_stem("-".join([path.stem, *parts]))
