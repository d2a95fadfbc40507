"""What a person or an API client sends, checked before anything is done with it.

Whatever arrives is data: text stays the text it is (the target keeps control tokens' names as mere
characters), and a file is one that was uploaded to this server.
"""

from __future__ import annotations

from typing import Any

from ..drafters import DECODERS
from .http_gate import is_uploaded

MOST_CHARACTERS = 100_000
"""Longest question; what of it the model can take is said when it is read."""


def clean(text: Any) -> str:
    """A question's text, without blanks around it; halves of broken characters become U+FFFD.

    Raises ValueError in one sentence if it is no text or too long.

    >>> clean(" a\\ud83d\\ude00 b\\udc00 ") == "a\\U0001F600 b\\ufffd"
    True
    """
    if not isinstance(text, str):
        raise ValueError("The question must be text.")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"The question has {len(text):,} characters, and {MOST_CHARACTERS:,} are the most: "
            "shorten it."
        )
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip()


def question(message: Any) -> tuple[str, list[str]]:
    """What an API client asks -> (text, paths of its files).

    message: {"text": ..., "files": [uploaded files]}, either part may be missing. Raises ValueError in
    one sentence for anything else, and for a file that was not uploaded here.
    """
    if isinstance(message, str):
        message = {"text": message}
    if not isinstance(message, dict):
        raise ValueError('The message must be {"text": a question, "files": [images]}.')
    files = message.get("files")
    files = [] if files is None else files
    if not isinstance(files, list):
        raise ValueError('"files" must be a list of uploaded images.')
    text = message.get("text")
    return clean("" if text is None else text), [uploaded(file) for file in files]


def uploaded(file: Any) -> str:
    """The path of a file that was uploaded to this server. Raises ValueError for any other."""
    path = file.get("path") if isinstance(file, dict) else file
    if not isinstance(path, str) or not is_uploaded(path):
        raise ValueError("A file must be one that was uploaded: upload it first.")
    return path


def known_decoder(name: Any) -> str:
    """A decoder's name. Raises ValueError if there is none of that name."""
    if not isinstance(name, str) or name not in DECODERS:
        raise ValueError(f"Unknown decoder: use {', '.join(DECODERS)}.")
    return name
