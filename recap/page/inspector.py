"""The parts of the page that the browser draws, from files in `assets/`.

The step inspector is one `gr.HTML` whose value is an append-only NDJSON trace (see `recap.trace`). The value
never becomes markup: the template does not mention it, and the script writes token text through
`textContent` alone.
"""

from __future__ import annotations

import gradio as gr

from ..trace import FORMAT, dumps
from .names import ASSETS, RUNS, SOURCES, css

SCRIPTS = ("trace", "layout", "tree", "strips", "controls", "race", "files", "inspector", "keys")
"""Joined in this order into the one script that runs when the component loads."""


def asset(name: str) -> str:
    """The text of a file in `assets/`."""
    return (ASSETS / name).read_text(encoding="utf-8")


def script() -> str:
    """The inspector's JavaScript; it expects `element`, `props` and `watch` in its scope."""
    names = dumps({"runs": RUNS, "sources": SOURCES})
    parts = [asset(f"{name}.js") for name in SCRIPTS]
    return "\n".join([f"const NAMES = {names};\nconst FORMAT = {FORMAT};", *parts])


def style() -> str:
    """The style sheet of page and inspector."""
    return asset("page.css") + css()


def drawn(name: str, template: str, js: str, value: str = "", **props: str) -> gr.HTML:
    """A component that `js` draws into `template`; `name` is its id on the page."""
    return gr.HTML(
        value,
        html_template=template,
        js_on_load=js,
        apply_default_css=False,
        elem_id=name,
        **props,
    )


def inspector(value: str = "") -> gr.HTML:
    """The component; its value is a trace, script and style are what "save as a web page" writes."""
    code = script()
    return drawn("inspector", '<div class="rt"></div>', code, value, script=code, style=style())


def live() -> gr.HTML:
    """An invisible component whose value is the newest step of a run (`Progress.live`). It tells the inspector
    and the chat, which is far cheaper than an update of either."""
    return drawn("live", "<span hidden></span>", asset("live.js"))


def camera() -> gr.HTML:
    """A button that takes a picture with the camera, uploads it and triggers "photo" with {path}."""
    return drawn("camera", "<div class='rc-camera'></div>", asset("camera.js"))
