"""From what is hosted to what the Spacefile says: read the Space, plan the calls, make them, ask a question.

A change of variables, volumes, files or hardware restarts a Space. Where more than one is due, the Space is
paused first and started once at the end; hardware, which costs money, comes last.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2  # huggingface_hub's HTTP library, for its errors
import huggingface_hub
from gradio_client import Client
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from .check import uploads
from .spacefile import SpaceError, Spacefile, Volume

KEPT = (".gitattributes",)
"""Files of the hub's own that stay on the Space."""

WORKING = ("BUILDING", "RUNNING_BUILDING", "APP_STARTING", "RUNNING_APP_STARTING", "RUNNING")


@dataclass(frozen=True, slots=True)
class Live:
    """A Space as the hub describes it. exists: False before the first deployment, all else is empty then.
    files: path -> git hash, or SHA-256 for large files."""

    repository: str
    exists: bool = False
    stage: str = ""
    hardware: str = ""
    sleep_after_s: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    volumes: tuple[Volume, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of huggingface_hub's HfApi. words: the change, without secret values.
    restarts: whether a running Space restarts because of it."""

    method: str
    arguments: dict[str, Any]
    words: str
    restarts: bool = False

    def __str__(self) -> str:
        shown = []
        for key, value in self.arguments.items():
            secret = self.method == "add_space_secret" and key == "value"
            text = "***" if secret else repr(value)
            shown.append(f"{key}={text if len(text) <= 120 else f'{text[:100]}… ({len(value)})'}")
        return f"{self.method}({', '.join(shown)})"


@contextmanager
def sentences(repository: str) -> Iterator[None]:
    """Errors of the hub's library become a SpaceError in one sentence."""
    try:
        yield
    except LocalTokenNotFoundError:
        raise SpaceError(
            "There is no token: log in with `hf auth login`, or set HF_TOKEN."
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        what = {401: "does not know this token", 403: "does not let this token do that"}.get(status)
        more = str(error.server_message or "").strip().partition("\n")[0]
        raise SpaceError(
            f"The hub {what or f'answered {status}'} for {repository}"
            f"{f' ({more})' if more else ''}: check the token's rights."
        ) from None
    except httpx2.TransportError:
        raise SpaceError("The hub cannot be reached: check the network and HF_ENDPOINT.") from None


def full_name(api: HfApi, repository: str) -> str:
    """ "name" -> "owner/name"; the owner is the token's."""
    if "/" in repository:
        return repository
    with sentences(repository):
        return f"{api.whoami()['name']}/{repository}"


def read(api: HfApi, repository: str) -> Live:
    """The Space as it is. Raises SpaceError if the hub cannot be asked."""
    with sentences(repository):
        try:
            tree = list(api.list_repo_tree(repository, recursive=True, repo_type="space"))
        except RepositoryNotFoundError:
            return Live(repository)
        runtime = api.get_space_runtime(repository)
        files = [f for f in tree if isinstance(f, RepoFile)]
        return Live(
            repository,
            exists=True,
            stage=_stage(runtime),
            hardware=str(runtime.requested_hardware or runtime.hardware or ""),
            sleep_after_s=runtime.sleep_time,
            variables={k: v.value for k, v in api.get_space_variables(repository).items()},
            secrets=frozenset(api.get_space_secrets(repository)),
            volumes=tuple(
                Volume(source=v.source, mount_path=v.mount_path, read_only=bool(v.read_only))
                for v in runtime.volumes or ()
            ),
            files={f.path: f.lfs.sha256 if f.lfs else f.blob_id for f in files},
        )


def _stage(runtime: Any) -> str:
    return str(getattr(runtime.stage, "value", runtime.stage))


def plan(space: Spacefile, now: Live, root: Path) -> list[Call]:
    """The calls that make `now` what the Spacefile says; none if it is that already.

    Raises SpaceError if a secret is missing on the Space and in this environment.
    """
    calls = [*_settings(space, now), *_volumes(space, now), *_files(space, now, root)]
    sleep = {} if space.hardware == "cpu-basic" else {"sleep_time": space.sleep_after_s}
    words = f"sleep after {space.sleep_after_s} s (was {now.sleep_after_s})"
    if now.hardware != space.hardware:
        hardware = {"hardware": space.hardware, **sleep}
        words = f"hardware {space.hardware} (was {now.hardware or 'none'}), {words}"
        calls.append(Call("request_space_hardware", hardware, words, True))
    elif sleep and now.sleep_after_s != space.sleep_after_s:
        calls.append(Call("set_space_sleep_time", sleep, words))
    if not now.exists:
        new = {"repo_type": "space", "space_sdk": "gradio", "exist_ok": True}
        calls.insert(0, Call("create_repo", new, f"a new Space {now.repository}"))
    elif sum(call.restarts for call in calls) > 1 and now.stage in WORKING:
        calls.insert(0, Call("pause_space", {}, "pause it, so that it starts once"))
        calls.append(Call("restart_space", {}, "start it"))
    elif now.stage in ("PAUSED", "STOPPED", "RUNTIME_ERROR"):
        calls.append(Call("restart_space", {}, f"start it (it is {now.stage.lower()})"))
    return [
        Call(c.method, {"repo_id": now.repository, **c.arguments}, c.words, c.restarts)
        for c in calls
    ]


def _settings(space: Spacefile, now: Live) -> Iterator[Call]:
    wanted = space.environment
    for key, value in wanted.items():
        if now.variables.get(key) != value:
            words = f"variable {key} = {value} (was {now.variables.get(key, 'not set')})"
            yield Call("add_space_variable", {"key": key, "value": value}, words, True)
    for key in sorted(now.variables.keys() - wanted.keys()):
        yield Call("delete_space_variable", {"key": key}, f"variable {key} is removed", True)
    for key in sorted(set(space.secrets) - now.secrets):
        if not os.environ.get(key):
            raise SpaceError(
                f"The Space has no secret {key}: set it on the hub, or export {key} here."
            )
        secret = {"key": key, "value": os.environ[key]}
        yield Call("add_space_secret", secret, f"secret {key} from this environment", True)


def _volumes(space: Spacefile, now: Live) -> Iterator[Call]:
    if set(space.volumes) == set(now.volumes):
        return
    volumes = [huggingface_hub.Volume(type="bucket", **v.model_dump()) for v in space.volumes]
    names = ", ".join(f"{v.source} at {v.mount_path}" for v in space.volumes) or "none"
    if volumes:
        yield Call("set_space_volumes", {"volumes": volumes}, f"volumes: {names}", True)
    else:
        yield Call("delete_space_volumes", {}, f"volumes: {names}", True)


def _files(space: Spacefile, now: Live, root: Path) -> Iterator[Call]:
    names = uploads(root, space.upload)
    changed = [n for n in names if not _same(root / n, now.files.get(n, ""))]
    removed = sorted(now.files.keys() - set(names) - set(KEPT))
    if changed or removed:
        commit = {
            "repo_type": "space",
            "folder_path": str(root),
            "allow_patterns": changed,
            "delete_patterns": removed,
            "commit_message": "Deploy from the Spacefile",
        }
        words = f"files: {len(changed)} to upload, {len(removed)} to delete"
        yield Call("upload_folder", commit, words, True)


def _same(path: Path, known: str) -> bool:
    """Whether a file has that hash: git's for small files, SHA-256 for large ones."""
    data = path.read_bytes()
    if len(known) == 64:
        return hashlib.sha256(data).hexdigest() == known
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == known


def apply(api: HfApi, calls: list[Call], say: Callable[[str], None]) -> None:
    """Make the calls. Raises SpaceError at the first that fails; what was done before it stays."""
    for call in calls:
        say(call.words)
        with sentences(call.arguments["repo_id"]):
            getattr(api, call.method)(**call.arguments)


def wait(api: HfApi, space: Spacefile, repository: str, say: Callable[[str], None]) -> None:
    """Wait until the Space runs on its hardware. Raises SpaceError if it fails or takes too long."""
    begun, before, pause_s = time.monotonic(), "", 0.05
    while True:
        with sentences(repository):
            runtime = api.get_space_runtime(repository)
        stage = _stage(runtime)
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
    """Ask the running Space over its Gradio API -> its answer.

    Raises SpaceError if it answers with an error, with nothing, or not in time.
    """
    with sentences(repository):
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
