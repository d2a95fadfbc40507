"""A running app's /chat over HTTP, as `load` drives it: one question, and when its answer came.

It speaks the queue's protocol (join, follow the events, cancel), not `gradio_client`, because the moment
at which the app takes a question up is part of what is measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from .suites import Sample


@dataclass(slots=True)
class Asked:
    """One question and what came of it; times in seconds from sending it, None if it did not come to that."""

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
    error: str = ""

    @property
    def token_ms(self) -> float | None:
        """Milliseconds per token after the first."""
        if self.tokens < 2 or self.first_token_s is None or self.end_s is None:
            return None
        return 1e3 * (self.end_s - self.first_token_s) / (self.tokens - 1)


class App:
    """A running app's queue over HTTP."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url, self.client = url.rstrip("/"), client
        self.fn_index = -1
        self.takes_length = False
        self.chars_per_token = 4.0
        self._ended: list[tuple[int, int]] = []
        self._files: dict[str, Any] = {}

    async def connect(self) -> None:
        """Find /chat. Raises ValueError with one sentence where there is no such app."""
        try:
            config = (await self.client.get(f"{self.url}/config")).raise_for_status().json()
            info = (await self.client.get(f"{self.url}/gradio_api/info")).raise_for_status().json()
            places = [d["id"] for d in config["dependencies"] if d.get("api_name") == "chat"]
            parameters = info["named_endpoints"]["/chat"]["parameters"]
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ValueError(
                f"No app answers at {self.url}: {error or type(error).__name__}."
            ) from None
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"What answers at {self.url} is not this app: it has no /chat."
            ) from None
        self.fn_index = places[0]
        self.takes_length = any(p.get("parameter_name") == "max_new_tokens" for p in parameters)

    async def upload(self, sample: Sample) -> list[Any]:
        """The sample's images on the server, each sent once."""
        files = []
        for image in sample.images:
            key = str(image) if isinstance(image, Path) else sample.id
            if key not in self._files:
                data = image.read_bytes() if isinstance(image, Path) else image
                name = image.name if isinstance(image, Path) else "image.png"
                sent = await self.client.post(
                    f"{self.url}/gradio_api/upload", files={"files": (name, data)}
                )
                path = sent.raise_for_status().json()[0]
                self._files[key] = {"path": path, "meta": {"_type": "gradio.FileData"}}
            files.append(self._files[key])
        return files

    async def ask(self, session: str, text: str, files: Sequence[Any], asked: Asked) -> None:
        """Put one question of a session, follow its answer, fill in `asked`."""
        data: list[Any] = [{"text": text, "files": list(files)}, asked.decoder]
        if self.takes_length:
            data.append(asked.wanted_tokens)
        body = {"data": data, "fn_index": self.fn_index, "session_hash": session}
        begun = time.perf_counter()
        try:
            joined = await self.client.post(
                f"{self.url}/gradio_api/queue/join", json=body | {"simple_format": True}
            )
            event = joined.raise_for_status().json()["event_id"]
            await self._follow(session, event, asked, begun)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            asked.error = str(error) or type(error).__name__

    async def _follow(self, session: str, event: str, asked: Asked, begun: float) -> None:
        value: dict[str, Any] = {}
        async for message in self._messages(session):
            now, kind = time.perf_counter() - begun, message.get("msg")
            if kind == "process_starts":
                asked.queue_s = now
            if kind not in ("process_generating", "process_completed"):
                continue
            output = message.get("output") or {}
            if not message.get("success", True):
                raise ValueError(str(output.get("error") or "the app reports an error"))
            if output.get("data"):
                value = output["data"][0]
            text = value.get("text") or ""
            if text and asked.first_token_s is None:
                asked.first_token_s = now
            asked.end_s = now
            if kind == "process_completed":
                break
            if (
                not asked.cut
                and self._estimate(text) >= asked.wanted_tokens
                and not self.takes_length
            ):
                asked.cut = True
                body = {"session_hash": session, "fn_index": self.fn_index, "event_id": event}
                await self.client.post(f"{self.url}/gradio_api/cancel", json=body)
        if "tokens" in value:
            asked.tokens = int(value["tokens"])
            asked.cut = value.get("finish_reason") == "length"
            self._learn(asked.tokens, len(value["text"]))
        elif asked.cut:
            asked.tokens = self._estimate(value.get("text") or "")
        else:
            raise ValueError("the answer broke off")

    async def _messages(self, session: str) -> AsyncIterator[dict[str, Any]]:
        url = f"{self.url}/gradio_api/queue/data"
        async with self.client.stream("GET", url, params={"session_hash": session}) as stream:
            stream.raise_for_status()
            async for line in stream.aiter_lines():
                if line.startswith("data:"):
                    yield json.loads(line[5:])

    def _estimate(self, text: str) -> int:
        return max(1, round(len(text) / self.chars_per_token)) if text else 0

    def _learn(self, tokens: int, characters: int) -> None:
        self._ended.append((tokens, characters))
        tokens, characters = map(sum, zip(*self._ended, strict=True))
        if tokens and characters:
            self.chars_per_token = characters / tokens
