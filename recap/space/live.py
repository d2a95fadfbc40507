"""What is hosted now, read from the hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2  # what huggingface_hub speaks HTTP with
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from .spacefile import SpaceError, Volume


@dataclass(frozen=True, slots=True)
class Live:
    """A Space as the hub describes it. files: path -> git or LFS hash. exists: False before the first
    deployment, everything else is empty then."""

    repository: str
    exists: bool = False
    stage: str = ""
    hardware: str = ""
    sleep_after_s: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    volumes: tuple[Volume, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


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
        why = {401: "does not know this token", 403: "does not let this token do that"}.get(status)
        text = str(error.server_message or "").strip().splitlines()
        said = f" ({text[0]})" if text else ""
        raise SpaceError(
            f"The hub {why or f'answered {status}'} for {repository}{said}: check the token's rights."
        ) from None
    except httpx2.TransportError:
        raise SpaceError("The hub cannot be reached: check the network and HF_ENDPOINT.") from None


def hub() -> HfApi:
    """The hub at HF_ENDPOINT, with the token of the environment or of `hf auth login`."""
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)


def full_name(api: HfApi, repository: str) -> str:
    """ "name" -> "owner/name", the owner being the token's."""
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
        return Live(
            repository,
            exists=True,
            stage=str(getattr(runtime.stage, "value", runtime.stage)),
            hardware=str(runtime.requested_hardware or runtime.hardware or ""),
            sleep_after_s=runtime.sleep_time,
            variables={k: v.value for k, v in api.get_space_variables(repository).items()},
            secrets=frozenset(api.get_space_secrets(repository)),
            volumes=tuple(
                Volume(v.source, v.mount_path, bool(v.read_only)) for v in runtime.volumes or ()
            ),
            files={
                f.path: f.lfs.sha256 if f.lfs else f.blob_id
                for f in tree
                if isinstance(f, RepoFile)
            },
        )


def same(path: Path, known: str) -> bool:
    """Whether a file is the one of that hash: git's for small files, SHA-256 for large ones."""
    data = path.read_bytes()
    if len(known) == 64:
        return hashlib.sha256(data).hexdigest() == known
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == known
