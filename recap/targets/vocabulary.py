"""Tokens as text: an answer for people, and a single candidate of a tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_MARK = re.compile(r"<.+>|\[.+\]")  # "<tool_call>" and the like, often not declared special
_WORD_START = "\u2581"  # SentencePiece writes a leading space so


class Vocabulary:
    """The readable side of a tokenizer. Thread-safe: decoding never changes the tokenizer's state."""

    def __init__(self, tokenizer: Any, extra_controls: Iterable[int] = ()) -> None:
        """extra_controls: ids that count as control tokens even if the tokenizer does not declare them."""
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}
        added = getattr(tokenizer, "added_tokens_decoder", {})
        names = {i: t.content for i, t in added.items() if t.special or _MARK.fullmatch(t.content)}
        for i in (*tokenizer.all_special_ids, *extra_controls):
            name = tokenizer.convert_ids_to_tokens(i)
            if name is not None:
                names.setdefault(i, name)
        self.controls: dict[int, str] = names
        """Control tokens: id -> the name that must stay text when a user types it."""
        pieces = tokenizer.convert_ids_to_tokens(tokenizer.encode(" a", add_special_tokens=False))
        self._sentencepiece = any(_WORD_START in piece for piece in pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of an answer, special tokens left out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def token_text(self, token: int) -> str:
        """One token as shown in a tree: leading spaces kept, specials by name, half characters as U+FFFD.

        An id that the tokenizer does not know (the logits may be wider) reads "<id 151999>".
        """
        text = self._texts.get(token)
        if text is None:
            text = self._texts[token] = self._read(int(token))
        return text

    def _read(self, token: int) -> str:
        if token in self.controls:
            return self.controls[token]
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if piece is None:
            return f"<id {token}>"
        if not self._sentencepiece:
            return self._tokenizer.decode([token], clean_up_tokenization_spaces=False)
        if byte := _BYTE.fullmatch(piece):
            return bytes([int(byte[1], 16)]).decode("utf-8", "replace")
        return piece.replace(_WORD_START, " ")
