"""What a packed pass costs on this machine by its packed tokens: the curve that sizes the trees.

    python -m recap.bench.pass_cost [--model demo] [--device cuda] [--dtype bfloat16] [--threads 1]
    python -m recap.bench.pass_cost --shape CONFIG.json --device cuda --static

The measurement that decoding uses (`recap.pass_timing`), at one length of the cache, made again and not
stored. On a GPU the curve is nearly flat until the GPU is busy computing; on a CPU it is not, and small
trees win. --shape takes a published model's config.json and random weights. --static times passes in fixed
shapes, on CUDA as captured graphs (`recap.targets.captured`).

The weight-streaming limit is the time in which the weights that every pass reads come out of memory: their
bytes divided by the memory's bandwidth, which is measured (or given by --bandwidth).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..options import add_model_options, check_writable, target_from, write_json
from ..pass_timing import CONTEXT, measure_pass_cost
from ..pass_timing import SIZES as SIZING_SIZES
from ..targets.transformers_target import TransformersTarget
from .machine import in_words, machine
from .shapes import random_target_from, weight_bytes
from .tables import Table, decimal

SIZES = (*SIZING_SIZES, 96, 128)
"""Packed tokens of the timed passes: those that size trees, and beyond."""


def bandwidth(device: torch.device, *, megabytes: int = 0, repeats: int = 7) -> float:
    """Bytes per second of the device's memory when a large array is read, best of several.

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


def measure(
    target: TransformersTarget,
    *,
    sizes: Sequence[int] = SIZES,
    context: int = CONTEXT,
    bytes_per_s: float | None = None,
    goal: float = 1.0,
) -> dict[str, Any]:
    """The curve, JSON-ready: at every size the share of the weight-streaming limit, and the tokens per
    pass at which decoding is `goal` times as fast as plain decoding (drafting included)."""
    cost = measure_pass_cost(target, sizes=sizes, context=context, far=0)
    streamed = weight_bytes(target)
    speed = bytes_per_s or bandwidth(target.model.device)
    limit = streamed / speed
    one = cost.points[0][1]
    return machine(target) | {
        "passes": target.passes,
        "context": context,
        "goal": goal,
        "weight_bytes": streamed,
        "bandwidth_gb_s": round(speed / 1e9, 2),
        "limit_ms": round(1e3 * limit, 4),
        "points": [
            {
                "packed_tokens": count,
                "ms": round(1e3 * seconds, 4),
                "against_one": round(seconds / one, 3),
                "share_of_limit": round(limit / seconds, 4),
                "tokens_for_goal": round(goal * cost.seconds(count) / cost.seconds(1), 3),
            }
            for count, seconds in cost.points
        ],
    }


def table(report: dict[str, Any]) -> Table:
    """The curve, a row per size."""
    head = (
        "packed tokens",
        "ms per pass",
        "against one",
        f"tokens per pass for {report['goal']:g}x",
    )
    rows = [
        (
            str(p["packed_tokens"]),
            *(decimal(p[key]) for key in ("ms", "against_one", "tokens_for_goal")),
            f"{p['share_of_limit']:.0%}",
        )
        for p in report["points"]
    ]
    return Table((*head, "of the limit"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the curve -> exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="A goal is out of reach where trees of that size cannot give its tokens per pass.",
    )
    add_model_options(parser)
    parser.add_argument(
        "--shape", type=Path, metavar="CONFIG", help="a config.json instead of --model"
    )
    parser.add_argument(
        "--context", type=int, default=CONTEXT, metavar="N", help="tokens in the cache"
    )
    parser.add_argument(
        "--goal", type=float, default=1.0, metavar="X", help="wanted speed against plain decoding"
    )
    parser.add_argument("--bandwidth", type=float, metavar="GB/S", help="instead of measuring it")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures here (JSON)")
    options = parser.parse_args(argv)
    try:
        if options.context < 1 or options.goal <= 0 or (options.bandwidth or 1.0) <= 0:
            raise ValueError("--context, --goal and --bandwidth must be above 0.")
        check_writable(options.out)
        target = random_target_from(options) if options.shape else target_from(options)
        speed = options.bandwidth and 1e9 * options.bandwidth
        report = measure(target, context=options.context, bytes_per_s=speed, goal=options.goal)
    except ValueError as error:
        print(f"recap: {error}", file=sys.stderr)
        return 2
    print(in_words(report))
    print(
        f"{report['weight_bytes'] / 1e9:.3f} GB of weights per pass at {report['bandwidth_gb_s']:.1f} GB/s: "
        f"at least {report['limit_ms']:.2f} ms; {report['context']} tokens in the cache\n"
    )
    print(table(report).markdown())
    write_json(options.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
