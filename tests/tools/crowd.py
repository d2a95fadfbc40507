"""Many people on the real app for a while, on pages and by the API: `python -m tests.tools.crowd`.

`soak` has those who use the API. A person on a page sends the page's own events over HTTP, as a browser does.

Checked after every answer: the chat holds this person's questions and no others, and the answer is what the
same conversation gets alone.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from html import unescape
from itertools import pairwise
from typing import Any

import httpx

from .soak import User, soak

CHAIN = ("ask", "answer", "show", "compare", "compared")
"""The events of a question, each one following the one before."""


class PageUser(User):
    """Asks, compares, starts new chats, reloads, and drops answers on the page."""

    def actions(self) -> tuple[Any, ...]:
        """What such a person does."""
        return self.ask, self.ask, self.ask, self.leave, self.stop, self.clear, self.reload

    # ---- the page's events

    @cached_property
    def events_by_name(self) -> dict[str, dict[str, Any]]:
        """The page's events, from its configuration: those of a question, "stop" and "clear"."""
        root = str(self.http.base_url).removesuffix("/gradio_api/")
        config = httpx.get(f"{root}/config", timeout=600).json()
        by_id = {part["id"]: part for part in config["components"]}
        self.defaults = {part["id"]: part["props"].get("value") for part in config["components"]}
        self.ids = {
            part["props"].get("elem_id"): part["id"]
            for part in by_id.values()
            if part["props"].get("elem_id")
        }
        found: dict[str, dict[str, Any]] = {}
        for event in config["dependencies"]:
            targets = [tuple(target) for target in event["targets"]]
            if (self.ids["box"], "submit") in targets:
                found["ask"] = event
            elif (self.ids["box"], "stop") in targets:
                found["stop"] = event
            elif (self.ids["clear"], "click") in targets:
                found["clear"] = event
        for name, following in pairwise(CHAIN):
            found[following] = next(
                event
                for event in config["dependencies"]
                if event.get("trigger_after") == found[name]["id"]
            )
        return found

    def begin(self, name: str, values: dict[int, Any]) -> str:
        """Send an event -> its id. values: by component, the others as the page has them at first."""
        event = self.events_by_name[name]
        data = [values.get(part, self.defaults.get(part)) for part in event["inputs"]]
        body = {"data": data, "fn_index": event["id"], "session_hash": self.page}
        return self.http.post("/queue/join", json=body).raise_for_status().json()["event_id"]

    def messages(self, event_id: str) -> Iterator[dict[str, Any]]:
        """What the server sends for one event, until it is complete; closing it drops the connection."""
        where = f"/queue/data?session_hash={self.page}"
        with self.http.stream("GET", where) as stream:
            for line in stream.iter_lines():
                if not line.startswith("data: "):
                    continue
                message = json.loads(line.removeprefix("data: "))
                if message.get("event_id") == event_id:
                    yield message
                    if message["msg"] == "process_completed":
                        return

    def outputs(self, name: str, values: dict[int, Any]) -> dict[int, Any]:
        """Run an event to its end -> what each component was given last."""
        *_, last = self.messages(self.begin(name, values))
        if not last["success"]:
            self.report.fault(f"{self.name}: {name} failed: {str(last)[:300]}")
            return {}
        return dict(zip(self.events_by_name[name]["outputs"], last["output"]["data"], strict=False))

    # ---- what people do

    @contextmanager
    def there(self) -> Iterator[None]:
        """The connection that says that the page is there."""
        with self.http.stream("GET", f"/heartbeat/{self.page}") as beat:
            next(beat.iter_lines())
            yield

    def send(self) -> None:
        """The next question, shown."""
        _, (message, decoder) = self.question()
        parts = self.events_by_name["ask"]["inputs"]
        values = {self.ids["box"]: message, self.ids["decoder"]: decoder}
        values[parts[2]] = None  # Gradio keeps the page's state itself
        shown = self.outputs("ask", values)
        if not isinstance(shown.get(self.ids["chat"]), list):
            self.report.fault(f"{self.name}: not asked: {shown.get(self.ids['status'])}")

    def ask(self) -> None:
        """A question, its answer, and often the comparison behind it."""
        self.send()
        self.outputs("answer", {})
        shown = self.outputs("show", {})
        chat = shown.get(self.ids["chat"])
        if not isinstance(chat, list):  # Gradio's word for "unchanged"
            self.report.fault(f"{self.name}: an answer was not shown")
            self.page = ""
            return
        self.check(chat)
        if self.rng.random() < 0.5:
            self.outputs("compare", {self.ids["chosen"]: ["recap", "token_recycling"]})
            table = self.outputs("compared", {}).get(self.ids["results"]) or ""
            if "identical output: no" in str(table):
                self.report.fault(f"{self.name}: decoders differ: {table[:300]}")
            self.report.done["comparisons"] += 1

    def check(self, chat: list[dict[str, Any]]) -> None:
        """The chat holds this person's own conversation, and its answers are those that it gets alone."""
        texts: dict[str, list[str]] = {"user": [], "assistant": []}
        for message in chat:
            parts = message["content"] if isinstance(message["content"], list) else []
            words = [str(part["text"]) for part in parts if part.get("type") == "text"]
            texts[message["role"]].append(unescape(" ".join(words)))
        asked = [words for _, words in self.asked]
        if texts["user"] != asked:
            self.report.fault(f"{self.name}: the chat holds {texts['user']}, asked was {asked}")
            return
        alone = self.alone.text(self.asked)
        if texts["assistant"][-1:] != [alone or "(no words)"]:
            self.report.fault(f"{self.name}: {texts['assistant'][-1:]} instead of {alone!r}")
        self.report.done["answers on pages"] += 1

    def leave(self) -> None:
        """The connection is lost in the middle of an answer; the person goes on with a new page."""
        self.send()
        stream = self.messages(self.begin("answer", {}))
        next(stream, None)
        stream.close()
        self.report.done["dropped pages"] += 1
        self.page = ""

    def stop(self) -> None:
        """Stop an answer; then a new chat."""
        self.send()
        answer = self.begin("answer", {})
        stop = self.events_by_name["stop"]
        body = {"data": [None], "fn_index": stop["id"], "session_hash": self.page}
        self.http.post("/run/predict", json=body)
        for _ in self.messages(answer):
            pass
        self.report.done["stops on pages"] += 1
        self.clear()

    def clear(self) -> None:
        """New chat."""
        if self.page and self.asked:
            chat = self.outputs("clear", {}).get(self.ids["chat"])
            if chat:
                self.report.fault(f"{self.name}: a new chat holds {str(chat)[:200]}")
            self.report.done["new chats"] += 1
        self.asked = ()

    def reload(self) -> None:
        """The page is opened again: a conversation of its own."""
        self.page, self.asked = f"soak-{self.rng.getrandbits(64):016x}", ()
        with self.there():
            self.ask()
        self.report.done["reloads"] += 1


def main() -> int:
    """Run a soak and print what happened -> 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.crowd", description=__doc__)
    parser.add_argument("--pages", type=int, default=50, help="people on pages")
    parser.add_argument("--clients", type=int, default=50, help="programs on the API")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--warm", type=float, default=60, help="seconds before memory is noted")
    args = parser.parse_args()
    kinds = [PageUser] * args.pages + [User] * args.clients
    report = soak(kinds, seconds=args.seconds, warm_s=args.warm)
    for what, count in sorted(report.done.items()):
        print(f"{count:6} {what}")
    first, last = report.rss_mb
    print(f"resident memory: {first:.0f} MB after the warm-up, {last:.0f} MB at the end")
    print(f"an answer whose page was closed ended after {max(report.release_s):.2f} s at most")
    print(*report.wrong, f"{len(report.wrong)} wrong", sep="\n")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
