"""What can be known to be wrong before anything is deployed, without a network.

Each rule is a function from the facts to sentences; all of them run, so that one look shows everything.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import SpaceHardware
from huggingface_hub.repocard import metadata_load

from ..targets.catalogue import bundled
from .spacefile import FROM_MODEL, SpaceError, Spacefile, load

COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")
NEVER = (".git", ".env*", "*.pem", "*.key", "*.part", ".venv", "__pycache__")
"""Names of files and folders that are never uploaded, whatever a pattern matches."""

TOKENS = re.compile(
    r"hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}"
    r"|-----BEGIN|eyJ[A-Za-z0-9_-]{20,}\.|(?i:password|token|secret|key)\s*[:=]\s*\S{6,}"
)
"""How secret values look."""

LARGEST_BYTES = 1_000_000_000
"""A Space's repository may hold 1 GB without a paid plan."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules look at. root: the repository. page: names of the page's public endpoints.
    variables: name -> what it does, of the app; read: variables that the code names."""

    root: Path
    space: Spacefile
    front: dict[str, Any]
    pins: dict[str, str]
    variables: dict[str, str]
    read: frozenset[str]
    page: frozenset[str]


def check(root: Path) -> list[str]:
    """Every mistake in a repository's Spacefile, README front matter and requirements, a sentence each."""
    try:
        facts = gather(root)
    except SpaceError as error:
        return [str(error)]
    return [sentence for rule in RULES for sentence in rule(facts)]


def gather(root: Path) -> Facts:
    """Read what the rules need. Raises SpaceError where a file cannot be read at all."""
    from ..page.launch import VARIABLES

    try:
        front = metadata_load(root / "README.md")
    except (OSError, ValueError) as error:
        raise SpaceError(f"README.md: its front matter cannot be read ({error}).") from None
    except Exception:  # the YAML library's own kinds
        raise SpaceError("README.md: its front matter is no YAML.") from None
    if not front:
        raise SpaceError(
            "README.md has no front matter, so the hub would not know the Space's SDK."
        )
    return Facts(
        root,
        load(root / "Spacefile"),
        front,
        requirements(root / "requirements.txt"),
        dict(VARIABLES),
        variables_read(root),
        endpoints(),
    )


def requirements(path: Path) -> dict[str, str]:
    """package -> version specifier, comments left out; "" where a line has none."""
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


def variables_read(root: Path) -> frozenset[str]:
    """The names of environment variables of ours that stand as strings in the app's code."""
    files = [root / "app.py", *(root / "recap").rglob("*.py")]
    code = "\n".join(f.read_text("utf-8") for f in files if f.parent != root / "recap" / "space")
    return frozenset(re.findall(r"[\"'](RECAP_[A-Z_]*[A-Z])[\"']", code))


def endpoints() -> frozenset[str]:
    """The page's public endpoints, from the page itself."""
    from ..page.layout import build
    from ..server.model_loader import ModelLoader
    from ..server.sessions import Sessions

    page = build(ModelLoader("none", lambda: None), Sessions(), [])  # type: ignore[arg-type]
    found = (fn.api_name for fn in page.fns.values() if fn.api_visibility == "public")
    return frozenset(f"/{name}" for name in found)


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


def versions(f: Facts) -> Iterator[str]:
    """The Spacefile's own version, and what stands in it that has a fixed form."""
    if f.space.spacefile != 1:
        yield f"Spacefile: version {f.space.spacefile} is not known, 1 is."
    if not re.fullmatch(r"([\w.-]+/)?[\w.-]{1,96}", f.space.repository):
        yield f"Spacefile: “{f.space.repository}” is no repository name (name or owner/name)."
    if f.space.sleep_after_s < 300:
        yield "Spacefile: sleep_after_s must be at least 300 seconds, or every visitor waits for a start."
    if f.space.wait_s < 60 or f.space.smoke_test.timeout_s < 1:
        yield "Spacefile: wait_s and smoke_test.timeout_s must leave time (60 and 1 at least)."


def hardware(f: Facts) -> Iterator[str]:
    """The hub knows it, it is dedicated, and the README suggests the same."""
    known = [h.value for h in SpaceHardware]
    name = f.space.hardware
    if name not in known:
        yield f"Spacefile: there is no hardware “{name}”: {', '.join(known)} are."
    elif name.startswith("zero"):
        yield f"Spacefile: on {name} every call runs in a process of its own, so memories would be lost."
    elif name.startswith("cpu") and f.space.model.id not in bundled():
        yield f"Spacefile: {f.space.model.id} needs a GPU, and {name} has none."
    if f.front.get("suggested_hardware") != name:
        yield (
            f"README.md suggests the hardware {f.front.get('suggested_hardware')}, the Spacefile "
            f"has {name}."
        )


def model(f: Facts) -> Iterator[str]:
    """Loadable as written, and the same model in the README."""
    from ..targets.loader import DTYPES

    name = f.space.model.id
    if name not in bundled() and not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        yield f"Spacefile: model.id “{name}” is neither “demo” nor a hub id (owner/name)."
    if f.space.model.dtype not in DTYPES:
        yield f"Spacefile: there is no dtype “{f.space.model.dtype}”: {', '.join(DTYPES)} are."
    if not f.space.model.revision:
        yield "Spacefile: model.revision is empty; main is the usual one."
    if name in bundled():
        return
    if name not in (f.front.get("models") or []):
        yield f"README.md does not list {name} under models."
    preload = [str(line).split() for line in f.front.get("preload_from_hub") or []]
    revision = f.space.model.revision
    if not any(line[0] == name for line in preload if line):
        yield f"README.md does not preload {name} (preload_from_hub)."
    elif not any(line[0] == name and (line[2:] or ["main"])[0] == revision for line in preload):
        yield f"README.md does not preload the revision {revision} of {name}."


def front_matter(f: Facts) -> Iterator[str]:
    """What the hub asks of a Gradio Space."""
    front = f.front
    if front.get("sdk") != "gradio":
        yield f"README.md: sdk must be gradio, not {front.get('sdk')}."
    pin = f.pins.get("gradio", "").removeprefix("==")
    if str(front.get("sdk_version")) != pin:
        yield (
            f"README.md has sdk_version {front.get('sdk_version')}, requirements.txt has gradio {pin}."
        )
    for side in ("colorFrom", "colorTo"):
        if front.get(side) not in COLOURS:
            yield f"README.md: {side} must be one of {', '.join(COLOURS)}."
    if not front.get("title"):
        yield "README.md: the front matter has no title."
    if len(str(front.get("short_description", ""))) > 60:
        yield "README.md: short_description may have 60 characters at most."
    if not re.fullmatch(r"\d+(\.\d+)?[smhd]|\d+ ?\w+", str(front.get("startup_duration_timeout"))):
        yield "README.md: startup_duration_timeout must be a time such as 1h; a large model takes long."
    with (f.root / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["requires-python"].removeprefix(">=")
    python = str(front.get("python_version"))
    if not re.fullmatch(r"3\.\d+", python) or _tuple(python) < _tuple(needed):
        yield f"README.md: python_version is {python}, and pyproject.toml needs {needed} or newer."
    app = str(front.get("app_file"))
    if not (f.root / app).is_file():
        yield f"README.md names the app_file {app}, which is not there."


def pins(f: Facts) -> Iterator[str]:
    """What is installed on the Space is what was tested here."""
    for name, version in f.pins.items():
        if "==" not in version and not (">=" in version and "<" in version):
            yield f"requirements.txt: {name} must be pinned (name==version)."


def variables(f: Facts) -> Iterator[str]:
    """Each is read by the app, can be read by it, and none is forgotten."""
    from ..page.launch import Settings

    space = f.space
    for name in space.variables:
        if name in FROM_MODEL:
            yield f"Spacefile: {name} comes from “model”; leave it out of variables."
        elif name not in f.variables:
            yield f"Spacefile: the app reads no variable {name}."
    for name in space.defaults:
        if name not in f.variables:
            yield f"Spacefile: the app reads no variable {name} (defaults)."
        if name in space.variables:
            yield f"Spacefile: {name} is both set and left at its default."
    named = {*space.variables, *space.defaults, *FROM_MODEL, *space.secrets}
    for name in f.variables:
        if name not in named:
            yield f"Spacefile: {name} is neither in variables nor in defaults."
    for name in sorted(f.read - f.variables.keys()):
        yield f"The code reads {name}, which `python app.py --help` does not list."
    for name in sorted(f.variables.keys() - f.read):
        yield f"`python app.py --help` lists {name}, which the code does not read."
    try:
        Settings.from_environment(space.environment)
    except SystemExit as error:
        yield f"Spacefile: {error}"
    if space.variables.get("RECAP_HOST") != "0.0.0.0":
        yield "Spacefile: RECAP_HOST must be 0.0.0.0, or nobody outside the container reaches the page."
    if space.variables.get("RECAP_PORT", "7860") != "7860":
        yield "Spacefile: RECAP_PORT must be 7860, the port that the hub forwards."


def secrets(f: Facts) -> Iterator[str]:
    """Names alone."""
    for name in f.space.secrets:
        if not re.fullmatch(r"[A-Z][A-Z0-9_]{2,}", name) or TOKENS.search(name):
            yield "Spacefile: under secrets stands something that is no name; values never belong there."
        elif name in f.space.variables:
            yield f"Spacefile: {name} is a secret and a variable."
    for file in ("Spacefile", "README.md", "requirements.txt"):
        text = (f.root / file).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if TOKENS.search(line):
                yield f"{file}: line {number} looks like a secret value; set it as a secret of the Space."


def volumes(f: Facts) -> Iterator[str]:
    """Buckets, mounted once each at an absolute path."""
    seen = set()
    for volume in f.space.volumes:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", volume.source):
            yield f"Spacefile: the volume “{volume.source}” is no bucket (owner/name)."
        if not volume.mount_path.startswith("/") or ".." in volume.mount_path:
            yield f"Spacefile: the mount path “{volume.mount_path}” is not absolute."
        if volume.mount_path in seen:
            yield f"Spacefile: two volumes are mounted at {volume.mount_path}."
        seen.add(volume.mount_path)


def files(f: Facts) -> Iterator[str]:
    """Every pattern matches, and nothing that the app needs stays behind."""
    for pattern in f.space.upload:
        if not uploads(f.root, (pattern,)):
            yield f"Spacefile: the upload pattern “{pattern}” matches no file."
    sent = set(uploads(f.root, f.space.upload))
    needed = {"README.md", "requirements.txt", str(f.front.get("app_file"))}
    needed |= {p.relative_to(f.root).as_posix() for p in (f.root / "recap").rglob("*.py")}
    needed |= set(re.findall(r"\]\((assets/[^)#\s]+)\)", (f.root / "README.md").read_text("utf-8")))
    missing = sorted(needed - sent)
    if missing:
        yield f"Spacefile: {missing[0]} is needed on the Space and no upload pattern matches it."
    size = sum((f.root / name).stat().st_size for name in sent)
    if size > LARGEST_BYTES:
        yield f"Spacefile: the upload has {size / 1e9:.1f} GB, and a Space takes 1 GB."


def smoke_test(f: Facts) -> Iterator[str]:
    """It asks something of an endpoint that there is."""
    if f.space.smoke_test.endpoint not in f.page:
        yield (
            f"Spacefile: the page has no endpoint {f.space.smoke_test.endpoint}: "
            f"{', '.join(sorted(f.page))} are."
        )
    if not f.space.smoke_test.message.strip():
        yield "Spacefile: the smoke test asks nothing (smoke_test.message)."


RULES = (
    versions,
    hardware,
    model,
    front_matter,
    pins,
    variables,
    secrets,
    volumes,
    files,
    smoke_test,
)


def _tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
