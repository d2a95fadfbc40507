"""Settings out of environment variables, the only place that they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..server.context import ServerContext
from ..server.memory_scope import BOUNDARIES, MemoryScopes
from ..server.queue import AnswerQueue
from ..targets.images import Limits
from .examples import EXAMPLES

VARIABLES = {
    "RECAP_MODEL": "demo (default), demo-llava, a local directory, or a hub id such as Qwen/Qwen2.5-VL-7B-Instruct",
    "RECAP_REVISION": "branch, tag or commit of a hub id, default main",
    "RECAP_DEVICE": "cpu, cuda, cuda:0, ... or auto (all GPUs); default: a GPU if there is one",
    "RECAP_DTYPE": "float32, bfloat16 or float16; default: chosen for the device",
    "RECAP_MAX_NEW_TOKENS": "longest answer, default 256",
    "RECAP_MAX_CONTEXT": "most tokens of a conversation, default what the model takes",
    "RECAP_EXAMPLES": "folder with an examples.json for the gallery, default assets/examples",
    "RECAP_HOST": "address to listen on, default 127.0.0.1; 0.0.0.0 in a container",
    "RECAP_PORT": "port to listen on, default 7860",
    "RECAP_ANSWERS": "answers that are made at once, default 8; more wait in a queue",
    "RECAP_ANSWERS_EACH": "of these, most for one person, default 2",
    "RECAP_WAITING": "most questions in the queue, default 64",
    "RECAP_SESSIONS": "most sessions at once, default 32",
    "RECAP_IDLE_MINUTES": "minutes after which an idle session is freed, default 30",
    "RECAP_KV_MB": "budget for the KV caches of all conversations in MB, default 8000",
    "RECAP_UPLOAD_MB": "largest uploaded file in MB, default 20",
    "RECAP_UPLOADS_MB": "disk space of all uploads in MB, a quarter of it for one address in an hour; default 4000",
    "RECAP_IMAGE_MEGAPIXELS": "most pixels of an uploaded image in millions, default 50",
    "RECAP_GRACE_SECONDS": "seconds that a page may be gone before its conversation is freed, default 60",
    "RECAP_MEMORY_SCOPE": "who shares Recap's 1-token memory: session (default), user (who is signed in), shared",
    "RECAP_USERS": "who may sign in, as name:password, name:password, ...; default: everybody, unsigned. A secret",
    "RECAP_MEMORY_FILE": "file that keeps the shared memory over restarts, default none",
    "RECAP_CACHE": "folder for what is made once on a machine (pass times, compiled drafters), default ~/.cache/recap",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says. See VARIABLES; 0 and "" stand for a default that is not fixed here."""

    model: str = "demo"
    revision: str = ""
    device: str = ""
    dtype: str = ""
    max_new_tokens: int = 256
    max_context: int = 0
    examples: str = str(EXAMPLES)
    host: str = "127.0.0.1"
    port: int = 7860
    answers: int = 8
    answers_each: int = 2
    waiting: int = 64
    sessions: int = 32
    idle_minutes: int = 30
    kv_mb: int = 8000
    upload_mb: int = 20
    uploads_mb: int = 4000
    image_megapixels: int = 50
    grace_seconds: int = 60
    memory_scope: str = "session"
    users: str = field(default="", repr=False)
    memory_file: str = ""
    cache: str = ""  # read by `drafters.jit` itself

    @property
    def load(self) -> dict[str, Any]:
        """Keyword arguments for load_target, unset ones left out."""
        settings = {"revision": self.revision, "device": self.device, "dtype": self.dtype}
        return {name: value for name, value in settings.items() if value}

    @property
    def limits(self) -> Limits:
        """Of uploads."""
        return Limits(self.upload_mb * 10**6, self.image_megapixels * 10**6)

    def context(self) -> ServerContext:
        """What the sessions will share."""
        queue = AnswerQueue(self.answers, per_person=self.answers_each, max_waiting=self.waiting)
        return ServerContext(queue, MemoryScopes(self.memory_scope), kv_bytes=self.kv_mb * 10**6)

    @property
    def sign_in(self) -> list[tuple[str, str]] | None:
        """(name, password) of everybody who may sign in; None: nobody needs to."""
        pairs = [pair.strip().partition(":") for pair in self.users.split(",") if pair.strip()]
        return [(name.strip(), password.strip()) for name, _, password in pairs] or None

    @property
    def memory_path(self) -> Path | None:
        """Where the shared memory is kept."""
        return Path(self.memory_file).expanduser() if self.memory_file else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Read the variables. Exits with one sentence at a value that cannot be used.

        >>> Settings.from_environment({"RECAP_PORT": "8000"}).port
        8000
        """
        values: dict[str, Any] = {}
        for name in VARIABLES:
            text = environment.get(name, "").strip()
            field = name.removeprefix("RECAP_").lower()
            if not text:
                continue
            if isinstance(getattr(cls(), field), int):
                if not (text.isascii() and text.isdigit()) or not int(text):
                    raise SystemExit(f"{name} must be a whole number above 0, not “{text}”.")
                values[field] = int(text)
            else:
                values[field] = text
        made = cls(**values)
        if made.port > 65535:
            raise SystemExit(f"RECAP_PORT must be at most 65535, not {made.port}.")
        if made.memory_scope not in BOUNDARIES:
            raise SystemExit(
                f"RECAP_MEMORY_SCOPE must be {', '.join(BOUNDARIES)}, not “{made.memory_scope}”."
            )
        people = made.sign_in or []
        if not all(pair for both in people for pair in both) or len(dict(people)) < len(people):
            raise SystemExit(
                "RECAP_USERS must hold name:password pairs with commas between them, no name twice."
            )
        if made.memory_scope == "user" and not people:
            raise SystemExit(
                "RECAP_MEMORY_SCOPE=user keeps a memory for everyone who signs in: set RECAP_USERS too."
            )
        if made.memory_file and made.memory_scope != "shared":
            raise SystemExit(
                "RECAP_MEMORY_FILE keeps a shared memory: set RECAP_MEMORY_SCOPE to shared too."
            )
        return made
