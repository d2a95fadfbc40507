"""The command line: `python -m recap ask` answers, `bench` measures, `load` drives a running app."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from PIL import Image, UnidentifiedImageError

from .compare import answer_apart, first_difference
from .conversation import Conversation
from .drafters import DECODERS, Drafter, make_drafter
from .drafters.recap.config import RecapConfig
from .engine import Answer, stream
from .pass_timing import pass_cost
from .targets import load_target
from .targets.base import Target
from .trace import Turn, step_line, turn_line


class Parser(argparse.ArgumentParser):
    """One sentence for a mistake, without the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"recap: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command -> exit status: 0 done, 2 a mistake in what was asked (one sentence says which)."""
    parser = Parser(
        prog="python -m recap",
        description="Training-free speculative decoding for vision-language models.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_ask(commands)
    from .bench import command, load

    command.add_command(commands)
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
    except BrokenPipeError:  # the reader has had enough: `python -m recap ask ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit, too
        return 141


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads a target."""
    parser.add_argument(
        "--model", default="demo", help='"demo", "demo-llava", a directory, or a hub id'
    )
    parser.add_argument(
        "--device", help='"cuda", "cpu", or "auto" for all GPUs (default: cuda where there is one)'
    )
    parser.add_argument("--dtype", help="float32, bfloat16 or float16 (default: by device)")
    parser.add_argument("--threads", type=int, help="CPU threads of torch")
    parser.add_argument(
        "--static",
        action="store_true",
        help="passes of fixed shapes, as captured graphs on CUDA (not measured on a GPU yet)",
    )
    parser.add_argument(
        "--budget",
        default="auto",
        metavar="N",
        help="candidates a pass for Recap: a fixed number, or auto (as many as pay on this machine)",
    )


def load_from(options: argparse.Namespace) -> Target:
    """The target that the options name, progress bars off."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    if options.threads is not None:
        import torch

        if not 1 <= options.threads <= 1024:
            raise ValueError("--threads must be at least 1 and at most 1024.")
        torch.set_num_threads(options.threads)
    settings = {"device": options.device, "dtype": options.dtype, "static": options.static}
    return load_target(options.model, **settings)


def drafter_from(name: str, options: argparse.Namespace, target: Target) -> Drafter:
    """A fresh drafter. `name` may carry a budget of its own: "recap:15", "token_recycling:16"."""
    name, _, own = name.partition(":")
    budget = own or (options.budget if name == "recap" else "auto")
    settings: dict[str, Any] = {}
    if budget == "auto":
        if name == "recap":
            settings["cost"] = pass_cost(target)
    elif not (budget.isascii() and budget.isdigit()):
        raise ValueError(
            f'A budget is a number of candidates (0 or more) or "auto", not "{budget}".'
        )
    elif name == "recap":
        settings["config"] = RecapConfig(budget=int(budget))
    elif name == "token_recycling":
        settings["budget"] = int(budget)
    else:
        raise ValueError(f'The decoder "{name}" takes no budget.')
    return make_drafter(name, vocab_size=target.vocab_size, **settings)


def open_image(path: str) -> Image.Image:
    """The picture in a file, fully read. Raises ValueError with one sentence."""
    try:
        # Pillow's remarks on large or damaged files say less than the sentences below
        with warnings.catch_warnings(action="ignore"), Image.open(path) as picture:
            picture.load()
            return _kept(picture)
    except FileNotFoundError:
        raise ValueError(f"There is no image file {path}.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a directory, not an image file.") from None
    except Image.DecompressionBombError:
        raise ValueError(f"{path} has too many pixels: make it smaller.") from None
    except UnidentifiedImageError:
        raise ValueError(f"{path} is not an image: use a PNG, JPEG, WebP or GIF file.") from None
    except (OSError, SyntaxError, ValueError):
        raise ValueError(f"{path} cannot be read as an image; it may be damaged.") from None


def _kept(picture: Image.Image) -> Image.Image:
    """A copy that outlives the file and keeps its EXIF rotation."""
    from .targets.images import to_rgb

    return to_rgb(picture)


def _add_ask(commands: Any) -> None:
    ask = commands.add_parser("ask", help="ask about images, in one or several turns")
    ask.add_argument("question")
    ask.add_argument(
        "--image", action="append", default=[], metavar="FILE", help="may be given more than once"
    )
    ask.add_argument(
        "--turn", action="append", default=[], metavar="QUESTION", help="a further question"
    )
    ask.add_argument("--decoder", default="recap", choices=[*DECODERS, "all"])
    ask.add_argument("--max-new-tokens", type=int, default=256, metavar="N")
    ask.add_argument("--trace", metavar="FILE", help="write every step to this file (NDJSON)")
    ask.add_argument("--json", action="store_true", help="print one JSON object per turn")
    add_model_options(ask)
    ask.set_defaults(run=run_ask)


def run_ask(options: argparse.Namespace) -> int:
    """`python -m recap ask`."""
    if options.max_new_tokens < 1:
        raise ValueError("--max-new-tokens must be at least 1.")
    if not all(question.strip() for question in (options.question, *options.turn)):
        raise ValueError("A question is empty: ask something.")
    images = [open_image(path) for path in options.image]
    trace = _open_trace(options.trace)
    try:
        target = load_from(options)
        for note in target.notes:
            print(f"recap: {note}", file=sys.stderr)
        names = DECODERS if options.decoder == "all" else (options.decoder,)
        drafters = {name: drafter_from(name, options, target) for name in names}
        conversation = Conversation(target)
        for place, question in enumerate([options.question, *options.turn]):
            conversation.ask(question, images if place == 0 else ())
            _answer(conversation, drafters, options, trace)
    finally:
        if trace is not None:
            trace.close()
    return 0


def _open_trace(path: str | None) -> TextIO | None:
    if path is None:
        return None
    try:
        return Path(path).open("w", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"The trace cannot be written to {path}: {error.strerror}.") from None


def _answer(
    conversation: Conversation,
    drafters: dict[str, Drafter],
    options: argparse.Namespace,
    trace: TextIO | None,
) -> None:
    """One turn by one decoder, or by all of them from the same state."""
    compared = len(drafters) > 1
    settings = {"max_new_tokens": options.max_new_tokens, "record": trace is not None}
    if compared:  # one prefill for all, with the rows that some of them want
        conversation.prefill(seed=True, top_k=max(d.top_k for d in drafters.values()))
    turns: dict[str, Turn] = {}
    for name in reversed(drafters):  # the first one runs last and stays in the conversation
        drafter = drafters[name]
        if len(turns) + 1 < len(drafters):
            answer = answer_apart(conversation, drafter, **settings)
        else:
            answer = stream(conversation, drafter, **settings)
        turns[name] = _run(answer, trace, live=not (options.json or compared))
    reference = turns.get("autoregressive")
    if compared and not options.json:
        print(turns["recap"].text)
    for name in drafters:
        turn = turns[name]
        data = turn.as_dict()
        if compared and reference is not None:
            place = first_difference(turn.token_ids, reference.token_ids)
            data |= {"identical": place is None, "first_difference": place}
        if options.json:
            print(json.dumps(data, ensure_ascii=False), flush=True)
        else:
            print(_summary(data), file=sys.stderr, flush=True)


def _run(answer: Answer, trace: TextIO | None, *, live: bool) -> Turn:
    """Run an answer to its end, writing its trace and, if live, its text as it grows."""
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
        f"{data['tokens_per_pass']:.2f} tokens a pass",
        f"{data['tokens_per_s']:.1f} tokens/s",
        f"prefill {1e3 * data['prefill_s']:.0f} ms",
    ]
    if "identical" in data:
        place = data["first_difference"]
        parts.append("identical output" if place is None else f"first difference at token {place}")
    return ", ".join(parts)
