"""A hub on this machine: answers huggingface_hub's requests about one owner's Spaces as the hub does.

It stands in for the real hub in the tests of deployment. It has the addresses, payloads and fields
that huggingface_hub's client uses; a change restarts a running Space, and a paused Space stays paused until
it is started. It knows no git, LFS or quotas.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWNER = "tester"


@dataclass
class Space:
    """What the hub holds of one Space. restarts: how often a running one was restarted."""

    stage: str = "NO_APP_FILE"
    hardware: str = "cpu-basic"
    requested: str = "cpu-basic"
    sleep: int | None = None
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b"* text\n"})
    restarts: int = 0
    next_stage: str = "RUNNING"

    def changed(self) -> None:
        """A change that restarts a running Space."""
        if self.stage == "RUNNING":
            self.restarts += 1
        if self.stage not in ("PAUSED", "NO_APP_FILE"):
            self.stage = "BUILDING"

    def runtime(self) -> dict[str, Any]:
        """The answer to a look; a build is over at the look after it."""
        seen = {
            "stage": self.stage,
            "hardware": {"current": self.hardware, "requested": self.requested},
            "gcTimeout": self.sleep,
            "volumes": self.volumes,
        }
        if self.stage == "BUILDING":
            self.stage, self.hardware = self.next_stage, self.requested
        return seen


class LocalHub:
    """spaces: by full name. calls: every request that changes something, in order. host: where a Space's
    app answers. deny: status of every answer, for a hub that refuses."""

    def __init__(self) -> None:
        self.spaces: dict[str, Space] = {}
        self.calls: list[str] = []
        self.host, self.address, self.deny = "", "", 0

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """status, JSON, headers."""
        if self.deny:
            return self.deny, {"error": "no"}, {}
        if path == "/api/whoami-v2":
            return 200, {"type": "user", "name": OWNER, "orgs": [], "auth": {}}, {}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        if method != "GET" and not path.endswith(("/preupload/main",)):
            self.calls.append(f"{method} {path.removeprefix('/api/')}")
        if path == "/api/repos/create":
            name = f"{OWNER}/{json.loads(body)['name']}"
            self.spaces.setdefault(name, Space())
            return 200, {"url": f"{self.address}/spaces/{name}", "name": name}, {}
        found = re.fullmatch(r"/api/spaces/([\w.-]+/[\w.-]+?)(?:/(.*))?", path)
        space = self.spaces.get(found[1]) if found else None
        if found is None or space is None:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        return 200, self.about(space, found[1], method, found[2] or "", body), {}

    def about(self, space: Space, name: str, method: str, what: str, body: bytes) -> Any:
        """One request on one Space -> JSON."""
        match method, what:
            case "GET", "":
                return {"id": name, "host": self.host, "subdomain": "x"}
            case "GET", "runtime":
                return space.runtime()
            case "GET", "variables":
                return {k: {"value": v, "description": ""} for k, v in space.variables.items()}
            case "GET", "secrets":
                return {k: {"description": ""} for k in space.secrets}
            case "GET", "tree/main":
                return [file(path, data) for path, data in space.files.items()]
            case "POST", "preupload/main":
                asked = json.loads(body)["files"]
                modes = {"uploadMode": "regular", "shouldIgnore": False}
                return {"files": [{"path": one["path"], **modes} for one in asked]}
            case "POST", "commit/main":
                self.commit(space, body)
                url = f"{self.address}/spaces/{name}/commit/{'0' * 40}"
                return {"commitUrl": url, "commitOid": "0" * 40}
            case _, "variables" | "secrets":
                sent, held = json.loads(body), getattr(space, what)
                if method == "DELETE":
                    del held[sent["key"]]
                else:
                    held[sent["key"]] = sent["value"]
                space.changed()
                return self.about(space, name, "GET", what, b"")
            case "POST", "hardware":
                sent = json.loads(body)
                space.requested = sent["flavor"]
                space.sleep = sent.get("sleepTimeSeconds", space.sleep)
                space.changed()
            case "POST", "sleeptime":
                space.sleep = json.loads(body)["seconds"]
            case _, "volumes":
                space.volumes = json.loads(body)["volumes"] if method == "PUT" else []
                space.changed()
            case "POST", "pause":
                space.stage = "PAUSED"
            case "POST", "restart":
                space.restarts += 1
                space.stage = "BUILDING"
            case _:
                raise AssertionError((method, what))
        return {
            "stage": space.stage,
            "hardware": {"current": space.hardware, "requested": space.requested},
            "gcTimeout": space.sleep,
        }

    def commit(self, space: Space, body: bytes) -> None:
        """Write and delete the files of a commit."""
        for line in body.splitlines():
            item = json.loads(line)
            if item["key"] == "file":
                space.files[item["value"]["path"]] = base64.b64decode(item["value"]["content"])
            elif item["key"] == "deletedFile":
                del space.files[item["value"]["path"]]
        space.changed()
        if space.stage == "NO_APP_FILE" and "app.py" in space.files:
            space.stage = "BUILDING"


def file(path: str, data: bytes) -> dict[str, Any]:
    """A file as the hub lists it."""
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    if len(data) < 1_000_000:
        return {"type": "file", "path": path, "size": len(data), "oid": oid}
    large = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return {"type": "file", "path": path, "size": len(data), "oid": "0" * 40, "lfs": large}


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """A running hub; its address goes into HF_ENDPOINT."""
    hub = LocalHub()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, answer, headers = hub.answer(self.command, self.path.partition("?")[0], body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
