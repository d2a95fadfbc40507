"""From messages to token ids: the model's own chat template, with what a user types kept as data.

A first turn is the whole rendered template. A later turn is what the template writes behind the last
answer: it is rendered with a placeholder for the answer, and what follows the placeholder is encoded. The
ids of the conversation so far are never made again from text.

A control token's name typed by a user ("<|im_end|>", "<image>") is encoded as its characters, so it can
neither end the turn nor stand for an image.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError

from .base import Message
from .vocabulary import Vocabulary

_ANSWER = "RECAP-ANSWER-STANDS-HERE"
_TEXT = "RECAP-TEXT-{}-STANDS-HERE"

PLAIN = (
    "{% for message in messages %}"
    "{{ 'User: ' if message['role'] == 'user' else 'Assistant: ' }}{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For a text model whose tokenizer has no chat template."""

_IMAGES_THEN_TEXT = (
    "{{% for part in message['content'] %}}{{% if part['type'] == 'image' %}}{image}{{% endif %}}"
    "{{% endfor %}}{{% for part in message['content'] %}}{{% if part['type'] == 'text' %}}"
    "{{{{ part['text'] }}}}{{% endif %}}{{% endfor %}}"
)
_EACH = "{% for message in messages %}"
_USER = "{% if message['role'] == 'user' %}"

CHATML = (
    _EACH
    + "{% if loop.first %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    + "<|im_start|>{{ message['role'] }}\n"
    + _IMAGES_THEN_TEXT.format(image="<|vision_start|><|image_pad|><|vision_end|>")
    + "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
INST = (
    _EACH
    + _USER
    + "[INST] "
    + _IMAGES_THEN_TEXT.format(image="<image>\n")
    + " [/INST]{% else %} "
    + _IMAGES_THEN_TEXT.format(image="")
    + "{{ eos_token }}{% endif %}{% endfor %}"
)
VICUNA = (
    _EACH
    + _USER
    + "USER: "
    + _IMAGES_THEN_TEXT.format(image="<image>\n")
    + " {% else %}ASSISTANT: "
    + _IMAGES_THEN_TEXT.format(image="")
    + "{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
"""For vision-language checkpoints without one: the forms that their families were trained on."""


class ChatTemplate:
    """A tokenizer with its chat template: messages in, token ids out. Thread-safe."""

    def __init__(
        self,
        tokenizer: Any,
        vocabulary: Vocabulary,
        template: str,
        *,
        eos_ids: frozenset[int],
        image_token: str | None = None,
        special_tokens: bool = False,
    ) -> None:
        """image_token: its name in the template, None for a text model. special_tokens: let the tokenizer
        add its own (a BOS) to a first turn that does not begin with one."""
        self._tokenizer, self._vocabulary, self._template = tokenizer, vocabulary, template
        self._eos_ids, self._image_token, self._special = eos_ids, image_token, special_tokens
        names = sorted(vocabulary.controls.values(), key=len, reverse=True)
        self._controls = re.compile("|".join(re.escape(n) for n in names)) if names else None
        self._lock = threading.Lock()  # a tokenizer keeps a call's flags in itself

    def first(self, messages: Sequence[Message], image_tokens: Sequence[int]) -> list[int]:
        """Ids of a whole conversation up to the assistant's turn. image_tokens: placeholders of each image."""
        text, typed = self._render(messages)
        bos = self._tokenizer.bos_token
        special = self._special and not (bos and text.startswith(bos))
        return self._encode(text, typed, image_tokens, special)

    def later(
        self, messages: Sequence[Message], image_tokens: Sequence[int], answer: Sequence[int]
    ) -> list[int]:
        """Ids to append for the last message, behind the ids `answer` of the message before it.

        The end-of-answer token that the template writes is left out if the model emitted one.
        """
        known = list(messages[:-1])
        if known and known[-1].role == "assistant":
            known.pop()
        placeholder = Message("assistant", _ANSWER)
        text, typed = self._render([*known, placeholder, messages[-1]], placeholder)
        before, found, text = text.rpartition(_ANSWER)
        if not found or _ANSWER in before:
            raise ValueError("The model's chat template does not write the answer as it is.")
        ids = self._encode(text, typed, image_tokens, False)
        if answer and answer[-1] in self._eos_ids and ids and ids[0] in self._eos_ids:
            ids = ids[1:]
        return ids

    def _render(
        self, messages: Sequence[Message], placeholder: Message | None = None
    ) -> tuple[str, list[str]]:
        """The template's text, and the user texts that were replaced in it by numbered marks."""
        typed: list[str] = []
        rendered = []
        for message in messages:
            text = message.text
            if message is not placeholder and (self._may_hold_controls(text) or "RECAP-" in text):
                typed.append(text)
                text = _TEXT.format(len(typed) - 1)
            content: Any = text
            if self._image_token is not None:
                content = [{"type": "image"} for _ in message.images]
                content.append({"type": "text", "text": text})
            rendered.append({"role": message.role, "content": content})
        try:
            text = self._tokenizer.apply_chat_template(
                rendered, chat_template=self._template, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"The model's chat template refuses the message: {reason}") from error
        return text, typed

    def _may_hold_controls(self, text: str) -> bool:
        """Whether encoding the text as it is could give control tokens."""
        if self._controls is None:
            return False
        if self._controls.search(text):
            return True
        with self._lock:  # a normalizer may turn other text into such a name
            ids = self._tokenizer.encode(text, add_special_tokens=False)
        return not self._vocabulary.controls.keys().isdisjoint(ids)

    def _encode(
        self, text: str, typed: Sequence[str], image_tokens: Sequence[int], special: bool
    ) -> list[int]:
        if self._image_token is not None:
            parts = text.split(self._image_token)
            if len(parts) != len(image_tokens) + 1:
                raise ValueError("The model's chat template does not show each image exactly once.")
            text = parts[0]
            for count, part in zip(image_tokens, parts[1:], strict=True):
                text += self._image_token * count + part
        ids: list[int] = []
        marks = re.split(re.escape(_TEXT).replace(r"\{\}", r"(\d+)"), text)
        with self._lock:
            for index, piece in enumerate(marks):
                if index % 2:
                    ids += self._plain(typed[int(piece)])
                elif piece or index == 0:
                    ids += self._tokenizer.encode(piece, add_special_tokens=special and index == 0)
        return ids

    def _plain(self, text: str) -> list[int]:
        """Ids of a user's text in which no control token may appear."""
        controls = self._vocabulary.controls
        ids = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        if controls.keys().isdisjoint(ids):
            return ids
        ids, start = [], 0  # the tokenizer still joins the name: cut each name in two
        for found in self._controls.finditer(text):
            ids += self._tokenizer.encode(text[start : found.start() + 1], add_special_tokens=False)
            start = found.start() + 1
        ids += self._tokenizer.encode(text[start:], add_special_tokens=False)
        if not controls.keys().isdisjoint(ids):
            raise ValueError(
                "The message contains a control token's name that cannot be kept as text: remove it."
            )
        return ids
