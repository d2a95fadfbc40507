"""Names, colours, shapes and dashes of decoders and sources, from `assets/names.json` alone.

Python reads them here; the page's script gets them as `NAMES`, its style sheet as the rules of `css`.
"""

from __future__ import annotations

import json
from pathlib import Path

ASSETS = Path(__file__).resolve().parents[2] / "assets"

_NAMES = json.loads((ASSETS / "names.json").read_text(encoding="utf-8"))
DECODERS: dict[str, dict[str, str]] = _NAMES["decoders"]
SOURCES: dict[str, dict[str, str]] = _NAMES["sources"]
RUNS: dict[str, dict[str, str]] = DECODERS | _NAMES["runs"]
"""What a turn's runs are called: by their decoder, or by a label of their own."""


class _Names(dict[str, str]):
    """A decoder that the file does not know (a new one, an exercise) is called by its key."""

    def __missing__(self, key: str) -> str:
        return key


DECODER_NAMES = _Names({key: decoder["name"] for key, decoder in DECODERS.items()})


def css() -> str:
    """A rule for each source: its colours on a light and a dark page, and its underline."""
    rules = []
    for key, source in SOURCES.items():
        rule = f"--source: {source['colour']}; --underline: {source['underline']};"
        rules.append(f".rt-from-{key} {{ {rule} }}")
        rules.append(f".dark .rt-from-{key} {{ --source: {source['dark']}; }}")
    return "\n".join(rules) + "\n"
