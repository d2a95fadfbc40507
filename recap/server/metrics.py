"""Figures of a running service for Prometheus, and a log line for each thing done.

Neither holds a word of anybody's messages, nor tokens: counts, times and sizes only.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..trace import Turn

LOG = logging.getLogger("recap")

GAUGES = {
    "queue_waiting": "questions that wait for their turn",
    "answers_running": "answers that run",
    "comparisons_waiting": "comparisons that wait for their turn",
    "comparisons_running": "comparisons that run or pause for answers",
    "sessions": "sessions held",
    "kv_bytes": "bytes of KV cache held by conversations and their forks",
    "memory_predictions": "stored predictions in the memories that outlive a session",
    "ready": "1 once the model is loaded",
}
"""Name (without "recap_") -> what it is; read when the figures are asked for."""


class Metrics:
    """Counters of one service; `text` is what Prometheus reads.

    state: gives the values of GAUGES, those that it leaves out are 0.
    """

    def __init__(self, state: Callable[[], Mapping[str, float]] = dict) -> None:
        self.registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self.registry, "namespace": "recap"}
        self._turns = Counter("answers", "answers ended", ["decoder", "finish"], **here)
        self._tokens = Counter("tokens", "tokens of answers", ["decoder"], **here)
        self._passes = Counter("passes", "packed passes", ["decoder"], **here)
        self._per_pass = Histogram(
            "tokens_per_pass",
            "tokens that a pass gave, mean of an answer",
            ["decoder"],
            buckets=(1, 1.5, 2, 2.5, 3, 4, 5, 7, 10),
            **here,
        )
        self._waited = Histogram("queue_seconds", "wait for a turn", **here)
        self._errors = Counter("errors", "requests that were refused or failed", ["kind"], **here)
        for name, said in GAUGES.items():
            gauge = Gauge(name, said, **here)
            gauge.set_function(lambda name=name: float(state().get(name, 0.0)))

    def answered(self, turn: Turn, *, waited_s: float) -> None:
        """Count an answer."""
        decoder = turn.decoder
        self._turns.labels(decoder, turn.finish_reason).inc()
        self._tokens.labels(decoder).inc(turn.tokens)
        self._passes.labels(decoder).inc(turn.passes)
        if turn.passes:
            self._per_pass.labels(decoder).observe(turn.tokens_per_pass)
        self._waited.observe(waited_s)
        log(
            "answer",
            decoder=decoder,
            finish=turn.finish_reason,
            prompt_tokens=turn.prompt_tokens,
            tokens=turn.tokens,
            passes=turn.passes,
            prefill_s=round(turn.prefill_s, 3),
            decode_s=round(turn.decode_s, 3),
            waited_s=round(waited_s, 3),
        )

    def failed(self, error: BaseException) -> None:
        """Count an error by its kind; its words, which may quote a message, are not kept."""
        kind = type(error).__name__
        self._errors.labels(kind).inc()
        log("error", kind=kind)

    def text(self) -> bytes:
        """All figures in Prometheus's text format."""
        return generate_latest(self.registry)


def log(event: str, **figures: Any) -> None:
    """One JSON line to the log "recap": {"event": ..., "at": seconds since 1970, ...}."""
    LOG.info(json.dumps({"event": event, "at": round(time.time(), 3), **figures}))
