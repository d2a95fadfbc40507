"""The command line: `python -m recap ask` answers, `bench` measures, `load` drives a running app."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn, TextIO

from .bench import command as bench
from .bench import load
from .compare import answer_on_fork, first_difference
from .conversation import Conversation
from .drafters import DECODERS, Drafter
from .engine import Answer, stream
from .options import add_model_options, drafter_from, target_from
from .targets.images import open_image
from .trace import Turn, step_line, turn_line


class Parser(argparse.ArgumentParser):
    """Reports a mistake in one sentence, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"recap: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command -> exit status: 0 done, 2 a mistake in what was asked (one sentence says which)."""
    parser = Parser(
        prog="python -m recap",
        description="Recap: training-free speculative decoding for vision-language models.",
        epilog="`python -m recap COMMAND --help` lists a command's options. "
        "`python app.py` serves the page, `python -m recap.space` deploys it.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_ask(commands)
    bench.add_command(commands)
    load.add_command(commands)
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except ValueError as error:
        print(f"recap: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("recap: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader closed the pipe: `python -m recap ask ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 141


def _add_ask(commands: Any) -> None:
    ask = commands.add_parser(
        "ask",
        help="ask about images, in one or several turns",
        description="Answer questions about images. The answer goes to stdout, figures to stderr.",
    )
    ask.add_argument("question")
    ask.add_argument(
        "--image", action="append", default=[], metavar="FILE", help="an image; may be repeated"
    )
    ask.add_argument(
        "--turn",
        action="append",
        default=[],
        metavar="QUESTION",
        help="a follow-up question; may be repeated",
    )
    ask.add_argument(
        "--decoder",
        default="recap",
        choices=[*DECODERS, "all"],
        metavar="NAME",
        help=f"{', '.join(DECODERS)}, or all of them from the same state (default: recap)",
    )
    ask.add_argument(
        "--max-new-tokens",
        type=int,
        default=256,
        metavar="N",
        help="longest answer (default: 256)",
    )
    ask.add_argument("--trace", type=Path, metavar="FILE", help="write every step here (NDJSON)")
    ask.add_argument("--json", action="store_true", help="print one JSON object per turn")
    add_model_options(ask)
    ask.set_defaults(run=run_ask)


def run_ask(options: argparse.Namespace) -> int:
    """`python -m recap ask`."""
    if options.max_new_tokens < 1:
        raise ValueError("--max-new-tokens must be at least 1.")
    questions = [options.question, *options.turn]
    if not all(question.strip() for question in questions):
        raise ValueError("A question is empty: ask something.")
    images = [open_image(path) for path in options.image]
    with _open_trace(options.trace) as trace:
        target = target_from(options)
        for note in target.notes:
            print(f"recap: {note}", file=sys.stderr)
        names = DECODERS if options.decoder == "all" else (options.decoder,)
        drafters = {name: drafter_from(name, options, target) for name in names}
        conversation = Conversation(target)
        for number, question in enumerate(questions):
            conversation.ask(question, images if number == 0 else ())
            _answer(conversation, drafters, options, trace)
    return 0


def _open_trace(path: Path | None) -> AbstractContextManager[TextIO | None]:
    if path is None:
        return nullcontext()
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"The trace {path} cannot be written: {error.strerror}.") from None


def _answer(
    conversation: Conversation,
    drafters: dict[str, Drafter],
    options: argparse.Namespace,
    trace: TextIO | None,
) -> None:
    """One turn by one decoder, or by all of them from the same state."""
    compared = len(drafters) > 1
    settings = {"max_new_tokens": options.max_new_tokens, "record": trace is not None}
    if compared:  # one prefill for all, with every prediction that one of them wants
        conversation.prefill(seed=True, top_k=max(d.top_k for d in drafters.values()))
    turns: dict[str, Turn] = {}
    for name in reversed(drafters):  # the first one runs last and stays in the conversation
        last = len(turns) + 1 == len(drafters)
        answer = (stream if last else answer_on_fork)(conversation, drafters[name], **settings)
        turns[name] = _run(answer, trace, live=not (options.json or compared))
    reference = turns.get("autoregressive")
    if compared and not options.json:
        print(turns["recap"].text)
    for name in drafters:
        turn = turns[name]
        data = turn.as_dict()
        if compared and reference is not None:
            index = first_difference(turn.token_ids, reference.token_ids)
            data |= {"identical": index is None, "first_difference": index}
        if options.json:
            print(json.dumps(data, ensure_ascii=False), flush=True)
        else:
            print(_summary(data), file=sys.stderr, flush=True)


def _run(answer: Answer, trace: TextIO | None, *, live: bool) -> Turn:
    """Run an answer to its end, writing its trace and, if live, its text as it comes."""
    shown = ""
    if trace is not None:
        trace.write(answer.start_line() + "\n")
    for step in answer:
        if trace is not None:
            trace.write(step_line(step) + "\n")
        if live:
            text = answer.text
            if text.startswith(shown) and not text.endswith("\ufffd"):
                print(text[len(shown) :], end="", flush=True)
                shown = text
    assert answer.turn is not None
    if live:
        print(answer.turn.text[len(shown) :], flush=True)
    if trace is not None:
        trace.write(turn_line(answer.turn) + "\n")
    return answer.turn


def _summary(data: dict[str, Any]) -> str:
    """One line of figures about an answer."""
    parts = [
        f"{data['decoder']}: {data['tokens']} tokens in {data['passes']} passes",
        f"{data['tokens_per_pass']:.2f} tokens per pass",
        f"{data['tokens_per_s']:.1f} tokens/s",
        f"prefill {1e3 * data['prefill_s']:.0f} ms",
    ]
    if "identical" in data:
        index = data["first_difference"]
        parts.append("identical output" if index is None else f"first difference at token {index}")
    return ", ".join(parts)
