"""Options that several commands share: which model, which drafter, which file to write."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .drafters import Drafter, make_drafter
from .drafters.recap.config import RecapConfig
from .pass_timing import pass_cost
from .targets import load_target
from .targets.base import Target


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


def try_out(path: Path) -> None:
    """Open a file for writing, what it holds untouched. Raises ValueError with one sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        path.open("a").close()
        if not there:  # a command that is refused afterwards leaves nothing behind
            path.unlink()
    except OSError as error:
        raise ValueError(f"The report cannot be written to {path}: {error.strerror}.") from None
