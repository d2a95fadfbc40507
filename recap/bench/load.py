"""`python -m recap load`: many users on a running app, over HTTP, one decoder after the other.

Closed loop: each of N users has one conversation after the other, without pauses. Open loop: conversations
begin at random times (Poisson) of a given rate, whether or not earlier ones are done. A user's
conversation is a sample of a suite, all of its turns, in a session of its own. How long an answer may be is
drawn from a CSV of real answers (column `new_tokens`); questions, lengths and times are the same for every
decoder. The server decodes one pass at a time for all of them.

The app's /chat has no length of its own to be asked for: an answer is cut by cancelling it when the text that
has come is estimated to hold that many tokens (characters a token as in the answers that ended by
themselves); an app whose /chat takes `max_new_tokens` is asked for the length instead. Answers that
end earlier by themselves stay shorter; `answers_cut` counts the others.

Measured by the client, from sending a question: queue (until the app takes it up), first token, and time per
token from the first to the last. Tokens come in updates, at most 20 a second.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
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
from tqdm import tqdm

from ..drafters import DECODERS
from ..options import try_out
from .load_client import App, Asked
from .suites import Sample, load_suite

MOST_USERS = 64
"""Most conversations at once, in either loop."""

TIMEOUT_S = 600.0
"""A question that has waited so long has failed."""


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
        self, app: App, samples: Sequence[Sample], lengths: Sequence[int], decoder: str, label: str
    ) -> None:
        self.app, self.samples, self.lengths = app, samples, lengths
        self.decoder, self.label = decoder, label
        self.asked: list[Asked] = []
        self.refused = 0
        self._begun = time.perf_counter()

    async def play(self, user: int, rng: random.Random) -> None:
        """One conversation of one user; later questions stay away if one fails."""
        sample = rng.choice(self.samples)
        limits = [rng.choice(self.lengths) for _ in sample.turns]
        session = uuid.uuid4().hex[:12]
        for turn, (question, limit) in enumerate(zip(sample.turns, limits, strict=True)):
            sent_at = time.perf_counter() - self._begun
            asked = Asked(self.decoder, self.label, user, sample.id, turn, round(sent_at, 4), limit)
            self.asked.append(asked)
            try:
                files = await self.app.upload(sample) if turn == 0 else []
            except (httpx.HTTPError, OSError, ValueError) as error:
                asked.error = f"upload: {error or type(error).__name__}"
                return
            await self.app.ask(session, question, files, asked)
            if asked.error:
                return

    async def closed(self, users: int, conversations: int, seed: int) -> None:
        """Each user has that many conversations, one after the other."""

        async def user(number: int) -> None:
            rng = random.Random(f"{seed}/{number}")
            for _ in range(conversations):
                await self.play(number, rng)

        await asyncio.gather(*(user(number) for number in range(users)))

    async def open(self, rate: float, conversations: int, seed: int) -> None:
        """So many conversations, `rate` a second begun at random; those beyond MOST_USERS at once are refused."""
        rng = random.Random(seed)
        running: set[asyncio.Task[None]] = set()
        for number in range(conversations):
            await asyncio.sleep(rng.expovariate(rate))
            if len(running) >= MOST_USERS:
                self.refused += 1
                continue
            task = asyncio.create_task(self.play(number, random.Random(f"{seed}/{number}")))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    def figures(self, memory: dict[str, float | None]) -> dict[str, Any]:
        """What came of the stage."""
        done = [a for a in self.asked if not a.error]
        seconds = max((a.sent_at + (a.end_s or 0.0) for a in done), default=0.0)
        tokens = sum(a.tokens for a in done)
        return {
            "decoder": self.decoder,
            "stage": self.label,
            "questions": len(self.asked),
            "failed": len(self.asked) - len(done),
            "refused_conversations": self.refused,
            "answers_cut": sum(a.cut for a in done),
            "seconds": round(seconds, 3),
            "tokens": tokens,
            "tokens_per_s": round(tokens / seconds, 2) if seconds else 0.0,
            "answers_per_s": round(len(done) / seconds, 3) if seconds else 0.0,
            "queue_s": percentiles([a.queue_s for a in done]),
            "first_token_s": percentiles([a.first_token_s for a in done]),
            "token_ms": percentiles([a.token_ms for a in done]),
            "memory_mb": memory,
        }


def percentiles(values: Sequence[float | None]) -> dict[str, float] | None:
    """p50, p95 and p99 of the values that are there; None if none is.

    >>> percentiles([1.0, None, 3.0])
    {'p50': 2.0, 'p95': 2.9, 'p99': 2.98}
    """
    there = [v for v in values if v is not None]
    if not there:
        return None
    found = np.percentile(there, [50, 95, 99])
    return {name: round(float(v), 4) for name, v in zip(("p50", "p95", "p99"), found, strict=True)}


class Memory:
    """Resident memory of the app's process in megabytes (10^6 bytes), sampled; nothing without its id."""

    EVERY_S = 0.2

    def __init__(self, pid: int | None) -> None:
        self.pid, self.seen = pid, []
        if pid is not None and self._now() is None:
            raise ValueError(f"There is no process {pid} whose memory can be read here.")

    def _now(self) -> float | None:
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return None
        found = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(found[0]) * 1024 / 1e6 if found else None

    async def watch(self) -> None:
        """Sample until cancelled."""
        while self.pid is not None:
            value = self._now()
            if value is not None:
                self.seen.append(value)
            await asyncio.sleep(self.EVERY_S)

    def figures(self) -> dict[str, float | None]:
        """Before and most of the time since the last call."""
        seen, self.seen = self.seen, []
        if not seen:
            return {"begin": None, "median": None, "peak": None}
        return {
            "begin": round(seen[0], 1),
            "median": round(statistics.median(seen), 1),
            "peak": round(max(seen), 1),
        }


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
    pid: int | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """All stages, closed ones first, the order of decoders rotated -> one JSON-ready object."""
    memory = Memory(pid)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=2 * MOST_USERS)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits) as client:
        app = App(url, client)
        await app.connect()
        loads: list[tuple[str, float]] = [("users", n) for n in users] + [
            ("rate", r) for r in rates
        ]
        stages: list[dict[str, Any]] = []
        asked: list[dict[str, Any]] = []
        await Stage(app, samples, [8], decoders[0], "warm-up").closed(1, 1, seed)
        bar = tqdm(
            total=len(loads) * len(decoders), unit="stage", file=sys.stderr, disable=not progress
        )
        with bar:
            for place, (loop, size) in enumerate(loads):
                at = place % len(decoders)
                for decoder in [*decoders[at:], *decoders[:at]]:
                    label = _label(loop, size)
                    bar.set_postfix_str(f"{label}, {decoder}")
                    stage = Stage(app, samples, lengths, decoder, label)
                    watching = asyncio.create_task(memory.watch())
                    if loop == "users":
                        await stage.closed(int(size), conversations, seed)
                    else:
                        await stage.open(size, conversations, seed)
                    watching.cancel()
                    stages.append(
                        {"loop": "closed" if loop == "users" else "open"}
                        | stage.figures(memory.figures())
                    )
                    asked += [asdict(a) | {"token_ms": a.token_ms} for a in stage.asked]
                    bar.update()
    return {
        "url": url,
        "length_by": "max_new_tokens" if app.takes_length else "cancelling",
        "conversations": conversations,
        "seed": seed,
        "stages": stages,
        "questions": asked,
    }


def _label(loop: str, size: float) -> str:
    if loop == "rate":
        return f"{size:g} a second"
    return "1 user" if size == 1 else f"{size} users"


def table(report: dict[str, Any]) -> str:
    """The stages as a markdown table."""
    lines = [
        "| loop | load | decoder | answers | failed | tokens/s | queue s p50 / p95 / p99 | "
        "first token s p50 / p95 / p99 | ms a token p50 / p95 / p99 | peak memory MB |",
        "|" + "---|" * 10,
    ]
    for s in report["stages"]:
        spans = []
        for key, digits in (("queue_s", 2), ("first_token_s", 2), ("token_ms", 1)):
            spans.append(
                "-" if s[key] is None else " / ".join(f"{v:.{digits}f}" for v in s[key].values())
            )
        peak = s["memory_mb"]["peak"]
        lines.append(
            f"| {s['loop']} | {s['stage']} | {s['decoder']} | {s['questions'] - s['failed']} | "
            f"{s['failed']} | {s['tokens_per_s']:.1f} | {' | '.join(spans)} | {peak or '-'} |"
        )
    return "\n".join(lines)


def add_command(commands: Any) -> None:
    """Register `load` with the command line."""
    load = commands.add_parser(
        "load",
        help="many users on a running app",
        description="Drive a running app over HTTP with many users; start it with RECAP_SESSIONS at least as many.",
    )
    load.add_argument("--url", default="http://127.0.0.1:7860")
    load.add_argument("--suite", default="demo", help="the questions: as for bench")
    load.add_argument(
        "--lengths",
        type=Path,
        required=True,
        metavar="CSV",
        help="answer lengths, column new_tokens",
    )
    load.add_argument("--decoders", default="recap,token_recycling,autoregressive")
    load.add_argument(
        "--users", default="1,2,4,8,16,32,64", help="closed loop: users at once; empty for none"
    )
    load.add_argument("--rates", default="", help="open loop: conversations begun a second")
    load.add_argument(
        "--conversations", type=int, default=4, help="each user's, and in an open loop all in all"
    )
    load.add_argument(
        "--pid", type=int, help="the app's process on this machine, to watch its memory"
    )
    load.add_argument("--seed", type=int, default=0)
    load.add_argument("--out", type=Path, metavar="FILE", help="write the report here (JSON)")
    load.set_defaults(run=run_load)


def run_load(options: argparse.Namespace) -> int:
    """`python -m recap load`."""

    decoders = [d.strip() for d in options.decoders.split(",") if d.strip()]
    wrong = [d for d in decoders if d not in DECODERS]
    if wrong or not decoders:
        raise ValueError(
            f'--decoders: there is no "{",".join(wrong)}": choose from {", ".join(DECODERS)}.'
        )
    users = [int(n) for n in _numbers("users", options.users) if n == int(n)]
    rates = _numbers("rates", options.rates)
    if any(not 1 <= n <= MOST_USERS for n in users) or len(users) < len(
        _numbers("users", options.users)
    ):
        raise ValueError(f"--users takes whole numbers from 1 to {MOST_USERS}.")
    if not users and not rates:
        raise ValueError("There is nothing to do: name --users or --rates.")
    if options.conversations < 1:
        raise ValueError("--conversations must be at least 1.")
    lengths = read_lengths(options.lengths)
    samples = load_suite(options.suite)
    if options.out is not None:
        try_out(options.out)
    report = asyncio.run(
        drive(
            options.url,
            samples,
            lengths,
            decoders=decoders,
            users=users,
            rates=rates,
            conversations=options.conversations,
            seed=options.seed,
            pid=options.pid,
            progress=sys.stderr.isatty(),
        )
    )
    print(table(report))
    errors = {a["error"] for a in report["questions"] if a["error"]}
    for error in sorted(errors):
        print(f"failed: {error}")
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0 if any(s["questions"] > s["failed"] for s in report["stages"]) else 1


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--{option} takes numbers with commas between.") from None
    if any(not 0 < n < float("inf") for n in numbers):
        raise ValueError(f"--{option} takes numbers above 0.")
    return numbers
