"""The settings panel: its components, and reading them back as `RecapSettings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from ..drafters.recap.config import RecapConfig
from ..server.session import RecapSettings

SOURCES = ("3-token key", "2-token key", "1-token key", "lookup", "runner-up")
DEFAULT = RecapConfig()


def panel(max_new_tokens: int) -> list[Any]:
    """The components in the order in which `read` takes their values; to be called inside a layout."""
    w3, w2, w1 = DEFAULT.base_weights
    with gr.Row():
        budget = gr.Slider(
            1,
            127,
            value=DEFAULT.budget,
            step=1,
            label="Most candidates in a pass",
            info="A larger tree catches more and costs more time. While the tree is fitted to this machine (below), this is no more than its limit.",
        )
        depth = gr.Slider(
            1,
            16,
            value=DEFAULT.max_depth,
            step=1,
            label="Longest branch",
            info="How many tokens ahead a branch may reach.",
        )
        longest = gr.Slider(
            8,
            max(1024, max_new_tokens),
            value=max_new_tokens,
            step=8,
            label="Longest answer",
            info="Tokens after which an answer is cut.",
        )
    with gr.Row():
        weights = [
            gr.Slider(0.05, 1, value=w, step=0.05, label=f"Weight of the {name}", info=info)
            for w, name, info in (
                (w3, SOURCES[0], "Exact but rarely there."),
                (w2, SOURCES[1], "In between."),
                (w1, SOURCES[2], "Always there, least exact."),
            )
        ]
    with gr.Row():
        levels = gr.CheckboxGroup(
            list(SOURCES),
            value=list(SOURCES),
            label="Sources in use",
            info="Switch one off to see what it adds.",
        )
    with gr.Row():
        confidence = gr.Checkbox(
            DEFAULT.confidence,
            label="Weigh by confidence",
            info="A stored prediction that is sure of itself counts more.",
        )
        fit = gr.Checkbox(
            True,
            label="Fit the tree to this machine",
            info="Give it the size that makes most tokens a second, by the measured pass time and what was accepted so far.",
        )
        warm = gr.Checkbox(
            True,
            label="Keep the 1-token memory warm",
            info="Off: every answer starts with an empty one.",
        )
    return [budget, depth, longest, *weights, levels, confidence, fit, warm]


def read(values: Sequence[Any]) -> RecapSettings:
    """The panel's values -> settings; no values (the API) are the defaults.

    >>> read([7, 4, 256, 0.5, 0.3, 0.2, ["3-token key"], True, False, True]).config.base_weights
    (0.5, 0.0, 0.0)
    """
    if not values:
        return RecapSettings()
    budget, depth, _, w3, w2, w1, levels, confidence, fit, warm = values
    weights = (w3, w2, w1)
    used = tuple(
        float(w) if name in levels else 0.0 for w, name in zip(weights, SOURCES, strict=False)
    )
    config = RecapConfig(
        budget=int(budget),
        max_depth=int(depth),
        base_weights=(used[0], used[1], used[2]),
        confidence=bool(confidence),
        lookup="lookup" in levels,
        runner_up_share=DEFAULT.runner_up_share if "runner-up" in levels else 0.0,
    )
    return RecapSettings(config, fit=bool(fit), warm=bool(warm))


def longest(values: Sequence[Any]) -> int:
    """The longest answer that the panel allows."""
    return int(values[2])
