"""The demo: `python app.py` serves the page. Settings come from environment variables alone."""

from __future__ import annotations

import os

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # no call to another host
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import argparse

from recap.calibration import pass_cost
from recap.service import ModelLoader, Sessions
from recap.targets import load_target
from recap.ui.launch import VARIABLES, Settings, serve


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
    loader = ModelLoader(
        settings.model, lambda: load_target(settings.model, **settings.load), measure=pass_cost
    )
    serve(settings, loader, Sessions(limit=settings.sessions, idle_s=60.0 * settings.idle_minutes))


if __name__ == "__main__":
    main()
