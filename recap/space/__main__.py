"""`python -m recap.space check | diff | apply [--dry-run]`: the hosted Space from the Spacefile."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from huggingface_hub import HfApi

from . import deploy
from .check import check
from .spacefile import ROOT, SpaceError, load


def main(argv: list[str] | None = None) -> int:
    """Run one command -> exit status: 0 right or nothing to do, 1 mistakes or differences, 2 failed."""
    parser = argparse.ArgumentParser(
        prog="python -m recap.space",
        description="Compare the Spacefile with this repository and with the hosted Space, and deploy it.",
    )
    parser.add_argument(
        "command",
        choices=("check", "diff", "apply"),
        help="check: offline; diff: what is hosted against the Spacefile; apply: deploy and test",
    )
    parser.add_argument("--dry-run", action="store_true", help="apply: print the calls, make none")
    parser.add_argument(
        "--root", type=Path, default=ROOT, metavar="DIR", help="the repository, default this one"
    )
    options = parser.parse_args(argv)
    if options.dry_run and options.command != "apply":
        parser.error("--dry-run belongs to apply")
    try:
        return run(options.command, options.root, dry=options.dry_run)
    except SpaceError as error:
        print(error, file=sys.stderr)
        return 2


def run(command: str, root: Path, *, dry: bool = False) -> int:
    """See `main`."""
    mistakes = check(root)
    for sentence in mistakes:
        print(sentence, file=sys.stderr)
    if command == "check":
        print(f"{len(mistakes)} mistakes" if mistakes else "The Spacefile is right.")
    if mistakes or command == "check":
        return 1 if mistakes else 0
    space, api = load(root / "Spacefile"), HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    repository = deploy.full_name(api, space.repository)
    calls = deploy.plan(space, deploy.read(api, repository), root)
    if command == "diff":
        print("\n".join(call.words for call in calls))
        print(f"{len(calls)} differences" if calls else f"{repository} is as the Spacefile says.")
        return 1 if calls else 0
    if dry:
        print("\n".join(map(str, calls)))
        print("No call was made.")
    elif not calls:
        print(f"{repository} is as the Spacefile says: nothing to do.")
    else:
        deploy.apply(api, calls, print)
        deploy.wait(api, space, repository, print)
        print(f"smoke test: {deploy.smoke_test(api, space, repository)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
