"""The server: the page, its sessions, and what stands around them."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gradio as gr
from gradio.utils import get_upload_folder
from starlette.middleware import Middleware

from ..server import allocator
from ..server.memory_scope import MemoryFile
from ..server.model_loader import ModelLoader
from ..server.sessions import Sessions
from ..targets import images
from ..targets.base import Target
from . import uploads
from .environment import VARIABLES, Settings
from .examples import load_examples
from .http_gate import Gate, input_counts, routes
from .inspector import asset, style
from .layout import build
from .upload_budget import UploadBudget

LOG = logging.getLogger("recap")

SWITCH_S = 0.0005

SWEEP_S = 5.0
"""How often sessions are looked at whose page has gone."""

QUEUE_REST_S = 0.01
"""Gradio's queue looks for events without end and rests so long in between. Its own rest is 0.001 s: a thousand
times a second the loop then took the interpreter from the decoder, 5 % of a short answer's time."""

THREADS = 100
"""Answers that run or wait for their turn each hold a thread now and then."""

POLICY = """<meta http-equiv="Content-Security-Policy" content="img-src 'self' data: blob:; media-src 'self' data: blob:">"""
"""An answer is rendered as markdown, and no image that it names may call another host."""


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


def calm(demo: gr.Blocks) -> None:
    """Let the queue of events rest longer; after `queue()`."""
    demo._queue.sleep_when_free = QUEUE_REST_S


def housekeeping(sessions: Sessions, memory_file: MemoryFile | None) -> Callable[[float], None]:
    """What is to be done every few seconds: free sessions; once a minute also memory, uploads, the file.

    The function takes the time in seconds and never raises: an error is logged and counted.
    """
    often = [sessions.sweep, lambda: images.forget_decoded(images.CACHE_S)]
    once_a_minute = [
        sessions.context.trim,
        allocator.trim,
        lambda: uploads.sweep(
            older_s=max(3600.0, 2 * sessions.idle_s), needed=needed_files(sessions)
        ),
        *([] if memory_file is None else [memory_file.save]),
    ]
    last = 0.0

    def run(now: float) -> None:
        nonlocal last
        due = list(often)
        if now - last >= 60.0:
            due, last = [*often, *once_a_minute], now
        for task in due:
            try:
                task()
            except Exception as error:
                LOG.exception("Housekeeping failed and goes on.")
                sessions.context.metrics.failed(error)

    return run


def keep_house(run: Callable[[float], None]) -> None:
    """Call `run` every SWEEP_S seconds for as long as the server lives."""

    def forever() -> None:
        while True:
            time.sleep(SWEEP_S)
            run(time.monotonic())

    threading.Thread(target=forever, name="housekeeping", daemon=True).start()


def open_memory_file(
    settings: Settings, loader: ModelLoader, sessions: Sessions
) -> MemoryFile | None:
    """Open the file of the shared memory, if there is to be one, as soon as the model is there."""
    if settings.memory_path is None:
        return None
    file = MemoryFile(sessions.context.scopes, settings.memory_path)

    def open_(target: Target) -> None:
        file.open(target)
        if file.note:
            sessions.context.notices.append(file.note)

    loader.then(open_)
    atexit.register(file.save)
    return file


def stream_ended(demo: gr.Blocks, event: str) -> None:
    """Forget an event whose stream is over. Gradio keeps the id of one whose client left, and then never
    closes another /call stream of the same session."""
    for events in demo._queue.pending_event_ids_session.values():
        events.discard(event)


def needed_files(sessions: Sessions) -> set[str]:
    """The files that a conversation may read again."""
    return {path for session in sessions for record in session.records for path in record.paths}


def upload_budget(settings: Settings, sessions: Sessions) -> UploadBudget:
    """For this server's upload folder; what a conversation may read again stays."""

    total = settings.uploads_mb * 10**6
    folder = Path(get_upload_folder())
    return UploadBudget(
        folder, total=total, share=total // 4, needed=partial(needed_files, sessions)
    )


def serve(
    settings: Settings, loader: ModelLoader, sessions: Sessions, *, block: bool = True
) -> gr.Blocks:
    """Build the page and serve it until the process ends, or (not `block`) in a thread.

    Threads hand the interpreter over after SWITCH_S: a decoder waits that long, at most, for the page's
    Python to let it go on between two operations of the model.
    """
    sys.setswitchinterval(SWITCH_S)
    images.set_limits(settings.limits)
    examples = load_examples(Path(settings.examples))
    demo = build(loader, sessions, examples, max_new_tokens=settings.max_new_tokens)
    memory_file = open_memory_file(settings, loader, sessions)
    keep_house(housekeeping(sessions, memory_file))
    sessions.context.ready = lambda: loader.loaded
    demo.queue(default_concurrency_limit=8)
    calm(demo)
    demo.launch(
        server_name=settings.host,
        server_port=settings.port,
        theme=theme(),
        css=style(),
        head=POLICY,
        js=asset("page.js"),
        footer_links=["api"],
        run_history=False,
        allowed_paths=[str(Path(settings.examples).resolve())],
        max_file_size=f"{settings.upload_mb}mb",
        app_kwargs={
            "middleware": [
                Middleware(
                    Gate,
                    counts=input_counts(demo),
                    uploads=upload_budget(settings, sessions),
                    stream_ended=partial(stream_ended, demo),
                )
            ],
            "routes": routes(loader, sessions.context),
        },
        max_threads=THREADS,
        auth=settings.sign_in,
        auth_message="Recap: this server is for people with a name and a password.",
        state_session_capacity=settings.sessions,  # Gradio keeps a copy of the page for each
        ssr_mode=False,
        quiet=True,
        prevent_thread_lock=True,
    )
    if block:
        print(f"The page is at {demo.local_url} (Ctrl+C stops it).", flush=True)
        demo.block_thread()
    return demo


__all__ = ["VARIABLES", "Settings", "serve"]
