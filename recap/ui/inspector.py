"""The step inspector: one `gr.HTML` whose value is an append-only NDJSON trace (see `recap.trace`).

All drawing happens in the browser, from files in `assets/`. The value never becomes markup: the
template does not mention it, and the script writes token text through `textContent` alone.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

ASSETS = Path(__file__).resolve().parents[2] / "assets"

SCRIPTS = (
    "trace.js",
    "layout.js",
    "tree.js",
    "strips.js",
    "controls.js",
    "race.js",
    "files.js",
    "inspector.js",
    "keys.js",
)
"""Joined in this order into the one script that runs when the component loads."""


def script() -> str:
    """The inspector's JavaScript; it expects `element`, `props` and `watch` in its scope."""
    return "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)


def style() -> str:
    """The style sheet of page and inspector."""
    return (ASSETS / "page.css").read_text(encoding="utf-8")


def inspector(value: str = "", *, elem_id: str = "inspector") -> gr.HTML:
    """The component, to be called inside a `gr.Blocks`; its value is a trace."""
    return gr.HTML(
        value,
        html_template='<div class="rt"></div>',
        js_on_load=script(),
        apply_default_css=False,
        elem_id=elem_id,
        script=script(),  # what "save as a web page" writes; no template mentions it
        style=style(),
    )
