"""What the page costs the decoder, and what a long trace costs the page: `python -m tests.tools.overhead`.

The same question, in turn through the library and on the page with Chromium looking on (from a process of its
own): one server process, one model, trees of one fixed size, empty memories. Prints the median tokens/s of both and the gap, by two clocks:
"decode" is the clock of every figure on the page (draft, pass, observe), "wall" is what a person's watch
says between the first pass and the last. "cpu" is the processor time of everything but the decoding
thread while the answer was made on the page, in % of that wall time. With --trace FILE it opens that trace
instead and prints the milliseconds of a scrub from end to end. Needs chromium and playwright.
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
from pathlib import Path
from typing import Any

import torch

from recap.conversation import Conversation
from recap.drafters import Drafter, make_drafter
from recap.engine import Answer, stream
from recap.page import launch
from recap.page.examples import Example, load_examples
from recap.page.names import DECODER_NAMES
from recap.page.uploads import read_image
from recap.server import run as server_run
from recap.server.model_loader import ModelLoader
from recap.server.sessions import Sessions
from recap.targets import load_target
from recap.targets.base import Target
from recap.trace import Step, Turn

from .browser import FLAGS, Person, chromium_path, free_port, heap_mb, scrub

QUESTION = "Describe everything in detail."


@dataclass(frozen=True, slots=True)
class Run:
    """One answer's speed: tokens/s by the decoder's clock and by the wall, other threads' share in %."""

    decode: float
    wall: float
    cpu: float


@dataclass
class Clock:
    """What a watch says of one run, between its first pass and its last: `wall_s`, the `tokens` that
    came in that time, and the processor seconds that other threads took (`others_s`)."""

    wall_s: float = 0.0
    tokens: int = 0
    others_s: float = 0.0

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
    def tokens_per_s(self) -> float:
        """Speed by the wall; 0.0 with fewer than two passes."""
        return self.tokens / self.wall_s if self.wall_s else 0.0


CLOCKS: dict[str, Clock] = {}
"""Decoder -> the clock of its newest answer on the page."""


def clocked(conversation: Conversation, drafter: Drafter, **settings: Any) -> Answer:
    """`engine.stream` with a clock around its steps; takes the place of the server's."""
    answer, clock = stream(conversation, drafter, **settings), Clock()
    CLOCKS[drafter.name] = clock
    answer._iterator = clock.time(answer._iterator)
    return answer


def run_of(clock: Clock, turn: Turn) -> Run:
    return Run(
        turn.tokens_per_s, clock.tokens_per_s, 100.0 * clock.others_s / max(clock.wall_s, 1e-9)
    )


def in_library(target: Target, decoder: str, example: Example, question: str, most: int) -> Run:
    """The answer as `recap.stream` gives it, recording on as on the page."""
    conversation = Conversation(target)
    conversation.ask(question, [read_image(example.path)])
    drafter = make_drafter(decoder, vocab_size=target.vocab_size)
    answer, clock = stream(conversation, drafter, max_new_tokens=most), Clock()
    for _ in clock.time(answer):
        pass
    assert answer.turn is not None
    return run_of(clock, answer.turn)


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
def person_beside(address: str) -> Iterator[Connection]:
    """A process with a browser that asks what it is sent."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=ask_on_pages, args=(address, there), daemon=True)
    process.start()
    there.close()  # so that its end is noticed here
    try:
        yield here
        here.send(None)
        process.join(30)
    finally:
        process.kill()


def on_the_page(
    person: Connection, sessions: Sessions, decoder: str, example: int, question: str
) -> Run:
    """The answer on a page of its own, asked and awaited in another process."""
    person.send((decoder, example, question))
    person.recv()
    record = list(sessions)[-1].turns[-1]
    person.send(None)
    return run_of(CLOCKS[decoder], record.runs[decoder])


def figures(decoder: str, library: list[Run], seen: list[Run]) -> dict[str, Any]:
    """Medians, and by how many % the page is slower."""
    found: dict[str, Any] = {"decoder": decoder, "n": len(library)}
    for clock in ("decode", "wall"):
        alone, there = (
            statistics.median(getattr(r, clock) for r in runs) for runs in (library, seen)
        )
        found[f"{clock}_library"], found[f"{clock}_page"] = round(alone, 1), round(there, 1)
        found[f"{clock}_gap_%"] = round(100.0 * (1.0 - there / alone), 1)
    return found | {"others_cpu_%": round(statistics.median(r.cpu for r in seen), 1)}


@contextmanager
def served(loader: ModelLoader, sessions: Sessions, most: int) -> Iterator[str]:
    """The page in this process -> its address."""
    settings = launch.Settings(port=free_port(), max_new_tokens=most)
    demo = launch.serve(settings, loader, sessions, block=False)
    try:
        yield f"http://127.0.0.1:{settings.port}"
    finally:
        demo.close()


def main() -> None:
    """Measure and print one JSON line a decoder."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--n", type=int, default=9, help="answers of each kind")
    parser.add_argument("--tokens", type=int, default=400, help="longest answer")
    parser.add_argument("--threads", type=int, default=1, help="of the model")
    parser.add_argument("--decoders", default="recap,autoregressive")
    parser.add_argument("--example", type=int, default=0, help="number of the example image")
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--trace", type=Path, help="a trace file to scrub, n times")
    arguments = parser.parse_args()
    if chromium_path() is None:
        raise SystemExit("chromium is not installed: install your system's package “chromium”.")
    torch.set_num_threads(arguments.threads)
    target = load_target(arguments.model)
    loader, sessions = ModelLoader(arguments.model, lambda: target), Sessions()
    example = load_examples()[arguments.example]
    server_run.stream = clocked
    with served(loader, sessions, arguments.tokens) as address:
        if arguments.trace:
            print(json.dumps(scrubbed(address, arguments.trace, arguments.n)))
            return
        with person_beside(address) as person:
            for decoder in arguments.decoders.split(","):
                library: list[Run] = []
                seen: list[Run] = []
                asked = arguments.question
                for _ in range(arguments.n):
                    library.append(in_library(target, decoder, example, asked, arguments.tokens))
                    seen.append(on_the_page(person, sessions, decoder, arguments.example, asked))
                print(json.dumps(figures(decoder, library, seen)), flush=True)


def scrubbed(address: str, trace: Path, times: int) -> dict[str, int]:
    """Open a trace on the page and scrub it from end to end -> steps, median milliseconds, megabytes."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        person = Person(browser.new_page(), address).open()
        person.trace(trace)
        took = statistics.median(scrub(person) for _ in range(times))
        found = {"steps": person.place()[1], "scrub_ms": round(took), "heap_mb": heap_mb(person)}
        browser.close()
    return found


if __name__ == "__main__":
    main()
