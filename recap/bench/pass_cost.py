"""What a packed pass costs on this machine, by rows: the curve that sizes the trees.

    python -m recap.bench.pass_cost [--model demo] [--device cuda] [--dtype bfloat16] [--threads 1]
    python -m recap.bench.pass_cost --shape CONFIG.json --device cuda --dtype bfloat16

The measurement that decoding uses (`recap.pass_timing`), at one length of the cache, made anew and not remembered. On a GPU the
curve is nearly flat up to the compute knee; on a CPU it is not, and small trees win. --shape takes a
published model's config.json and random weights; --scale divides its sizes, to try the command on a small
machine. On CUDA the same passes are also timed in fixed shapes, as captured graphs (`targets.static`).

The weight-streaming limit is the time in which the weights that every pass reads come out of memory:
their bytes by the memory's bandwidth, which is measured (or given by --bandwidth). A share of 100 % would
be a pass that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..options import add_model_options, load_from, try_out
from ..pass_timing import CONTEXT, measure_pass_cost
from ..pass_timing import ROWS as SIZING_ROWS
from ..targets.captured import StaticPass
from ..targets.transformers_target import TransformersTarget
from .shapes import random_target, read_config, weight_bytes

ROWS = (*SIZING_ROWS, 96, 128)
"""Row counts that are timed: those that size trees, and beyond."""


def bandwidth(device: torch.device, *, megabytes: int = 0, repeats: int = 7) -> float:
    """Bytes a second that the device's memory gives when a large array is read, best of several.

    megabytes: the array's size; by default 2,000 on a GPU and 200 elsewhere (caches are smaller).
    """
    megabytes = megabytes or (2000 if device.type == "cuda" else 200)
    array = torch.ones(megabytes * 250_000, dtype=torch.float32, device=device)
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        array.sum().item()  # the value comes to the host: the device has finished
        best = min(best, time.perf_counter() - begun)
    return array.nbytes / best


@contextmanager
def passes(target: TransformersTarget, static: StaticPass | None) -> Iterator[None]:
    """Let the target run its packed passes so for a while: in fixed shapes, or call by call (None)."""
    usual = target._static
    target._static = static
    try:
        yield
    finally:
        target._static = usual


def measure(
    target: TransformersTarget,
    *,
    rows: Sequence[int] = ROWS,
    context: int = CONTEXT,
    bytes_per_s: float | None = None,
    fixed: bool = False,
    goal: float = 1.0,
) -> dict[str, Any]:
    """The curve, JSON-ready: at every row count the share of the weight-streaming limit, and the tokens a
    pass that decoding `goal` times as fast as plain decoding takes there (drafting included)."""
    with passes(target, None):
        cost = measure_pass_cost(target, rows=rows, context=context, far=0)
    graphs: dict[int, float] = {}
    if fixed:
        with passes(target, StaticPass(target)):
            graphs = dict(measure_pass_cost(target, rows=rows, context=context, far=0).points)
    streamed = weight_bytes(target)
    speed = bytes_per_s or bandwidth(target.model.device)
    limit = streamed / speed
    one = cost.points[0][1]
    return {
        "model": target.name,
        "device": _device(target),
        "dtype": target.dtype,
        "threads": torch.get_num_threads(),
        "context": context,
        "goal": goal,
        "weight_bytes": streamed,
        "bandwidth_gb_s": round(speed / 1e9, 2),
        "limit_ms": round(1e3 * limit, 4),
        "fixed": "captured graph" if target.device == "cuda" else "fixed shapes",
        "points": [
            {
                "rows": count,
                "ms": round(1e3 * seconds, 4),
                "against_one_row": round(seconds / one, 3),
                "share_of_limit": round(limit / seconds, 4),
                "tokens_for_goal": round(goal * cost.seconds(count) / cost.seconds(1), 3),
            }
            | (
                {
                    "fixed_ms": round(1e3 * graphs[count], 4),
                    "fixed_share_of_limit": round(limit / graphs[count], 4),
                }
                if count in graphs
                else {}
            )
            for count, seconds in cost.points
        ],
    }


def _device(target: TransformersTarget) -> str:
    if target.device == "cuda":
        return torch.cuda.get_device_name(target.model.device)
    return target.device


def table(report: dict[str, Any]) -> str:
    """The curve as a markdown table."""
    more = "fixed_ms" in report["points"][0]
    head = f"| rows | ms a pass | against one row | tokens a pass for {report['goal']:g}x | of the limit |"
    lines = [head + (f" ms, {report['fixed']} | of the limit |" if more else "")]
    lines.append("|---" * (7 if more else 5) + "|")
    for p in report["points"]:
        line = f"| {p['rows']} | {p['ms']:.2f} | {p['against_one_row']:.2f} | {p['tokens_for_goal']:.2f} | {p['share_of_limit']:.0%} |"
        if more:
            line += f" {p['fixed_ms']:.2f} | {p['fixed_share_of_limit']:.0%} |"
        lines.append(line)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the curve -> exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Where a tree of so many rows cannot give the tokens a pass for the goal, it is out of reach.",
    )
    add_model_options(parser)
    parser.add_argument(
        "--shape", type=Path, metavar="CONFIG", help="a config.json instead of --model"
    )
    parser.add_argument("--scale", type=int, default=1, help="divide the shape's sizes by this")
    parser.add_argument("--context", type=int, default=CONTEXT, help="tokens in the cache")
    parser.add_argument(
        "--goal", type=float, default=1.0, help="speed against plain decoding that is to be reached"
    )
    parser.add_argument("--bandwidth", type=float, metavar="GB/S", help="instead of measuring it")
    parser.add_argument(
        "--fixed", action="store_true", help="also in fixed shapes (always on CUDA)"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here (JSON)")
    options = parser.parse_args(argv)
    try:
        if options.context < 1 or options.goal <= 0 or (options.bandwidth or 1.0) <= 0:
            raise ValueError("--context, --goal and --bandwidth must be above 0.")
        if options.out is not None:
            try_out(options.out)
        target = _shape(options) if options.shape else load_from(options)
        speed = options.bandwidth and 1e9 * options.bandwidth
        fixed = options.fixed or options.static or target.device == "cuda"
        report = measure(
            target, context=options.context, bytes_per_s=speed, fixed=fixed, goal=options.goal
        )
    except ValueError as error:
        print(f"recap: {error}", file=sys.stderr)
        return 2
    print(
        f"{report['model']}, {report['device']}, {report['dtype']}, {report['context']} tokens in the cache"
    )
    print(
        f"{report['weight_bytes'] / 1e9:.3f} GB of weights a pass at {report['bandwidth_gb_s']:.1f} GB/s: "
        f"at least {report['limit_ms']:.2f} ms\n"
    )
    print(table(report))
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


def _shape(options: argparse.Namespace) -> TransformersTarget:
    """The random target that the options describe."""
    from ..targets.loader import DTYPES

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    cuda = torch.cuda.is_available()
    device = options.device or ("cuda" if cuda else "cpu")
    if device.partition(":")[0] not in ("cpu", "cuda") or (device != "cpu" and not cuda):
        raise ValueError(f"There is no device {device} here: cpu and cuda are possible.")
    dtype = options.dtype or ("bfloat16" if device != "cpu" else "float32")
    if dtype not in DTYPES:
        raise ValueError(f'There is no dtype "{dtype}": {", ".join(DTYPES)} are.')
    config = read_config(options.shape, options.scale)
    name = f"{config.model_type} of {options.shape.parent.name or options.shape.name}"
    name += f" / {options.scale}, random weights" if options.scale > 1 else ", random weights"
    return random_target(
        config, device=device, dtype=str(DTYPES[dtype]).removeprefix("torch."), name=name
    )


if __name__ == "__main__":
    sys.exit(main())
