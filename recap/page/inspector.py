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


def live(elem_id: str = "live") -> gr.HTML:
    """An invisible component whose value is the newest step of a run that goes on (`Progress.live`); it
    tells the inspector and the chat, which is far cheaper than an update of either."""
    return gr.HTML(
        "",
        html_template="<span hidden></span>",
        js_on_load=(ASSETS / "live.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        elem_id=elem_id,
    )


def camera(elem_id: str = "camera") -> gr.HTML:
    """A button that takes a picture with the camera, uploads it and triggers "photo" with {path}."""
    return gr.HTML(
        "",
        html_template="<div class='rc-camera'></div>",
        js_on_load=(ASSETS / "camera.js").read_text(encoding="utf-8"),
        apply_default_css=False,
        elem_id=elem_id,
    )
