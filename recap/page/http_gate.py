"""What stands between the network and the page: requests that are not well formed never reach it, and
two addresses for machines, /healthz and /metrics.

Gradio answers those too, but with an empty error and a traceback in the log, and it downloads files
that a request names by address. Here they get a status and one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anyio import to_thread
from gradio.utils import get_upload_folder
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..server.context import ServerContext
from ..server.model_loader import ModelLoader
from .upload_budget import UploadBudget

MOST_BODY_BYTES = 2_000_000
"""Largest request body but for uploads, which have a cap of their own."""

DEEPEST = 50
"""Most levels of lists and objects in a request."""

SESSION_HASH = re.compile(r"[A-Za-z0-9_-]{8,64}")
"""What a client calls itself; a short name could be another client's too."""


CALL = re.compile(r"/(call|run|api)/[^/]+$")
STREAM = re.compile(r"/call/[^/]+/(?P<event>[^/]+)$")


class RefusedError(ValueError):
    """A request that is not taken: a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Gate:
    """ASGI middleware: checks the bodies of requests (see `check`) before the page sees them.

    counts: for an endpoint, by name and by number, how many values it may be called with. uploads: says
    whether an upload fits. stream_ended: hears the event id of every /call stream that is over.
    """

    def __init__(
        self,
        app: Any,
        *,
        counts: Mapping[str | int, set[int]] | None = None,
        most_bytes: int = MOST_BODY_BYTES,
        uploads: UploadBudget | None = None,
        stream_ended: Callable[[str], None] = lambda event: None,
    ) -> None:
        self.app, self.counts, self.most_bytes = app, counts or {}, most_bytes
        self.uploads, self.stream_ended = uploads, stream_ended

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "").rstrip("/")
        method = scope["method"] if scope["type"] == "http" else ""
        if method == "GET" and (stream := STREAM.search(path)):
            try:
                await self.app(scope, receive, send)
            finally:
                self.stream_ended(stream["event"])
            return
        if method == "POST" and path.endswith("/upload") and self.uploads is not None:
            length = dict(scope["headers"]).get(b"content-length", b"")
            size = int(length) if length.isdigit() else self.most_bytes
            address = (scope.get("client") or ("", 0))[0]
            if refusal := await to_thread.run_sync(self.uploads.admit, address, size):
                await JSONResponse({"detail": refusal}, status_code=413)(scope, receive, send)
                return
        if method != "POST" or path.endswith("/upload"):
            await self.app(scope, receive, send)
            return
        try:
            body = await self._body(scope, receive)
            if path.endswith("/queue/join") or CALL.search(path):
                call = check(body)
                wanted = self.counts.get(call.get("fn_index", path.rpartition("/")[2]))
                if wanted and len(call["data"]) not in wanted:
                    raise RefusedError(422, f'"data" must hold {max(wanted)} values.')
        except RefusedError as error:
            answer = JSONResponse({"detail": str(error)}, status_code=error.status)
            await answer(scope, receive, send)
            return
        handed = False

        async def again() -> Any:
            nonlocal handed
            if handed:
                return await receive()
            handed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)

    async def _body(self, scope: Any, receive: Any) -> bytes:
        """The whole body. Raises RefusedError above the cap, before it is read to its end."""
        said = dict(scope["headers"]).get(b"content-length", b"0")
        parts, size = [], int(said) if said.isdigit() else 0
        more = size <= self.most_bytes
        if more:
            size = 0
        while more and size <= self.most_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "The request ended early.")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        if size > self.most_bytes:
            raise RefusedError(
                413, f"The request is too large: {self.most_bytes} bytes are the most."
            )
        return b"".join(parts)


def routes(loader: ModelLoader, context: ServerContext) -> list[Route]:
    """/healthz: 200 once the model answers, 503 before; /metrics: figures for Prometheus.

    Both answer on the event loop: they must come while every thread is at work.
    """

    async def healthz(_: Request) -> Response:
        if loader.loaded:
            return JSONResponse({"status": "ready", "model": loader.target.name})
        status = "failed" if loader.error else "loading"
        body = {"status": status, "detail": loader.error or loader.phase}
        return JSONResponse(body, status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(context.metrics.text(), media_type="text/plain; version=0.0.4")

    return [Route("/healthz", healthz), Route("/metrics", metrics)]


def input_counts(demo: Any) -> dict[str | int, set[int]]:
    """A page's endpoints -> how many values each takes, with and without those that it keeps itself."""
    counts: dict[str | int, set[int]] = {}
    for number, fn in demo.fns.items():
        sent = [block for block in fn.inputs if not block.skip_api]
        counts[number] = counts[fn.api_name] = {len(fn.inputs), len(sent)}
    return counts


def check(body: bytes) -> dict[str, Any]:
    """Refuse a call that no client of the page makes -> the call.

    Its JSON must be an object with a list "data", not nested deeper than DEEPEST; files must have been
    uploaded here, so none is fetched from an address or read from elsewhere; "session_hash" must look
    like one. Raises RefusedError.
    """
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is no JSON.") from None
    if not isinstance(call, dict) or not isinstance(call.get("data"), list):
        raise RefusedError(422, 'The body must be an object with a list "data".')
    name = call.get("session_hash")
    if name is not None and not (isinstance(name, str) and SESSION_HASH.fullmatch(name)):
        raise RefusedError(422, '"session_hash" must be 8 to 64 letters, digits, - or _.')
    if not isinstance(call.get("fn_index", 0), int):
        raise RefusedError(422, '"fn_index" must be a number.')
    _walk([call["data"], call.get("event_data")], 0)
    return call


def _walk(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise RefusedError(422, "The data is nested too deep.")
    if isinstance(value, dict):
        if isinstance(value.get("path"), str) and not is_uploaded(value["path"]):
            raise RefusedError(422, "A file must be one that was uploaded: upload it first.")
        for one in value.values():
            _walk(one, depth + 1)
    elif isinstance(value, list):
        for one in value:
            _walk(one, depth + 1)


def is_uploaded(path: str) -> bool:
    """Whether that is a file in the folder of uploads, links followed."""
    try:
        real = Path(path).resolve()
        return real.is_relative_to(Path(get_upload_folder()).resolve()) and real.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links
        return False
