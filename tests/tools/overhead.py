"""What the page costs the decoder: `python -m tests.tools.overhead`.

The same question, in turn through the library and on the page with Chromium looking on (from a process of its
own): one server process, one model, trees of one fixed size, empty memories. Prints the median tokens/s of
both and the gap, by two clocks: "decode" is the clock of every figure on the page (draft, pass, observe),
"wall" is the wall clock between the first pass and the last. "others_cpu" is the processor time of all other
threads during an answer on the page, in % of that wall time. Needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from recap.conversation import Conversation
from recap.drafters import Drafter, make_drafter
from recap.engine import Answer, stream
from recap.page import launch
from recap.page.examples import Example, load_examples
from recap.page.names import DECODER_NAMES
from recap.server import run as server_run
from recap.server.model_loader import ModelLoader
from recap.server.sessions import Sessions
from recap.targets import load_target
from recap.targets.base import Target
from recap.targets.images import open_image
from recap.trace import Step

from .browser import FLAGS, Person, chromium_path, free_port


@dataclass
class Clock:
    """One answer between its first pass and its last: `wall_s`, the `tokens` that came in that time, and the
    processor seconds that other threads took (`others_s`). `decode`: tokens/s by the decoder's own clock."""

    wall_s: float = 0.0
    tokens: int = 0
    others_s: float = 0.0
    decode: float = 0.0

    def time(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Pass the steps on and note the time; to be used in the thread that decodes."""
        begun = others = None
        for step in steps:
            now, busy = time.perf_counter(), time.process_time() - time.thread_time()
            if begun is None or others is None:
                begun, others = now, busy
            else:
                self.tokens += len(step.token_ids)
            self.wall_s, self.others_s = now - begun, busy - others
            yield step

    @property
    def wall(self) -> float:
        """Tokens/s by the wall clock."""
        return self.tokens / max(self.wall_s, 1e-9)

    @property
    def others_cpu(self) -> float:
        """Processor time of other threads, in % of the wall time."""
        return 100.0 * self.others_s / max(self.wall_s, 1e-9)


CLOCKS: dict[str, Clock] = {}
"""Decoder -> the clock of its newest answer on the page."""


def clocked(conversation: Conversation, drafter: Drafter, **settings: Any) -> Answer:
    """`engine.stream` with a clock around its steps; takes the place of the server's."""
    answer, clock = stream(conversation, drafter, **settings), Clock()
    CLOCKS[drafter.name] = clock
    answer._iterator = clock.time(answer._iterator)
    return answer


def in_library(target: Target, decoder: str, example: Example, question: str, most: int) -> Clock:
    """The answer as `recap.stream` gives it, recording on as on the page."""
    conversation = Conversation(target)
    conversation.ask(question, [open_image(example.path)])
    drafter = make_drafter(decoder, vocab_size=target.vocab_size)
    answer, clock = stream(conversation, drafter, max_new_tokens=most), Clock()
    for _ in clock.time(answer):
        pass
    assert answer.turn is not None
    clock.decode = answer.turn.tokens_per_s
    return clock


def ask_on_pages(address: str, asked: Connection) -> None:
    """Ask (decoder, example, question) as they come, each on a page of its own, as a person does.

    Runs in a process of its own, as a person's browser does: it must not take the server's interpreter.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        while (what := asked.recv()) is not None:
            decoder, example, question = what
            context = browser.new_context()
            person = Person(context.new_page(), address).open()
            person.pick(example)
            person.decoder(DECODER_NAMES[decoder])
            person.ask(question)
            asked.send(None)
            asked.recv()  # the page stays until its figures are read
            context.close()
        browser.close()


@contextmanager
def browser_process(address: str) -> Iterator[Connection]:
    """A process with a browser that asks what it is sent."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=ask_on_pages, args=(address, there), daemon=True)
    process.start()
    there.close()  # so that the end of the process is noticed here
    try:
        yield here
        here.send(None)
        process.join(30)
    finally:
        process.kill()


def on_the_page(
    pages: Connection, sessions: Sessions, decoder: str, example: int, question: str
) -> Clock:
    """The answer on a page of its own, asked and awaited in another process."""
    pages.send((decoder, example, question))
    pages.recv()
    clock = CLOCKS[decoder]
    clock.decode = list(sessions)[-1].turns[-1].runs[decoder].tokens_per_s
    pages.send(None)
    return clock


def figures(decoder: str, library: list[Clock], page: list[Clock]) -> dict[str, Any]:
    """Medians, and by how many % the page is slower."""
    found: dict[str, Any] = {"decoder": decoder, "n": len(library)}
    for clock in ("decode", "wall"):
        alone, there = (
            statistics.median(getattr(r, clock) for r in runs) for runs in (library, page)
        )
        found[f"{clock}_library"], found[f"{clock}_page"] = round(alone, 1), round(there, 1)
        found[f"{clock}_gap_%"] = round(100.0 * (1.0 - there / alone), 1)
    return found | {"others_cpu_%": round(statistics.median(r.others_cpu for r in page), 1)}


def main() -> None:
    """Measure and print one JSON line per decoder."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--n", type=int, default=9, help="answers of each kind")
    parser.add_argument("--tokens", type=int, default=400, help="longest answer")
    parser.add_argument("--example", type=int, default=0, help="number of the example image")
    parser.add_argument("--question", default="Describe everything in detail.")
    arguments = parser.parse_args()
    question, most, index = arguments.question, arguments.tokens, arguments.example
    if chromium_path() is None:
        raise SystemExit("chromium is not installed: install your system's package “chromium”.")
    torch.set_num_threads(1)
    target, example = load_target(arguments.model), load_examples()[index]
    loader, sessions = ModelLoader(arguments.model, lambda: target), Sessions()
    server_run.stream = clocked
    settings = launch.Settings(port=free_port(), max_new_tokens=most)
    demo = launch.serve(settings, loader, sessions, block=False)
    with browser_process(f"http://127.0.0.1:{settings.port}") as pages:
        for decoder in ("recap", "autoregressive"):
            library: list[Clock] = []
            page: list[Clock] = []
            for _ in range(arguments.n):
                library.append(in_library(target, decoder, example, question, most))
                page.append(on_the_page(pages, sessions, decoder, index, question))
            print(json.dumps(figures(decoder, library, page)), flush=True)
    demo.close()


if __name__ == "__main__":
    main()
