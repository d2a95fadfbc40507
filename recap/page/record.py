"""The recorded trace that the page shows at its first paint: `python -m recap.page.record`.

Asks the model one question about the first example, with every decoder, and writes
assets/traces/first.ndjson. Run it again whenever the demo model or the trace's format changes.
"""

from __future__ import annotations

import argparse
import json

from ..pass_timing import pass_cost
from ..server import actions
from ..server.session import Session, TurnRecord
from ..targets import load_target
from ..trace import dumps
from .examples import EXAMPLES, Example, load_examples, stand_in
from .names import ASSETS
from .uploads import read_image

RECORDED = ASSETS / "traces" / "first.ndjson"


def recorded_trace() -> str:
    """The recorded trace, empty if there is none."""
    return RECORDED.read_text(encoding="utf-8") if RECORDED.is_file() else ""


def record(session: Session, question: str, example: Example, *, max_new_tokens: int) -> str:
    """Answer and compare -> the trace, whose start lines name the question and the example."""
    paths = [str(example.path)]
    record = TurnRecord(question, tuple(paths), "recap", max_new_tokens)
    actions.answer(session, record, read_image).result()
    actions.compare(session).result()
    if (other := stand_in(example.path, load_examples(EXAMPLES))) is not None:
        actions.swap_image(session, read_image(other.path), other.title).result()
    lines, recorded = [], {"recorded": f"“{question}” ({example.title})"}
    for line in record.trace.splitlines():
        data = json.loads(line)
        lines.append(dumps(data | recorded) if data["type"] == "start" else line)
    return "\n".join(lines) + "\n"


def main() -> None:
    """Record and write."""
    parser = argparse.ArgumentParser(prog="python -m recap.page.record", description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--example", type=int, default=0, help="number of the example")
    parser.add_argument("--question", type=int, default=0, help="number of its question")
    parser.add_argument("--max-new-tokens", type=int, default=64)
    arguments = parser.parse_args()
    target = load_target(arguments.model)
    example = load_examples(EXAMPLES)[arguments.example]
    question = example.questions[arguments.question]
    session = Session(target, cost=pass_cost(target))
    text = record(session, question, example, max_new_tokens=arguments.max_new_tokens)
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(text, encoding="utf-8")
    print(f"{RECORDED.name}: “{question}”, {len(text) / 1024:.0f} kB")


if __name__ == "__main__":
    main()
