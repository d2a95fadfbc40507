"""The Spacefile: what the hosted Space should be, read from YAML and refused where it is no Spacefile."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
VERSION = 1


class SpaceError(ValueError):
    """Something about the Space is wrong; the message is one sentence for the person who deploys."""


@dataclass(frozen=True, slots=True)
class Model:
    """The model that is served: hub id, revision (branch, tag or commit) and dtype."""

    id: str
    revision: str
    dtype: str


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """A question over the Gradio API that must be answered in `timeout_s` seconds after a deployment."""

    endpoint: str
    message: str
    timeout_s: int = 300


@dataclass(frozen=True, slots=True)
class Volume:
    """A storage bucket of the hub, mounted into the Space."""

    source: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Spacefile:
    """What `Spacefile` says; see there for each key. repository: "name" or "owner/name"."""

    spacefile: int
    repository: str
    hardware: str
    sleep_after_s: int
    model: Model
    variables: Mapping[str, str]
    defaults: tuple[str, ...]
    secrets: tuple[str, ...]
    volumes: tuple[Volume, ...]
    upload: tuple[str, ...]
    smoke_test: SmokeTest
    wait_s: int = 3600

    @property
    def environment(self) -> dict[str, str]:
        """All variables of the Space: the listed ones and those that the model gives."""
        model = {"RECAP_MODEL": self.model.id, "RECAP_REVISION": self.model.revision}
        return {**self.variables, **model, "RECAP_DTYPE": self.model.dtype}


FROM_MODEL = ("RECAP_MODEL", "RECAP_REVISION", "RECAP_DTYPE")
"""Variables that `model` gives, so that nothing is said twice."""


class _Strict(yaml.SafeLoader):
    """YAML that refuses a key given twice instead of keeping the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise SpaceError(f"Spacefile: the key “{name}” stands there twice.")
            seen.add(name)
        return super().construct_mapping(node, deep)


def load(path: Path = ROOT / "Spacefile") -> Spacefile:
    """Read a Spacefile. Raises SpaceError, one sentence, for what no Spacefile may hold."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _Strict)
    except OSError:
        raise SpaceError(f"There is no Spacefile at {path}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise SpaceError(f"Spacefile: this is no YAML{where}.") from None
    return _build(Spacefile, data, "")


NESTED: dict[str, Any] = {"model": Model, "smoke_test": SmokeTest}
LISTS: dict[str, Any] = {"volumes": Volume, "defaults": str, "secrets": str, "upload": str}


def _build(kind: Any, data: Any, where: str) -> Any:
    """A dataclass from a mapping, every key and type checked."""
    if not isinstance(data, dict):
        raise SpaceError(f"Spacefile: {where or 'the file'} must be keys with values.")
    known = {f.name: f for f in fields(kind)}
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"; is “{near[0]}” meant?" if near else "."
            raise SpaceError(f"Spacefile: there is no key “{where}{key}”{hint}")
    values = {}
    for name, field in known.items():
        if name not in data:
            if name in ("wait_s", "timeout_s", "read_only"):
                continue
            raise SpaceError(f"Spacefile: the key “{where}{name}” is missing.")
        values[name] = _value(name, str(field.type), data[name], where)
    return kind(**values)


def _value(name: str, wanted: str, value: Any, where: str) -> Any:
    place = f"“{where}{name}”"
    if name in NESTED:
        return _build(NESTED[name], value, f"{name}.")
    if name in LISTS:
        if not isinstance(value, list):
            raise SpaceError(f"Spacefile: {place} must be a list.")
        if LISTS[name] is not str:
            return tuple(_build(LISTS[name], one, f"{name}.") for one in value)
        if not all(isinstance(one, str) for one in value):
            raise SpaceError(f"Spacefile: {place} must be a list of names.")
        return tuple(value)
    if name == "variables":
        if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
            raise SpaceError(f"Spacefile: {place} must be names with values.")
        for key, one in value.items():
            if not isinstance(one, (str, int)) or isinstance(one, bool):
                raise SpaceError(f"Spacefile: the variable {key} must be text or a whole number.")
        return {key: str(one) for key, one in value.items()}
    kind = {"int": int, "bool": bool}.get(wanted, str)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        words = {int: "a whole number", bool: "true or false", str: "text"}
        raise SpaceError(f"Spacefile: {place} must be {words[kind]}, not “{value}”.")
    return value
