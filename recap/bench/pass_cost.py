"""What a packed pass costs on this machine, by rows: the curve that sizes the trees.

    python -m recap.bench.pass_cost [--model demo] [--device cuda] [--dtype bfloat16] [--threads 1]

The same measurement that decoding uses (`recap.calibration`), made anew and not remembered. On a GPU the
curve is nearly flat up to the compute knee; on a CPU it is not, and small trees win.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..calibration import CONTEXT, measure_pass_cost
from ..cli import add_model_options, load_from


def main(argv: Sequence[str] | None = None) -> int:
    """Print the curve -> exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_options(parser)
    options = parser.parse_args(argv)
    try:
        target = load_from(options)
    except ValueError as error:
        print(f"recap: {error}", file=sys.stderr)
        return 2
    cost = measure_pass_cost(target)
    one = cost.points[0][1]
    print(f"{target.name}, {target.device}, {target.dtype}, {CONTEXT} tokens in the cache\n")
    print(
        "| rows | ms a pass | against one row | tokens a pass that pay for it |\n|---|---|---|---|"
    )
    for rows, seconds in cost.points:
        needed = cost.seconds(rows) / cost.seconds(1)
        print(f"| {rows} | {1e3 * seconds:.2f} | {seconds / one:.2f} | {needed:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
