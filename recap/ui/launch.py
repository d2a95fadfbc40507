"""Settings out of environment variables, and the server."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from ..service import ModelLoader, Sessions
from . import uploads
from .examples import EXAMPLES, load_examples
from .inspector import ASSETS, style
from .page import build
from .uploads import Limits
from .web import Gate, input_counts

SWITCH_S = 0.0005

VARIABLES = {
    "RECAP_MODEL": "demo (default), a local directory, or a hub id such as Qwen/Qwen2.5-VL-7B-Instruct",
    "RECAP_REVISION": "branch, tag or commit of a hub id, default main",
    "RECAP_DEVICE": "cpu, cuda, cuda:0, ...; default: a GPU if there is one",
    "RECAP_DTYPE": "float32, bfloat16 or float16; default: chosen for the device",
    "RECAP_MAX_NEW_TOKENS": "longest answer, default 256",
    "RECAP_EXAMPLES": "folder with an examples.json for the gallery, default assets/examples",
    "RECAP_HOST": "address to listen on, default 127.0.0.1; 0.0.0.0 in a container",
    "RECAP_PORT": "port to listen on, default 7860",
    "RECAP_SESSIONS": "most sessions at once, default 32",
    "RECAP_IDLE_MINUTES": "minutes after which an idle session is freed, default 30",
    "RECAP_UPLOAD_MB": "largest uploaded file in MB, default 20",
    "RECAP_IMAGE_MEGAPIXELS": "most pixels of an uploaded image in millions, default 50",
    "RECAP_CACHE": "folder for the pass times measured on this machine, default ~/.cache/recap",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. See VARIABLES."""

    model: str = "demo"
    revision: str = ""
    device: str = ""
    dtype: str = ""
    max_new_tokens: int = 256
    examples: str = str(EXAMPLES)
    host: str = "127.0.0.1"
    port: int = 7860
    sessions: int = 32
    idle_minutes: int = 30
    upload_mb: int = 20
    image_megapixels: int = 50
    cache: str = ""  # `calibration` reads it itself

    @property
    def load(self) -> dict[str, Any]:
        """Keyword arguments for load_target, unset ones left out."""
        settings = {"revision": self.revision, "device": self.device, "dtype": self.dtype}
        return {name: value for name, value in settings.items() if value}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the variables. Exits with one sentence at a number that is none.

        >>> Settings.from_environment({"RECAP_PORT": "8000"}).port
        8000
        """
        values: dict[str, Any] = {}
        for name in VARIABLES:
            text = environment.get(name, "").strip()
            field = name.removeprefix("RECAP_").lower()
            if not text:
                continue
            if isinstance(getattr(cls(), field), int):
                if not text.isdigit() or not int(text):
                    raise SystemExit(f"{name} must be a whole number above 0, not “{text}”.")
                values[field] = int(text)
            else:
                values[field] = text
        return cls(**values)


def theme() -> gr.themes.Base:
    """Calm and local: system fonts, one blue, little ornament."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "DejaVu Sans", "sans-serif"]
    mono = ["ui-monospace", "DejaVu Sans Mono", "Menlo", "Consolas", "monospace"]
    return gr.themes.Base(
        primary_hue="blue",
        neutral_hue="zinc",
        radius_size="md",
        font=fonts,
        font_mono=mono,
    ).set(
        block_shadow="none",
        block_border_width="1px",
        block_label_text_weight="600",
    )


def sweep(sessions: Sessions) -> None:
    """Free idle sessions once a minute, for as long as the server lives."""

    def run() -> None:
        while True:
            time.sleep(60)
            sessions.sweep()

    threading.Thread(target=run, name="sweep sessions", daemon=True).start()


def serve(
    settings: Settings, loader: ModelLoader, sessions: Sessions, *, block: bool = True
) -> gr.Blocks:
    """Build the page and serve it until the process ends, or (not `block`) in a thread.

    Threads hand the interpreter over after SWITCH_S: a decoder waits that long, at most, for the page's
    Python to let it go on between two operations of the model.
    """
    sys.setswitchinterval(SWITCH_S)
    uploads.LIMITS = Limits(settings.upload_mb * 10**6, settings.image_megapixels * 10**6)
    examples = load_examples(Path(settings.examples))
    demo = build(loader, sessions, examples, max_new_tokens=settings.max_new_tokens)
    sweep(sessions)
    demo.queue(default_concurrency_limit=8)
    demo.launch(
        server_name=settings.host,
        server_port=settings.port,
        theme=theme(),
        css=style(),
        js=(ASSETS / "page.js").read_text(encoding="utf-8"),
        footer_links=["api"],
        run_history=False,
        allowed_paths=[str(Path(settings.examples).resolve())],
        max_file_size=f"{settings.upload_mb}mb",
        app_kwargs={"middleware": [Middleware(Gate, counts=input_counts(demo))]},
        ssr_mode=False,
        quiet=False,
        prevent_thread_lock=not block,
    )
    return demo
