"""The Spacefile: what the hosted Space should be, read from YAML and refused where it is wrong."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

ROOT = Path(__file__).resolve().parents[2]

FROM_MODEL = ("RECAP_MODEL", "RECAP_REVISION", "RECAP_DTYPE")
"""Variables that `model` gives, so that nothing is written twice."""


class SpaceError(ValueError):
    """Something about the Space is wrong; the message is one sentence for the person who deploys."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Part):
    """The model that is served: hub id, revision (branch, tag or commit) and dtype."""

    id: str = Field(pattern=r"^(demo|demo-llava|[\w.-]+/[\w.-]+)$")
    revision: str = Field(min_length=1)
    dtype: Literal["float32", "bfloat16", "float16"]


class SmokeTest(_Part):
    """A question over the Gradio API that must be answered in `timeout_s` seconds after a deployment."""

    endpoint: str = Field(pattern="^/")
    message: str = Field(min_length=1)
    timeout_s: int = Field(300, ge=1)


class Volume(_Part):
    """A storage bucket of the hub, mounted into the Space."""

    source: str = Field(pattern=r"^[\w.-]+/[\w.-]+$")
    mount_path: str = Field(pattern="^/")
    read_only: bool = False


Text = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]


class Spacefile(_Part):
    """What `Spacefile` holds; the comments there explain each key. repository: "name" or "owner/name"."""

    spacefile: Literal[1]
    repository: str = Field(pattern=r"^([\w.-]+/)?[\w.-]+$")
    hardware: str
    sleep_after_s: int = Field(ge=300)  # less, and every visitor waits for a start
    model: Model
    variables: dict[str, Text]
    defaults: tuple[str, ...]
    secrets: tuple[Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]+$")], ...]
    volumes: tuple[Volume, ...]
    upload: tuple[str, ...]
    smoke_test: SmokeTest
    wait_s: int = Field(3600, ge=60)

    @property
    def environment(self) -> dict[str, str]:
        """All variables of the Space: the listed ones and those that the model gives."""
        model = (self.model.id, self.model.revision, self.model.dtype)
        return {**self.variables, **dict(zip(FROM_MODEL, model, strict=True))}


class _Strict(yaml.SafeLoader):
    """YAML that refuses a key given twice instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [self.construct_object(key, deep=True) for key, _ in node.value]
        for name in names:
            if names.count(name) > 1:
                raise SpaceError(f"Spacefile: the key “{name}” is there twice.")
        return super().construct_mapping(node, deep)


def load(path: Path = ROOT / "Spacefile") -> Spacefile:
    """Read a Spacefile. Raises SpaceError, one sentence, for what a Spacefile may not hold."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _Strict)
        return Spacefile.model_validate(data)
    except OSError:
        raise SpaceError(f"There is no Spacefile at {path}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        raise SpaceError(f"Spacefile: this is not YAML{line}.") from None
    except ValidationError as error:
        first, *_ = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        raise SpaceError(_sentence(first)) from None


def _sentence(error: Any) -> str:
    """A mistake as pydantic reports it, as one sentence; a secret's value is not repeated."""
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        *above, name = error["loc"]
        kind = {"model": Model, "smoke_test": SmokeTest}.get(above[0] if above else "", Spacefile)
        near = difflib.get_close_matches(str(name), kind.model_fields, 1)
        hint = f"; is “{near[0]}” meant?" if near else "."
        return f"Spacefile: there is no key “{place}”{hint}"
    if error["type"] == "missing":
        return f"Spacefile: the key “{place}” is missing."
    if error["loc"][0] == "secrets":
        return "Spacefile: secrets takes names such as HF_TOKEN; values never belong there."
    found = f", not “{error['input']}”" if isinstance(error["input"], (str, int)) else ""
    return f"Spacefile: “{place or 'the file'}” is wrong: {error['msg']}{found}."
