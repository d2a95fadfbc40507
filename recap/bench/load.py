"""`python -m recap load`: many users on a running app, over HTTP, one decoder after the other.

Closed loop: each of N users has one conversation after the other, without pauses. Open loop: conversations
begin at random times (Poisson) at a given rate, whether or not earlier ones are done. A user's
conversation is a sample of a suite, all of its turns, in its own session. The length of an answer is drawn
from a CSV of real answers (column `new_tokens`); questions, lengths and times are the same for every
decoder.

The app is not asked for a length: an answer is cancelled once its text is estimated to hold that many
tokens (by the characters per token of the answers that ended by themselves). Answers that end earlier by
themselves stay shorter; `answers_cut` counts the others.

Measured by the client, from sending a question: first token, and time per token from the first to the last;
by the app: the wait in its queue. Tokens come in updates, at most 20 per second.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
import statistics
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from tqdm import tqdm

from ..drafters import DECODERS
from ..options import check_writable, split_names, write_json
from .load_client import App, Question
from .samples import Sample
from .suites import load_suite
from .tables import NONE, Table, decimal

MOST_USERS = 64
"""Most conversations at once, in either loop."""

TIMEOUT_S = 600.0
"""A question that has waited so long has failed."""

MEMORY_EVERY_S = 0.2
"""Time between two looks at the app's memory."""


def read_lengths(path: Path) -> list[int]:
    """Answer lengths in tokens, column `new_tokens`. Raises ValueError with one sentence."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lengths = [int(row["new_tokens"]) for row in csv.DictReader(file)]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{path.name} needs a column new_tokens of whole numbers.") from None
    if not lengths or min(lengths) < 1:
        raise ValueError(f"{path.name} needs lengths of at least 1.")
    return lengths


class Stage:
    """One decoder under one load: the conversations of all users."""

    def __init__(
        self,
        app: App,
        samples: Sequence[Sample],
        lengths: Sequence[int],
        decoder: str,
        label: str,
        *,
        compare: bool = False,
    ) -> None:
        self.app, self.samples, self.lengths, self.compare = app, samples, lengths, compare
        self.decoder, self.label = decoder, label
        self.questions: list[Question] = []
        self.refused = 0
        self._begun = time.perf_counter()

    async def converse(self, user: int, rng: random.Random) -> None:
        """One conversation of one user; it ends early if a question fails."""
        sample = rng.choice(self.samples)
        limits = [rng.choice(self.lengths) for _ in sample.turns]
        session = uuid.uuid4().hex[:12]
        for turn, (text, limit) in enumerate(zip(sample.turns, limits, strict=True)):
            sent_at = round(time.perf_counter() - self._begun, 4)
            question = Question(self.decoder, self.label, user, sample.id, turn, sent_at, limit)
            self.questions.append(question)
            try:
                files = await self.app.upload(sample) if turn == 0 else []
            except (httpx.HTTPError, OSError, ValueError) as error:
                question.error = f"upload: {error or type(error).__name__}"
                return
            await self.app.ask(session, text, files, question)
            if self.compare and not question.error:
                await self.app.compare(session, question)
            if question.error:
                return

    async def closed(self, users: int, conversations: int, seed: int) -> None:
        """Each user has that many conversations, one after the other."""

        async def user(index: int) -> None:
            rng = random.Random(f"{seed}/{index}")
            for _ in range(conversations):
                await self.converse(index, rng)

        await asyncio.gather(*map(user, range(users)))

    async def open(self, rate: float, conversations: int, seed: int) -> None:
        """That many conversations, `rate` per second at random times; refused beyond MOST_USERS at once."""
        rng = random.Random(seed)
        running: set[asyncio.Task[None]] = set()
        for index in range(conversations):
            await asyncio.sleep(rng.expovariate(rate))
            if len(running) >= MOST_USERS:
                self.refused += 1
                continue
            task = asyncio.create_task(self.converse(index, random.Random(f"{seed}/{index}")))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    def figures(self) -> dict[str, Any]:
        """What came of the stage."""
        done = [q for q in self.questions if not q.error]
        seconds = max((q.sent_at + (q.end_s or 0.0) for q in done), default=0.0)
        tokens = sum(q.tokens for q in done)
        return {
            "decoder": self.decoder,
            "stage": self.label,
            "questions": len(self.questions),
            "failed": len(self.questions) - len(done),
            "refused_conversations": self.refused,
            "answers_cut": sum(q.cut for q in done),
            "seconds": round(seconds, 3),
            "tokens": tokens,
            "tokens_per_s": round(tokens / seconds, 2) if seconds else 0.0,
            "answers_per_s": round(len(done) / seconds, 3) if seconds else 0.0,
            "queue_s": percentiles([q.queue_s for q in done]),
            "first_token_s": percentiles([q.first_token_s for q in done]),
            "token_ms": percentiles([q.token_ms for q in done]),
            "compare_s": percentiles([q.compare_s for q in done]),
        }


def percentiles(values: Sequence[float | None]) -> dict[str, float] | None:
    """p50, p95 and p99 of the values that are not None; None if there are none.

    >>> percentiles([1.0, None, 3.0])
    {'p50': 2.0, 'p95': 2.9, 'p99': 2.98}
    """
    known = [v for v in values if v is not None]
    if not known:
        return None
    found = np.percentile(known, [50, 95, 99])
    return {name: round(float(v), 4) for name, v in zip(("p50", "p95", "p99"), found, strict=True)}


async def _watch(process: psutil.Process | None, seen: list[float]) -> None:
    """Note the app's resident memory in megabytes (10^6 bytes) until cancelled."""
    while process is not None and process.is_running():
        seen.append(process.memory_info().rss / 1e6)
        await asyncio.sleep(MEMORY_EVERY_S)


def _memory(seen: Sequence[float]) -> dict[str, float | None]:
    if not seen:
        return {"begin": None, "median": None, "peak": None}
    values = {"begin": seen[0], "median": statistics.median(seen), "peak": max(seen)}
    return {name: round(value, 1) for name, value in values.items()}


async def drive(
    url: str,
    samples: Sequence[Sample],
    lengths: Sequence[int],
    *,
    decoders: Sequence[str],
    users: Sequence[int] = (),
    rates: Sequence[float] = (),
    conversations: int,
    seed: int = 0,
    compare: bool = False,
    process: psutil.Process | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """All stages, closed ones first, the order of decoders rotated -> one JSON-ready object."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=2 * MOST_USERS)
    loads = [("closed", n) for n in users] + [("open", rate) for rate in rates]
    order = [
        (loop, size, decoder)
        for at, (loop, size) in enumerate(loads)
        for decoder in [*decoders, *decoders][at % len(decoders) :][: len(decoders)]
    ]
    stages: list[dict[str, Any]] = []
    questions: list[dict[str, Any]] = []
    async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
        app = App(url, client)
        await app.connect()
        await Stage(app, samples, [8], decoders[0], "warm-up").closed(1, 1, seed)
        for loop, size, decoder in tqdm(order, unit="stage", disable=not progress):
            label = _label(loop, size)
            stage = Stage(app, samples, lengths, decoder, label, compare=compare)
            seen: list[float] = []
            watching = asyncio.create_task(_watch(process, seen))
            if loop == "closed":
                await stage.closed(int(size), conversations, seed)
            else:
                await stage.open(size, conversations, seed)
            watching.cancel()
            stages.append({"loop": loop} | stage.figures() | {"memory_mb": _memory(seen)})
            questions += [asdict(q) | {"token_ms": q.token_ms} for q in stage.questions]
    settings = {"url": url, "conversations": conversations, "seed": seed}
    return settings | {"stages": stages, "questions": questions}


def _label(loop: str, size: float) -> str:
    if loop == "open":
        return f"{size:g} per second"
    return "1 user" if size == 1 else f"{size} users"


SPREADS = (("queue_s", 2), ("first_token_s", 2), ("token_ms", 1), ("compare_s", 2))
"""Figures that are shown by percentiles, and their decimals."""


def table(report: dict[str, Any]) -> Table:
    """The stages, a row each."""
    head = ("loop", "load", "decoder", "answers", "failed", "tokens/s", "queue s p50 / p95 / p99")
    head += ("first token s p50 / p95 / p99", "ms per token p50 / p95 / p99")
    head += ("comparison s p50 / p95 / p99", "peak memory MB")
    rows = []
    for s in report["stages"]:
        spread = [
            NONE if s[key] is None else " / ".join(decimal(v, digits) for v in s[key].values())
            for key, digits in SPREADS
        ]
        counts = (str(s["questions"] - s["failed"]), str(s["failed"]))
        what = (s["loop"], s["stage"], s["decoder"], *counts, decimal(s["tokens_per_s"], 1))
        rows.append((*what, *spread, decimal(s["memory_mb"]["peak"], 0)))
    return Table(head, rows)


def add_command(commands: Any) -> None:
    """Register `load` with the command line."""
    load = commands.add_parser(
        "load",
        help="drive a running app with many users",
        description="Drive a running app over HTTP with many users and print a table. Start the app with "
        "RECAP_SESSIONS of at least as many.",
    )
    load.add_argument("--url", default="http://127.0.0.1:7860", help="default: %(default)s")
    load.add_argument("--suite", default="demo", help="the questions, as for bench (default: demo)")
    load.add_argument(
        "--lengths",
        type=Path,
        required=True,
        metavar="CSV",
        help="answer lengths to draw from, column new_tokens",
    )
    load.add_argument(
        "--decoders",
        default="recap,token_recycling,autoregressive",
        metavar="NAMES",
        help="separated by commas (default: %(default)s)",
    )
    load.add_argument(
        "--users",
        default="1,2,4,8,16,32,64",
        metavar="N,N",
        help="closed loop: users at once (default: %(default)s; empty for none)",
    )
    load.add_argument(
        "--rates", default="", metavar="R,R", help="open loop: conversations begun per second"
    )
    load.add_argument(
        "--conversations",
        type=int,
        default=4,
        metavar="N",
        help="per user in a closed loop, in all in an open loop (default: %(default)s)",
    )
    load.add_argument(
        "--pid", type=int, help="the app's process on this machine, to watch its memory"
    )
    load.add_argument(
        "--compare",
        action="store_true",
        help="compare all decoders after each answer, as the page does",
    )
    load.add_argument("--seed", type=int, default=0)
    load.add_argument("--out", type=Path, metavar="FILE", help="write the figures here (JSON)")
    load.set_defaults(run=run_load)


def run_load(options: argparse.Namespace) -> int:
    """`python -m recap load`."""
    decoders = split_names(options.decoders)
    wrong = [name for name in decoders if name not in DECODERS]
    if wrong or not decoders:
        known = ", ".join(DECODERS)
        raise ValueError(f'--decoders: there is no "{",".join(wrong)}": choose from {known}.')
    users, rates = _numbers("users", options.users), _numbers("rates", options.rates)
    if not all(n == int(n) and 1 <= n <= MOST_USERS for n in users):
        raise ValueError(f"--users takes whole numbers from 1 to {MOST_USERS}.")
    if not users and not rates:
        raise ValueError("There is nothing to do: name --users or --rates.")
    if options.conversations < 1:
        raise ValueError("--conversations must be at least 1.")
    lengths, samples = read_lengths(options.lengths), load_suite(options.suite)
    check_writable(options.out)
    try:
        process = None if options.pid is None else psutil.Process(options.pid)
    except (psutil.NoSuchProcess, ValueError):
        raise ValueError(f"There is no process {options.pid} on this machine.") from None
    report = asyncio.run(
        drive(
            options.url,
            samples,
            lengths,
            decoders=decoders,
            users=[int(n) for n in users],
            rates=rates,
            conversations=options.conversations,
            seed=options.seed,
            compare=options.compare,
            process=process,
            progress=sys.stderr.isatty(),
        )
    )
    print(table(report).markdown())
    for error in sorted({q["error"] for q in report["questions"] if q["error"]}):
        print(f"failed: {error}")
    write_json(options.out, report)
    return 0 if any(s["questions"] > s["failed"] for s in report["stages"]) else 1


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in split_names(text)]
    except ValueError:
        raise ValueError(f"--{option} takes numbers, separated by commas.") from None
    if any(not 0 < n < float("inf") for n in numbers):
        raise ValueError(f"--{option} takes numbers above 0.")
    return numbers
