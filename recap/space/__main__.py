"""`python -m recap.space check | diff | apply [--dry-run]`: the hosted Space from the Spacefile."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from . import live, plan
from .check import check
from .spacefile import ROOT, SpaceError, load


def main(argv: list[str] | None = None) -> int:
    """Run one command -> exit status: 0 right or nothing to do, 1 mistakes or differences, 2 failed."""
    parser = argparse.ArgumentParser(prog="python -m recap.space", description=__doc__)
    parser.add_argument("command", choices=("check", "diff", "apply"))
    parser.add_argument("--dry-run", action="store_true", help="apply: print the calls, make none")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository, default this one")
    args = parser.parse_args(argv)
    if args.dry_run and args.command != "apply":
        parser.error("--dry-run belongs to apply")
    try:
        return run(args.command, args.root, dry=args.dry_run)
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
    space, api = load(root / "Spacefile"), live.hub()
    repository = live.full_name(api, space.repository)
    calls = plan.plan(space, live.read(api, repository), root)
    if command == "diff":
        for call in calls:
            print(call.said)
        print(f"{len(calls)} differences" if calls else f"{repository} is as the Spacefile says.")
        return 1 if calls else 0
    if dry:
        for call in calls:
            print(call)
        print("No call was made.")
        return 0
    if not calls:
        print(f"{repository} is as the Spacefile says: nothing to do.")
        return 0
    plan.apply(api, calls, print)
    plan.wait(api, space, repository, print)
    print(f"smoke test: {plan.smoke_test(api, space, repository)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
