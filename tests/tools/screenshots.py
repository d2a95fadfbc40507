"""The README's pictures: `python -m tests.tools.screenshots OUTDIR [--address URL]`.

Starts the real app (or looks at a running one), talks to it as a person would, and writes
page-light.png, page-dark.png, page-narrow.png and race.png. Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from .browser import FLAGS, Person, chromium_path, running_app

VIEWS: dict[str, dict[str, Any]] = {
    "page-light": {"viewport": {"width": 1400, "height": 900}},
    "page-dark": {"viewport": {"width": 1400, "height": 900}},
    "page-narrow": {"viewport": {"width": 390, "height": 844}, "has_touch": True},
}
BEST = """() => {
  const tokens = [...document.querySelectorAll(".rt-step")].map((bar) => Number(bar.style.getPropertyValue("--tokens")));
  return tokens.indexOf(Math.max(...tokens));
}"""


def converse(person: Person, example: int) -> None:
    """Ask the picked example's first question and one with a long answer, show a good step."""
    person.pick(example)
    chips = person.page.locator(".rc-chip").all_inner_texts()
    person.ask()
    person.compared()
    if len(chips) > 1:
        person.ask(next((chip for chip in chips if "detail" in chip), chips[1]))
        person.compared()
    person.page.mouse.move(0, 0)
    best = person.page.evaluate(BEST)
    person.page.locator(".rt-slider").fill(str(best + 1))
    node = person.page.locator(".rt-node.rt-accepted").last
    if node.count():
        node.dispatch_event("click")  # no pointer, which might rest on a step of the strip


def take(browser: Any, address: str, out: Path, example: int) -> list[Path]:
    """All pictures -> their files."""
    files = []
    for name, view in VIEWS.items():
        context = browser.new_context(reduced_motion="reduce", **view)
        person = Person(context.new_page(), address).open(dark=name.endswith("dark"))
        converse(person, example)
        person.page.evaluate("window.scrollTo(0, 0)")
        person.page.wait_for_timeout(600)  # charts settle
        files.append(out / f"{name}.png")
        person.page.screenshot(path=files[-1], full_page=True)
        if name == "page-light":
            person.page.locator(".rt-race-button").click()
            person.until(
                lambda p=person: "1. " in p.page.locator(".rt-race .rt-sentence").inner_text(),
                "the race",
            )
            files.append(out / "race.png")
            person.page.locator("#inspector").screenshot(path=files[-1])
        context.close()
    return files


def main() -> None:
    """Parse the command line, start what is needed, write the pictures."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.screenshots", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the pictures")
    parser.add_argument("--address", help="a running page; default: start the app")
    parser.add_argument("--example", type=int, default=0, help="number of the example to pick")
    arguments = parser.parse_args()
    if chromium_path() is None:
        raise SystemExit("chromium is not installed: install your system's package “chromium”.")
    from playwright.sync_api import sync_playwright

    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        app = (
            nullcontext(arguments.address)
            if arguments.address
            else running_app(Path(scratch) / "app.log")
        )
        with app as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
            for file in take(browser, address, arguments.out, arguments.example):
                print(file)
            browser.close()


if __name__ == "__main__":
    main()
