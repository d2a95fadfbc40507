"""From what is hosted to what the Spacefile says: the calls, in order, and making them.

A change of variables, volumes, files or hardware restarts a Space. Where more than one is due, the
Space is paused first and started once at the end; hardware, which costs money, comes last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from gradio_client import Client
from huggingface_hub import HfApi

from . import live
from .check import uploads
from .live import Live
from .spacefile import SpaceError, Spacefile

KEPT = (".gitattributes",)
"""Files of the hub's own that stay on the Space."""

WORKING = ("BUILDING", "RUNNING_BUILDING", "APP_STARTING", "RUNNING_APP_STARTING", "RUNNING")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of huggingface_hub's HfApi. said: the change in words; secret arguments are not in it.
    restarts: whether a running Space starts anew because of it."""

    method: str
    arguments: dict[str, Any]
    said: str
    restarts: bool = False

    def __str__(self) -> str:
        hidden = {"value"} if self.method == "add_space_secret" else set()
        shown = ", ".join(
            f"{k}={'***' if k in hidden else _short(v)}" for k, v in self.arguments.items()
        )
        return f"{self.method}({shown})"


def plan(space: Spacefile, now: Live, root: Path) -> list[Call]:
    """The calls that make `now` what the Spacefile says; none if it is that already.

    Raises SpaceError if a secret is missing on the Space and in this environment.
    """
    calls = [*_settings(space, now), *_files(space, now, root)]
    sleep = {} if space.hardware == "cpu-basic" else {"sleep_time": space.sleep_after_s}
    slept = f"sleep after {space.sleep_after_s} s (was {now.sleep_after_s})"
    if now.hardware != space.hardware:
        hardware = {"hardware": space.hardware, **sleep}
        said = f"hardware {space.hardware} (was {now.hardware or 'none'}), {slept}"
        calls.append(Call("request_space_hardware", hardware, said, True))
    elif sleep and now.sleep_after_s != space.sleep_after_s:
        calls.append(Call("set_space_sleep_time", sleep, slept))
    if not now.exists:
        made = {"repo_type": "space", "space_sdk": "gradio", "exist_ok": True}
        calls.insert(0, Call("create_repo", made, f"a new Space {now.repository}"))
    elif sum(call.restarts for call in calls) > 1 and now.stage in WORKING:
        calls.insert(0, Call("pause_space", {}, "pause it, so that it starts once"))
        calls.append(Call("restart_space", {}, "start it"))
    elif now.stage in ("PAUSED", "STOPPED", "RUNTIME_ERROR"):
        calls.append(Call("restart_space", {}, f"start it (it is {now.stage.lower()})"))
    return [
        Call(c.method, {"repo_id": now.repository, **c.arguments}, c.said, c.restarts)
        for c in calls
    ]


def _settings(space: Spacefile, now: Live) -> Iterator[Call]:
    wanted = space.environment
    for key, value in wanted.items():
        if now.variables.get(key) != value:
            said = f"variable {key} = {value} (was {now.variables.get(key, 'not set')})"
            yield Call("add_space_variable", {"key": key, "value": value}, said, True)
    for key in sorted(now.variables.keys() - wanted.keys()):
        yield Call("delete_space_variable", {"key": key}, f"variable {key} goes", True)
    for key in space.secrets:
        if key not in now.secrets:
            if not os.environ.get(key):
                raise SpaceError(
                    f"The Space has no secret {key}: set it on the hub, or export {key} here."
                )
            secret = {"key": key, "value": os.environ[key]}
            yield Call("add_space_secret", secret, f"secret {key} from this environment", True)
    if set(space.volumes) != set(now.volumes):
        volumes = [
            huggingface_hub.Volume(
                type="bucket", source=v.source, mount_path=v.mount_path, read_only=v.read_only
            )
            for v in space.volumes
        ]
        names = ", ".join(f"{v.source} at {v.mount_path}" for v in space.volumes) or "none"
        if volumes:
            yield Call("set_space_volumes", {"volumes": volumes}, f"volumes: {names}", True)
        else:
            yield Call("delete_space_volumes", {}, f"volumes: {names}", True)


def _files(space: Spacefile, now: Live, root: Path) -> Iterator[Call]:
    names = uploads(root, space.upload)
    changed = [n for n in names if n not in now.files or not live.same(root / n, now.files[n])]
    gone = sorted(now.files.keys() - set(names) - set(KEPT))
    if changed or gone:
        yield Call(
            "upload_folder",
            {
                "repo_type": "space",
                "folder_path": str(root),
                "allow_patterns": changed,
                "delete_patterns": gone,
                "commit_message": "Deploy from the Spacefile",
            },
            f"files: {len(changed)} to upload, {len(gone)} to delete",
            True,
        )


def apply(api: HfApi, calls: list[Call], say: Callable[[str], None]) -> None:
    """Make the calls. Raises SpaceError at the first that fails; what was done before it stays."""
    for call in calls:
        say(call.said)
        with live.sentences(call.arguments["repo_id"]):
            getattr(api, call.method)(**call.arguments)


def wait(api: HfApi, space: Spacefile, repository: str, say: Callable[[str], None]) -> None:
    """Wait until the Space runs on its hardware. Raises SpaceError if it fails or takes too long."""
    begun, before, pause_s = time.monotonic(), "", 0.05
    while True:
        with live.sentences(repository):
            runtime = api.get_space_runtime(repository)
        stage = str(getattr(runtime.stage, "value", runtime.stage))
        if stage != before:
            say(f"the Space is {stage.lower().replace('_', ' ')}")
            before = stage
        if stage == "RUNNING" and runtime.hardware == space.hardware:
            return
        if stage not in WORKING:
            raise SpaceError(f"The Space is {stage}: read its logs on the hub.")
        if time.monotonic() - begun > space.wait_s:
            raise SpaceError(f"The Space is still {stage} after {space.wait_s} s: read its logs.")
        time.sleep(pause_s)
        pause_s = min(15.0, 2 * pause_s)


def smoke_test(api: HfApi, space: Spacefile, repository: str) -> str:
    """Ask the running Space over its Gradio API -> what it answered.

    Raises SpaceError if it answers with an error, with nothing, or not in time.
    """
    with live.sentences(repository):
        host = api.space_info(repository).host
        token = api.token if isinstance(api.token, str) else huggingface_hub.get_token()
    test = space.smoke_test
    try:
        client = Client(host, token=token, verbose=False, analytics_enabled=False)
        job = client.submit({"text": test.message}, api_name=test.endpoint)
        answer = job.result(timeout=test.timeout_s)
    except Exception as error:  # whatever the client meets is the finding
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SpaceError(f"The smoke test failed: {first}") from None
    text = answer.get("text") if isinstance(answer, dict) else answer
    if not text:
        raise SpaceError(f"The smoke test failed: {test.endpoint} answered nothing.")
    return str(text)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(value)})"
