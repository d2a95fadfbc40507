"""The demo: `python app.py` serves the page. Settings come from environment variables alone."""

# ruff: noqa: E402  (libraries read these settings when they are imported)
from __future__ import annotations

import argparse
import atexit
import gc
import logging
import os
import shutil
import tempfile
import warnings

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # no call to another host
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# Gradio would keep a table of all events and rebuild it at each one.
os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", "1000000")
os.environ.setdefault("GRADIO_ANALYTICS_MAX_EVENTS", "1")
warnings.filterwarnings("ignore", module=r"pydantic\.")  # about Gradio's models, in some versions

from recap.page.launch import VARIABLES, Settings, serve
from recap.pass_timing import pass_cost
from recap.server import allocator
from recap.server.model_loader import ModelLoader
from recap.server.sessions import Sessions
from recap.targets import Target, load_target
from recap.targets.catalogue import bundled


def freeze() -> None:
    """Take the model's objects out of garbage collection: a full one would stop all threads for 0.3 s."""
    gc.collect()
    gc.freeze()


def main() -> None:
    """Read the settings, load the model in the background, serve the page."""
    listing = "\n".join(f"  {name:24} {text}" for name, text in VARIABLES.items())
    parser = argparse.ArgumentParser(
        description="Serve the Recap demo page.",
        epilog=f"environment variables:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args()
    settings = Settings.from_environment()
    allocator.steady()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("recap").setLevel(logging.INFO)
    if "GRADIO_TEMP_DIR" not in os.environ:  # uploads go with the process
        os.environ["GRADIO_TEMP_DIR"] = tempfile.mkdtemp(prefix="recap-")
        atexit.register(shutil.rmtree, os.environ["GRADIO_TEMP_DIR"], ignore_errors=True)

    def load(name: str, **more: str) -> Target:
        if name in bundled():  # they load in a second; a bar helps with a large model alone
            from transformers.utils.logging import disable_progress_bar

            disable_progress_bar()
        target = load_target(name, **more)
        target.max_context = min(target.max_context, settings.max_context or target.max_context)
        return target

    print(f"Loading the model “{settings.model}”.", flush=True)
    loader = ModelLoader(
        settings.model,
        lambda: load(settings.model, **settings.load),
        measure=pass_cost,
        fallback=None if settings.model == "demo" else lambda: load("demo"),
    )
    loader.then(lambda _: freeze())
    sessions = Sessions(
        limit=settings.sessions,
        idle_s=60.0 * settings.idle_minutes,
        grace_s=settings.grace_seconds,
        context=settings.context(),
    )
    serve(settings, loader, sessions)


if __name__ == "__main__":
    main()
