"""Time the real packed pass on this machine, once, and keep the result on disk.

The measurement uses the target's public protocol, so it times exactly what decoding runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import platform
import time
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from .drafters.jit import cache_folder
from .drafters.recap.tree_size import PassCost, Points
from .targets.base import KVState, Segment, Target
from .targets.hardware import cpu_threads, processor

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Packed tokens of the passes that are timed."""

CONTEXT = 128
"""KV slots filled meanwhile: a short question about an image."""

FAR, FAR_SIZES = 1024, (1, 8, 32)
"""What a longer conversation adds is timed with this many slots filled, at these sizes."""

BLOCK, BRIEF_S = 3, 0.01
"""Passes shorter than BRIEF_S seconds run in blocks of this many, so that the CPU caches are as warm as in decoding."""

PER_NODE_S = 2.5e-6
"""Seconds to draft and observe one candidate, from `python -m recap.bench.overhead` (one busy CPU core)."""


def measure_pass_cost(
    target: Target,
    *,
    sizes: Sequence[int] = SIZES,
    context: int = CONTEXT,
    far: int = FAR,
    repeats: int = 5,
    top_k: int = 8,
    patience_s: float = 20.0,
) -> PassCost:
    """Seconds of a packed pass at several sizes, the sizes taken in turn.

    context, far: KV slots filled; far=0 leaves out how the cost grows with the context. On a busy machine it
    goes on until the fastest times are steady, for up to `STEADY_S`. Once a third of `patience_s` is spent, it
    adds no larger sizes; the curve continues with its last slope.
    """
    points_timed = [(context, count) for count in sizes]
    if context < far <= target.max_context - max(FAR_SIZES):
        points_timed += [(far, count) for count in FAR_SIZES]
    usable = [t for t in range(min(target.vocab_size, 512)) if t not in target.blocked]
    states: dict[int, KVState] = {}
    begun = time.perf_counter()
    times: dict[tuple[int, int], list[float]] = {}

    def block(length: int, count: int) -> list[float]:
        first = _pass(target, states[length], usable, count, top_k)
        if first > BRIEF_S:
            return [first]
        return [_pass(target, states[length], usable, count, top_k) for _ in range(BLOCK - 1)]

    with target.lock:
        for length, count in points_timed:
            if time.perf_counter() - begun > patience_s / 3 and times:
                continue
            if length not in states:
                states[length] = _filled(target, usable, length)
            block(length, count)  # warm-up: allocations, kernels
            times[length, count] = []
        for number in itertools.count():
            for point, seconds in times.items():
                seconds += block(*point)
            spent = time.perf_counter() - begun
            enough = number + 1 >= repeats and (spent > STEADY_S or _steady(times.values()))
            if enough or spent > patience_s:
                break
    # the fastest of each: whatever else the machine did meanwhile only adds time
    fastest = {point: min(seconds) for point, seconds in times.items()}
    points = [(count, s) for (length, count), s in fastest.items() if length == context]
    near = PassCost(points)
    growth = [
        (count, max(s - near.seconds(count), 0.0) / (far - context))
        for (length, count), s in fastest.items()
        if length == far
    ]
    return _cost(points, context, growth, steady=_steady(times.values()))


def _cost(points: Points, context: int, growth: Points, *, steady: bool = True) -> PassCost:
    return PassCost(points, context=context, growth=growth, per_node_s=PER_NODE_S, steady=steady)


def _filled(target: Target, usable: Sequence[int], length: int) -> KVState:
    """A state with this many KV slots filled."""
    ids = [usable[i % len(usable)] for i in range(length)]
    state = target.new_state()
    target.prefill(state, ids, Segment(tuple(ids)), positions=[length - 1], top_k=0)
    return state


STEADY_S = 3.0
"""How long a busy machine gets until its fastest times are steady, after `repeats` rounds."""


def _steady(times: Iterable[list[float]]) -> bool:
    """Whether the three fastest passes of each size took the same time, within 15 %."""
    return all(sorted(each)[:3][-1] <= 1.15 * min(each) for each in times)


def _pass(target: Target, state: KVState, usable: Sequence[int], count: int, top_k: int) -> float:
    """Seconds of one packed pass of a chain; the cache is left as it was."""
    length = state.length
    tokens = [usable[i % len(usable)] for i in range(count)]
    mask = np.tri(count, dtype=bool)
    begun = time.perf_counter()
    target.verify(state, tokens, range(count), mask, top_k=top_k)
    seconds = time.perf_counter() - begun
    target.compact(state, [0])
    target.crop(state, length)
    return seconds


def pass_cost(target: Target, *, folder: Path | None = None, fresh: bool = False) -> PassCost:
    """The machine's pass cost for this target: from disk if it was measured before, else measured now.

    folder: where it is kept (default: RECAP_CACHE, or ~/.cache/recap). If the folder cannot be written, or if
    the machine was busy, the cost is measured again each time.
    """
    folder = folder or cache_folder()
    file = folder / f"pass_cost-{_fingerprint(target)}.json"
    if not fresh:
        try:
            kept = json.loads(file.read_text())
            points, growth = (
                [(int(count), float(s)) for count, s in kept[name]] for name in ("points", "growth")
            )
            return _cost(points, int(kept["context"]), growth)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # missing or damaged: measure
    cost = measure_pass_cost(target)
    if not cost.steady:  # the machine was busy: good enough for now, but not to keep
        return cost
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        kept = {"model": target.name, "context": cost.context}
        kept |= {"points": cost.points, "growth": cost.growth}
        part.write_text(json.dumps(kept))
        part.replace(file)
    except OSError:
        pass
    return cost


def _fingerprint(target: Target) -> str:
    """What the cost depends on: machine, threads, model, device, dtype."""
    what = (
        platform.node(),
        processor(target.device),
        os.cpu_count(),
        cpu_threads(),
        version("torch"),
        target.name,
        target.vocab_size,
        target.device,
        target.dtype,
        target.passes,
    )
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
