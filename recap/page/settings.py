"""The settings panel: its components, and reading them back as `RecapSettings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from ..drafters.recap.config import RecapConfig
from ..server.session import RecapSettings
from ..trace import SOURCES as RECAP_SOURCES
from .names import SOURCES

DEFAULT = RecapConfig()

MEMORIES = RECAP_SOURCES[:3]


def panel(max_new_tokens: int) -> list[Any]:
    """The components in the order in which `read` takes their values; to be called inside a layout."""
    sizes = (
        (1, 127, DEFAULT.budget, 1, "Most guesses per step",
         "A larger tree catches more and takes longer. A tree that is fitted to this machine (below) "
         "stays within this limit."),
        (1, 16, DEFAULT.max_depth, 1, "Longest branch", "How many tokens ahead a branch may reach."),
        (8, max(1024, max_new_tokens), max_new_tokens, 8, "Longest answer",
         "Tokens after which an answer is cut."),
    )  # fmt: skip
    notes = ("Exact but rarely there.", "In between.", "Always there, least exact.")
    weights = [
        (0.05, 1, weight, 0.05, f"Weight of the {SOURCES[name]['name']}", note)
        for name, weight, note in zip(MEMORIES, DEFAULT.base_weights, notes, strict=True)
    ]
    switches = (
        (DEFAULT.confidence, "Weigh by confidence",
         "A stored prediction that is sure of itself counts more."),
        (True, "Fit the tree to this machine",
         "Choose the size that gives most tokens per second, by the measured step time and by how many "
         "guesses were accepted so far."),
        (True, "Keep the 1-token memory between answers", "Off: every answer starts with an empty one."),
    )  # fmt: skip
    parts: list[Any] = []
    for sliders in (sizes, weights):
        with gr.Row():
            for low, high, value, step, label, info in sliders:
                parts.append(gr.Slider(low, high, value, step=step, label=label, info=info))
    with gr.Row():
        choices = [(SOURCES[name]["name"], name) for name in RECAP_SOURCES]
        info = "Switch one off to see what it adds."
        chosen = list(RECAP_SOURCES)
        parts.append(gr.CheckboxGroup(choices, value=chosen, label="Sources in use", info=info))
    with gr.Row():
        for on, label, info in switches:
            parts.append(gr.Checkbox(on, label=label, info=info))
    return parts


def read(values: Sequence[Any]) -> RecapSettings:
    """The panel's values -> settings; no values (the API) are the defaults.

    >>> read([7, 4, 256, 0.5, 0.3, 0.2, ["3-token"], True, False, True]).config.base_weights
    (0.5, 0.0, 0.0)
    """
    if not values:
        return RecapSettings()
    budget, depth, _, *weights, sources, confidence, fit, warm = values
    w3, w2, w1 = (
        float(weight) if name in sources else 0.0
        for name, weight in zip(MEMORIES, weights, strict=True)
    )
    config = RecapConfig(
        budget=int(budget),
        max_depth=int(depth),
        base_weights=(w3, w2, w1),
        confidence=bool(confidence),
        lookup="lookup" in sources,
        runner_up_share=DEFAULT.runner_up_share if "runner-up" in sources else 0.0,
    )
    return RecapSettings(config, fit=bool(fit), warm=bool(warm))


def longest(values: Sequence[Any]) -> int:
    """The longest answer that the panel allows."""
    return int(values[2])
