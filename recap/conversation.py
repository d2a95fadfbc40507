"""A conversation: exact token ids, its KV state, and what is still to be prefilled.

Ids are never made again from decoded text. A question is encoded once; several decoders may answer it from
the same state (`rewind`, `fork`).
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL.Image import Image

from .predictions import Predictions
from .targets.base import KVState, Message, Segment, Target
from .targets.images import ImageFile


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The target's predictions inside and after the prompt, kept so that it is prefilled once.

    positions: the tokens of the conversation that `predictions` follow; the last one is the prompt's end.
    seeded: predictions inside the prompt are among them. cached: prompt tokens that the cache already held.
    """

    positions: tuple[int, ...]
    predictions: Predictions
    seeded: bool
    seconds: float
    cached: int

    @property
    def top_k(self) -> int:
        """Tokens per prediction."""
        return int(self.predictions.top_ids.shape[1])

    @property
    def first_token(self) -> int:
        """The answer's first token: the target's prediction after the prompt."""
        return int(self.predictions.choice[-1])


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where a conversation stood before a question. prompt: length, prefill and state of the one before."""

    ids: int
    length: int
    extra: dict[str, Any]
    messages: int
    answer: tuple[int, ...] | None
    prompt: tuple[int, Prefilled | None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Evicted:
    """What the cache held when it was evicted: slots, and the state's extra."""

    length: int
    extra: dict[str, Any]


class Conversation:
    """Questions and answers about images, in one KV cache.

    The cache is freed as soon as the conversation is dropped, or at once with `close()` or at the end of a
    `with` block.

    >>> conversation = Conversation(target)                      # doctest: +SKIP
    >>> conversation.ask("What is it?", images=[photo])          # doctest: +SKIP
    >>> turn = generate(conversation, make_drafter("recap", vocab_size=target.vocab_size))  # doctest: +SKIP
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.ids: list[int] = []
        self.messages: list[Message] = []
        self.state: KVState = target.new_state()
        self._segment: Segment | None = None
        self._open = False
        self._prompt_length = 0
        self._prefilled: Prefilled | None = None
        self._prompt_extra: dict[str, Any] = {}
        self._answer: tuple[int, ...] | None = None  # ids of the last finished answer
        self._marks: list[_Mark] = []
        self._evicted: _Evicted | None = None
        self.generation = 0
        """Changes whenever an answer in progress must end: with a question, a rewind, an undo, an adoption,
        a closing."""

    @property
    def kv_bytes(self) -> int:
        """Bytes that the KV cache takes."""
        return int(getattr(self.state.cache, "nbytes", 0))

    @property
    def _length(self) -> int:
        """Slots in the cache, or that it will have again."""
        return self.state.length if self._evicted is None else self._evicted.length

    @property
    def _extra(self) -> dict[str, Any]:
        return self.state.extra if self._evicted is None else self._evicted.extra

    def close(self) -> None:
        """Free the KV cache at once, or after the pass that uses it. The conversation ends here."""
        self.generation += 1
        self.state = self.target.new_state()  # nothing else holds the old one

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def evict(self) -> None:
        """Free the KV cache's memory; it is filled again when it is needed. Not during an answer."""
        if self._evicted is None and self.state.length:
            self._evicted = _Evicted(self.state.length, self.state.extra)
            self.state = self.target.new_state()

    def refill(self) -> None:
        """Fill an evicted cache again: each question with its images, then the answer behind it."""
        if self._evicted is None:
            return
        length, known = self._evicted.length, self.ids
        with self.target.lock:
            state = self.target.new_state()
            for mark in self._marks:
                asked = self.messages[: mark.messages + 1]
                segment = self.target.encode(asked, known[: mark.ids], mark.answer)
                end = mark.ids + len(segment.ids)
                if end > length:
                    break
                self.target.prefill(state, known[:end], segment, positions=[end - 1], top_k=0)
            if state.length < length:
                rest = Segment(tuple(known[state.length : length]))
                self.target.prefill(state, known[:length], rest, positions=[length - 1], top_k=0)
        self.state, self._evicted = state, None

    @property
    def pending(self) -> bool:
        """A question was asked and is not answered yet."""
        return self._open

    @property
    def prompt_tokens(self) -> int:
        """Tokens before the answer to the question asked last."""
        return self._prompt_length

    @property
    def answer_ids(self) -> tuple[int, ...]:
        """Tokens of the answer to the question asked last, as far as it goes."""
        return tuple(self.ids[self._prompt_length :])

    def ask(self, text: str, images: Sequence[Image | ImageFile] = ()) -> None:
        """Add a user's message; nothing runs on the model yet.

        A question without an answer is replaced. Raises ValueError with one clear sentence if the target
        cannot take the message; the conversation then is as it was.
        """
        text = text.encode("utf-8", "replace").decode()  # half characters ("\ud800") become "?"
        message = Message("user", text, tuple(images))
        if self.pending and not self.answer_ids:
            mark = self._marks[-1]
            known = self.messages[: mark.messages]
            segment = self.target.encode([*known, message], self.ids[: mark.ids], mark.answer)
            self.undo()
        else:
            if self.pending:
                self.finish()
            segment = self.target.encode([*self.messages, message], self.ids, self._answer)
        self.generation += 1
        extra = copy.deepcopy(self._extra)
        before = self._prompt_length, self._prefilled, self._prompt_extra
        mark = _Mark(len(self.ids), self._length, extra, len(self.messages), self._answer, before)
        self._marks.append(mark)
        self.messages.append(message)
        self.ids.extend(segment.ids)
        self._segment = segment
        self._open = True
        self._prompt_length = len(self.ids)
        self._prefilled = None

    def prefill(self, *, seed: bool, top_k: int) -> Prefilled:
        """Run the prompt through the target, once per question.

        seed: also fetch the predictions after the first occurrence of each distinct new prompt token, top_k
        tokens each (more, if more were fetched before).
        """
        self.refill()
        done = self._prefilled
        if done is not None and (not seed or (done.seeded and done.top_k >= top_k)):
            return done
        if not self._marks:
            raise RuntimeError("There is no question to prefill: call ask() first.")
        mark = self._marks[-1]
        segment = self._segment
        if segment is None:
            asked = self.messages[: mark.messages + 1]
            segment = self.target.encode(asked, self.ids[: mark.ids], mark.answer)
        if done is not None:  # again, with the predictions that are wanted now
            self._restore(mark.length, mark.extra)
        start = self.state.length
        positions = self._seed_positions(start) if seed else []
        positions.append(self._prompt_length - 1)
        with self.target.lock:
            begun = time.perf_counter()  # waiting for others is not prefilling
            predictions = self.target.prefill(
                self.state,
                self.ids[: self._prompt_length],
                segment,
                positions=positions,
                top_k=top_k if seed else 0,
            )
        seconds = time.perf_counter() - begun
        self._prompt_extra = copy.deepcopy(self.state.extra)
        self._prefilled = Prefilled(tuple(positions), predictions, seed, seconds, start)
        self._segment = None  # its pixel values are large, and it can be encoded again
        return self._prefilled

    def _seed_positions(self, start: int) -> list[int]:
        """First occurrence of each distinct token in the new part, its last token left out."""
        seen = set(self.target.blocked)
        positions = []
        for position in range(start, self._prompt_length - 1):
            if self.ids[position] not in seen:
                seen.add(self.ids[position])
                positions.append(position)
        return positions

    def append(self, tokens: Sequence[int]) -> None:
        """Append confirmed answer tokens (the engine calls this; the last one has no KV slot yet)."""
        self.ids.extend(tokens)

    def finish(self) -> str:
        """Close the answer as it stands and return its text."""
        text = self.target.decode(self.answer_ids)
        if self._open:
            self.messages.append(Message("assistant", text))
            self._answer = self.answer_ids
            self._open = False
        return text

    def rewind(self) -> None:
        """Back to the question asked last, its prefill kept: another decoder can answer it."""
        if self._prefilled is None:
            raise RuntimeError("There is no question, or it was not prefilled: nothing to rewind.")
        self.refill()
        self.generation += 1
        if not self._open:
            self.messages.pop()
            self._answer = self._marks[-1].answer
            self._open = True
        del self.ids[self._prompt_length :]
        self._restore(self._prompt_length, self._prompt_extra)

    def undo(self) -> None:
        """Drop the last question and its answer."""
        if not self._marks:
            raise RuntimeError("There is no question to undo.")
        self.generation += 1
        mark = self._marks.pop()
        del self.ids[mark.ids :]
        del self.messages[mark.messages :]
        self._restore(min(mark.length, self._length), mark.extra)
        self._answer = mark.answer
        self._prompt_length, self._prefilled, self._prompt_extra = mark.prompt
        self._segment = None
        self._open = False

    def fork(self) -> Conversation:
        """A copy at the question asked last, prefill kept, with a KV cache of its own.

        As a context manager it frees that cache at once:

        >>> with conversation.fork() as fork:                     # doctest: +SKIP
        ...     turn = generate(fork, drafter)
        """
        self.refill()
        fork = copy.copy(self)
        with self.target.lock:
            fork.state = copy.deepcopy(self.state)
        fork.ids, fork.messages = list(self.ids), list(self.messages)
        fork._marks = list(self._marks)
        fork.rewind()
        return fork

    def adopt(self, fork: Conversation) -> None:
        """Go on from a fork's answer; the fork must not be used afterwards."""
        generation = self.generation + 1
        vars(self).update(vars(fork))
        self.generation = generation

    def _restore(self, length: int, extra: dict[str, Any]) -> None:
        if self._evicted is not None:
            self._evicted = _Evicted(length, copy.deepcopy(extra))
            return
        if self.state.length > length:
            with self.target.lock:
                self.target.crop(self.state, length)
        self.state.extra = copy.deepcopy(extra)
