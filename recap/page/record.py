"""The recorded trace that the page shows at its first paint: `python -m recap.page.record`.

Asks the demo model the first question about the first example, with every decoder, and writes
assets/traces/first.ndjson. Run it again whenever the demo model or the trace's format changes.
"""

from __future__ import annotations

import argparse
import json

from ..pass_timing import pass_cost
from ..server import actions
from ..server.session import Session, TurnRecord
from ..targets import load_target
from ..targets.images import open_image
from ..trace import dumps
from .examples import EXAMPLES, Example, load_examples, stand_in
from .names import ASSETS

RECORDED = ASSETS / "traces" / "first.ndjson"


def recorded_trace() -> str:
    """The recorded trace, empty if there is none."""
    return RECORDED.read_text(encoding="utf-8") if RECORDED.is_file() else ""


def record(session: Session, question: str, example: Example, *, max_new_tokens: int) -> str:
    """Answer and compare -> the trace, whose start lines name the question and the example."""
    paths = [str(example.path)]
    record = TurnRecord(question, tuple(paths), "recap", max_new_tokens)
    actions.answer(session, record).result()
    actions.compare(session).result()
    if (other := stand_in(example.path, load_examples(EXAMPLES))) is not None:
        actions.swap_image(session, open_image(other.path), other.title).result()
    lines, recorded = [], {"recorded": f"“{question}” ({example.title})"}
    for line in record.trace.splitlines():
        data = json.loads(line)
        lines.append(dumps(data | recorded) if data["type"] == "start" else line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Record and write."""
    argparse.ArgumentParser(prog="python -m recap.page.record", description=__doc__).parse_args()
    target, example = load_target("demo"), load_examples(EXAMPLES)[0]
    session = Session(target, cost=pass_cost(target))
    text = record(session, example.questions[0], example, max_new_tokens=64)
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(text, encoding="utf-8")
    print(f"{RECORDED.name}: “{example.questions[0]}”, {len(text) / 1024:.0f} kB")


if __name__ == "__main__":
    main()
