"""A running app's /chat over HTTP, as `load` drives it: one question, and when its answer came.

It speaks the queue's protocol (join, follow the events, cancel) instead of using `gradio_client`, because
the moment at which the app takes a question up is part of what is measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .samples import Sample


@dataclass(slots=True)
class Question:
    """One question and what came of it; times in seconds from sending it, None if it never got there."""

    decoder: str
    stage: str
    user: int
    sample: str
    turn: int
    sent_at: float
    wanted_tokens: int
    queue_s: float | None = None
    first_token_s: float | None = None
    end_s: float | None = None
    tokens: int = 0
    cut: bool = False
    compare_s: float | None = None
    error: str = ""

    @property
    def token_ms(self) -> float | None:
        """Milliseconds per token after the first."""
        if self.tokens < 2 or self.first_token_s is None or self.end_s is None:
            return None
        return 1e3 * (self.end_s - self.first_token_s) / (self.tokens - 1)


class App:
    """A running app over HTTP. `connect` comes first."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url, self.client = url.rstrip("/"), client
        self._chat = self._compare = -1  # numbers of the endpoints
        self._tokens, self._characters = 1, 4  # of the answers that ended by themselves
        self._files: dict[str, Any] = {}

    async def connect(self) -> None:
        """Find /chat. Raises ValueError with one sentence where there is no such app."""
        try:
            config = (await self.client.get(f"{self.url}/config")).raise_for_status().json()
            numbers = {d["api_name"]: d["id"] for d in config["dependencies"]}
            self._chat, self._compare = numbers["chat"], numbers.get("compare", -1)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            why = error or type(error).__name__
            raise ValueError(f"No app answers at {self.url}: {why}.") from None
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"The server at {self.url} is not this app: no /chat.") from None

    async def upload(self, sample: Sample) -> list[Any]:
        """The sample's images on the server, each sent once."""
        files = []
        for image in sample.images:
            key = str(image) if isinstance(image, Path) else sample.id
            if key not in self._files:
                data = image.read_bytes() if isinstance(image, Path) else image
                name = image.name if isinstance(image, Path) else "image.png"
                sent = await self._post("upload", files={"files": (name, data)})
                self._files[key] = {"path": sent[0], "meta": {"_type": "gradio.FileData"}}
            files.append(self._files[key])
        return files

    async def ask(self, session: str, text: str, files: Sequence[Any], question: Question) -> None:
        """Send one question of a session, follow its answer, fill in `question`."""
        data = [{"text": text, "files": list(files)}, question.decoder]
        body = {"data": data, "fn_index": self._chat, "session_hash": session}
        begun = time.perf_counter()
        try:
            joined = await self._post("queue/join", json=body | {"simple_format": True})
            await self._follow(session, joined["event_id"], question, begun)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            question.error = str(error) or type(error).__name__

    async def compare(self, session: str, question: Question) -> None:
        """Run every other decoder on the last answer, as the page does after each; wait for its end."""
        body = {"data": [], "fn_index": self._compare, "session_hash": session}
        begun = time.perf_counter()
        try:
            await self._post("queue/join", json=body)
            async for message in self._messages(session):
                if message.get("msg") == "process_completed":
                    break
            question.compare_s = time.perf_counter() - begun
        except (httpx.HTTPError, ValueError) as error:
            question.error = str(error) or type(error).__name__

    async def _follow(self, session: str, event: str, question: Question, begun: float) -> None:
        value: dict[str, Any] = {}
        async for message in self._messages(session):
            now, kind = time.perf_counter() - begun, message.get("msg")
            if kind not in ("process_generating", "process_completed"):
                continue
            output = message.get("output") or {}
            if not message.get("success", True):
                raise ValueError(str(output.get("error") or "the app reports an error"))
            value = output["data"][0] if output.get("data") else value
            text = value.get("text") or ""
            question.end_s = now
            if text and question.first_token_s is None:
                question.first_token_s = now
            if kind == "process_completed":
                break
            if not question.cut and self._estimate(text) >= question.wanted_tokens:
                question.cut = True
                stop = {"session_hash": session, "fn_index": self._chat, "event_id": event}
                await self._post("cancel", json=stop)
        if "tokens" in value:
            question.tokens = int(value["tokens"])
            question.queue_s = value.get("queue_s")
            question.cut = value.get("finish_reason") == "length"
            self._tokens += question.tokens
            self._characters += len(value["text"])
        elif question.cut:
            question.tokens = self._estimate(value.get("text") or "")
        else:
            raise ValueError("the answer broke off")

    async def _messages(self, session: str) -> AsyncIterator[dict[str, Any]]:
        url = f"{self.url}/gradio_api/queue/data"
        async with self.client.stream("GET", url, params={"session_hash": session}) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    async def _post(self, path: str, **content: Any) -> Any:
        sent = await self.client.post(f"{self.url}/gradio_api/{path}", **content)
        return sent.raise_for_status().json()

    def _estimate(self, text: str) -> int:
        """Tokens of a text, by the characters per token seen so far."""
        return max(1, round(len(text) * self._tokens / self._characters)) if text else 0
