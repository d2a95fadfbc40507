"""What several commands share: the options that name a model and a drafter, and the files they write."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from .drafters import Drafter, make_drafter
from .drafters.recap.config import RecapConfig
from .pass_timing import pass_cost
from .targets import load_target
from .targets.base import Target


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options of every command that loads a target."""
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        default="demo",
        help='"demo" (default), "demo-llava", a directory, or a hub id such as Qwen/Qwen2.5-VL-7B-Instruct',
    )
    model.add_argument("--device", help="cpu, cuda, cuda:1, ... or auto for all GPUs")
    model.add_argument(
        "--dtype", help="float32, bfloat16 or float16 (default: bfloat16 on a GPU, else float32)"
    )
    model.add_argument("--threads", type=int, metavar="N", help="CPU threads")
    model.add_argument(
        "--static",
        action="store_true",
        help="run passes in fixed shapes, on CUDA as captured graphs (not measured on a GPU yet)",
    )
    model.add_argument(
        "--budget",
        default="auto",
        metavar="N",
        help="Recap's candidates per pass: a number, or auto (default) for as many as pay on this machine",
    )


def target_from(options: argparse.Namespace) -> Target:
    """The target that the options name, loaded without progress bars."""
    set_threads(options)
    # transformers and torch take seconds to import: not before a model is loaded
    from transformers.utils import logging

    logging.disable_progress_bar()
    settings = {"device": options.device, "dtype": options.dtype, "static": options.static}
    return load_target(options.model, **settings)


def set_threads(options: argparse.Namespace) -> None:
    """Give torch the CPU threads of the options. Raises ValueError for a number out of range."""
    if options.threads is None:
        return
    if not 1 <= options.threads <= 1024:
        raise ValueError("--threads must be from 1 to 1024.")
    import torch  # takes seconds: not before it is used

    torch.set_num_threads(options.threads)


def split_names(text: str) -> list[str]:
    """Names that are separated by commas.

    >>> split_names("recap, prompt_lookup,")
    ['recap', 'prompt_lookup']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def budget_from(text: str) -> int | None:
    """A number of candidates, None for "auto". Raises ValueError for anything else.

    >>> budget_from("15"), budget_from("auto")
    (15, None)
    """
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'A budget is a number of candidates (0 or more) or "auto", not "{text}".')
    return int(text)


def drafter_from(name: str, options: argparse.Namespace, target: Target) -> Drafter:
    """A fresh drafter. `name` may carry its own budget: "recap:15", "token_recycling:16"."""
    name, _, own = name.partition(":")
    budget = budget_from(own or (options.budget if name == "recap" else "auto"))
    settings: dict[str, Any] = {}
    if name == "recap":
        if budget is None:
            settings["cost"] = pass_cost(target)
        else:
            settings["config"] = RecapConfig(budget=budget)
    elif budget is not None:
        if name != "token_recycling":
            raise ValueError(f'The decoder "{name}" takes no budget.')
        settings["budget"] = budget
    return make_drafter(name, vocab_size=target.vocab_size, **settings)


def check_writable(path: Path | None) -> None:
    """Open a file for writing and leave it as it is, so that a command fails before its work.

    None is no file. Raises ValueError with one sentence.
    """
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        path.open("a").close()
        if not existed:  # a command that is refused afterwards leaves nothing behind
            path.unlink()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}.") from None


def write_json(path: Path | None, report: dict[str, Any]) -> None:
    """Write a report where one is wanted."""
    if path is not None:
        path.write_text(json.dumps(report, indent=1), encoding="utf-8")
