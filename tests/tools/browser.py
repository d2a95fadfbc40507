"""The real app in a process of its own, and Chromium looking at it; shared by tests and screenshots.

Every page fails its test on a console error, a page error, or a request to another host.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
START_S = 120.0


def chromium_path() -> str | None:
    """Where the browser is, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running_app(log: Path, **environment: str) -> Iterator[str]:
    """`python app.py` on a free port -> its address once the page answers; ends the process afterwards."""
    with started_app(log, "/config", **environment) as (address, _):
        yield address


@contextmanager
def started_app(log: Path, ready: str, **environment: str) -> Iterator[tuple[str, int]]:
    """`python app.py` on a free port -> its address and process id, once its path `ready` answers."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    env = {**os.environ, "RECAP_PORT": str(port), **environment}
    with log.open("w") as out:
        command = [sys.executable, str(ROOT / "app.py")]
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out)
        try:
            wait_for(address + ready, process, log)
            yield address, process.pid
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"The app did not start:\n{log.read_text()[-3000:]}")


class Watch:
    """Collects what must not happen on a page."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def on(self, page: Any, address: str) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        page.on("request", lambda request: self._request(request.url, address))

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _request(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:", "blob:", address.replace("http", "ws"))):
            self.faults.append(f"request to another host: {url}")


class Person:
    """What a person does on the page, and what they see."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address

    def open(self, *, dark: bool = False) -> Person:
        self.page.goto(self.address + ("/?__theme=dark" if dark else ""))
        seen = self.page.locator("body")
        ready = self.page.locator(".rc-model")
        self.until(lambda: ready.count() > 0, "the loaded model's line", START_S, told=seen)
        return self

    @property
    def answers(self) -> list[str]:
        return self.page.locator("#chat [data-testid=bot]").all_inner_texts()

    @property
    def status(self) -> str:
        return self.page.locator("#status .rc-status").inner_text()

    @property
    def counters(self) -> dict[str, Any]:
        return self.page.evaluate("window.__recapTree")

    def sentence(self) -> str:
        return self.page.locator(".rt-body .rt-sentence").inner_text()

    def place(self) -> tuple[int, int]:
        """(step shown, steps), from 1."""
        shown, of = self.page.locator(".rt-position").inner_text().split("/")
        return int(shown), int(of)

    def until(
        self, true: Callable[[], bool], what: str, timeout: float = 60.0, told: Any = None
    ) -> None:
        """Look until it is true; the page keeps running in between. told: what a failure quotes."""
        end = time.monotonic() + timeout
        while not true():
            if time.monotonic() > end:
                says = (told or self.page.locator("#status")).inner_text()[:2000]
                raise AssertionError(f"waited in vain for: {what}; the page says: {says}")
            self.page.wait_for_timeout(50)

    def type(self, text: str) -> None:
        self.page.locator("#box textarea").fill(text)

    def send(self) -> None:
        self.page.locator("#box textarea").press("Enter")

    def ask(self, text: str | None = None) -> str:
        """Ask what stands in the box (or `text`) and wait for the whole answer."""
        before = len(self.answers)
        if text is not None:
            self.type(text)
        self.send()
        self.until(lambda: len(self.answers) == before + 1, "an answer to begin")
        self.page.locator("#status .rc-status.done").wait_for(timeout=60_000)
        self.answered()
        return self.answers[-1]

    def answered(self, answers: int = 0) -> None:
        """Wait until the last answer is complete, and at least so many answers are there."""

        def there() -> bool:
            figures = re.search("tokens per step, [0-9]+ tokens/s [(]", self.status)
            return bool(figures) and len(self.answers) >= answers

        self.until(there, "the figures of the answer")

    def pick(self, index: int) -> None:
        """Pick an example; its image and first question are then in the box."""
        self.page.locator(".rc-thumb").nth(index).click()
        box = self.page.locator("#box textarea")
        self.until(lambda: bool(box.input_value()), "the example's question in the box")
        self.until(lambda: self.page.locator("#box img").count() == 1, "the example's image")

    def compared(self, n: int = 4) -> None:
        """Wait until n decoders stand in the table."""
        rows = self.page.locator("#results tbody tr")
        runs = self.page.locator(".rt-whose .rt-button")
        self.until(lambda: rows.count() >= n <= runs.count(), f"{n} decoders in table and tree")

    def decoder(self, name: str) -> None:
        self.page.locator("#decoder").get_by_role("radio", name=name, exact=True).check()

    def button(self, name: str) -> Any:
        return self.page.locator("#inspector").get_by_role("button", name=name, exact=True)

    def trace(self, path: Path) -> None:
        """Open a trace file in the inspector."""
        self.page.locator(".rt-file").set_input_files(str(path))
        summary = self.page.locator(".rt-summary")
        self.until(lambda: path.name in summary.inner_text(), "the file")

    def upload(self, path: Path) -> None:
        self.page.locator("#box input[type=file]").set_input_files(str(path))
