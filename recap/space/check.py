"""Mistakes that can be found before anything is deployed, without a network, and that the hub would not name.

Each rule is a function from the facts to sentences; all of them run, so that one look shows everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceHardware
from huggingface_hub.repocard import metadata_load

from ..page.environment import VARIABLES, Settings
from ..targets.catalogue import bundled
from .spacefile import FROM_MODEL, SpaceError, Spacefile, load

NEVER = (".git", ".env*", "*.pem", "*.key", "*.part", ".venv", "__pycache__")
"""Names of files and folders that are never uploaded, whatever a pattern matches."""

TOKENS = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}"
    r"|-----BEGIN|eyJ[A-Za-z0-9_-]{20,}\.|(?i:password|token|secret|key)\s*[:=]\s*\S{6,}"
)
"""How secret values look."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at. front: the README's front matter. pins: package -> version specifier."""

    root: Path
    space: Spacefile
    front: dict[str, Any]
    pins: dict[str, str]


def check(root: Path) -> list[str]:
    """Every mistake in a repository's Spacefile, README front matter and requirements, a sentence each."""
    try:
        facts = Facts(
            root, load(root / "Spacefile"), _front_matter(root), _pins(root / "requirements.txt")
        )
    except SpaceError as error:
        return [str(error)]
    return [sentence for rule in RULES for sentence in rule(facts)]


def _front_matter(root: Path) -> dict[str, Any]:
    try:
        front = metadata_load(root / "README.md")
    except Exception as error:  # the YAML library's own kinds, too
        first = str(error).partition("\n")[0]
        raise SpaceError(f"README.md: its front matter cannot be read ({first}).") from None
    if not front:
        raise SpaceError("README.md has no front matter, so the hub would not know the SDK.")
    return front


def _pins(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise SpaceError("There is no requirements.txt.") from None
    found = {}
    for line in lines:
        words = line.partition("#")[0].strip()
        if match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(.*)", words):
            found[match[1].lower()] = match[2].strip()
    return found


def uploads(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """The files that the patterns match, as paths relative to the root; what is in NEVER is left out."""
    found = set()
    for pattern in patterns:
        for path in root.glob(pattern + "/*" if pattern.endswith("**") else pattern):
            name = path.relative_to(root)
            never = any(fnmatch(part, one) for part in name.parts for one in NEVER)
            if path.is_file() and not never:
                found.add(name.as_posix())
    return sorted(found)


# ---- the rules


def hardware(f: Facts) -> Iterator[str]:
    """The hub has it, memories survive on it, the model fits it, and the README suggests the same."""
    name = f.space.hardware
    if name not in [h.value for h in SpaceHardware]:
        yield f"Spacefile: the hub has no hardware “{name}”."
    elif name.startswith("zero"):
        yield f"Spacefile: on {name} every call runs in its own process, so memories would be lost."
    elif name.startswith("cpu") and f.space.model.id not in bundled():
        yield f"Spacefile: {f.space.model.id} needs a GPU, and {name} has none."
    if f.front.get("suggested_hardware") != name:
        suggested = f.front.get("suggested_hardware")
        yield f"README.md suggests the hardware {suggested}, the Spacefile has {name}."


def model(f: Facts) -> Iterator[str]:
    """The README lists the served model and preloads its revision."""
    name, revision = f.space.model.id, f.space.model.revision
    if name in bundled():
        return
    if name not in (f.front.get("models") or []):
        yield f"README.md does not list {name} under models."
    preloaded = [str(line).split() for line in f.front.get("preload_from_hub") or []]
    if not any(line[:1] == [name] and (line[2:] or ["main"])[0] == revision for line in preloaded):
        yield f"README.md does not preload {name} at {revision} (preload_from_hub)."


def versions(f: Facts) -> Iterator[str]:
    """What is installed on the Space is what was tested here."""
    front, gradio = f.front, f.pins.get("gradio", "").removeprefix("==")
    if front.get("sdk") != "gradio":
        yield f"README.md: sdk must be gradio, not {front.get('sdk')}."
    if str(front.get("sdk_version")) != gradio:
        yield f"README.md has sdk_version {front.get('sdk_version')}, requirements.txt has gradio {gradio}."
    needed = re.search(r'requires-python = ">=3\.(\d+)"', (f.root / "pyproject.toml").read_text())
    python = re.fullmatch(r"3\.(\d+)", str(front.get("python_version")))
    if python is None or int(python[1]) < int(needed[1]):
        yield f"README.md: python_version is {front.get('python_version')}, and pyproject.toml needs 3.{needed[1]}."
    for name, version in f.pins.items():
        if "==" not in version and not (">=" in version and "<" in version):
            yield f"requirements.txt: {name} must be pinned (name==version)."


def variables(f: Facts) -> Iterator[str]:
    """Each is known to the app and has a value that it takes, and none is forgotten."""
    space = f.space
    for name in space.variables:
        if name in FROM_MODEL or name in space.secrets or name in space.defaults:
            yield f"Spacefile: {name} is in variables and comes from another key too."
    for name in (*space.variables, *space.defaults):
        if name not in VARIABLES:
            yield f"Spacefile: the app reads no variable {name}."
    named = {*space.variables, *space.defaults, *FROM_MODEL, *space.secrets}
    for name in VARIABLES.keys() - named:
        yield f"Spacefile: {name} is neither in variables nor in defaults."
    try:
        Settings.from_environment(space.environment)
    except SystemExit as error:
        yield f"Spacefile: {error}"
    if space.variables.get("RECAP_HOST") != "0.0.0.0":
        yield "Spacefile: RECAP_HOST must be 0.0.0.0, or nobody outside the container reaches the page."
    if space.variables.get("RECAP_PORT", "7860") != "7860":
        yield "Spacefile: RECAP_PORT must be 7860, the port that the hub forwards."


def secrets(f: Facts) -> Iterator[str]:
    """No value of one is in a file that is uploaded first."""
    for file in ("Spacefile", "README.md", "requirements.txt"):
        text = (f.root / file).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if TOKENS.search(line):
                yield f"{file}: line {number} looks like a secret value; set it as a secret of the Space."


def files(f: Facts) -> Iterator[str]:
    """Every pattern matches, and what `app.py` imports and the README shows is uploaded."""
    for pattern in f.space.upload:
        if not uploads(f.root, (pattern,)):
            yield f"Spacefile: the pattern “{pattern}” matches no file."
    readme = (f.root / "README.md").read_text(encoding="utf-8")
    needed = {"README.md", "requirements.txt", str(f.front.get("app_file"))}
    needed |= {p.relative_to(f.root).as_posix() for p in (f.root / "recap").rglob("*.py")}
    needed |= set(re.findall(r"\]\((assets/[^)#\s]+)\)", readme))
    for name in sorted(needed - set(uploads(f.root, f.space.upload)))[:1]:
        yield f"Spacefile: {name} is needed on the Space and no upload pattern matches it."


RULES = (hardware, model, versions, variables, secrets, files)
