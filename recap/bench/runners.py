"""What the benchmark times: one answer from one state, by one of our decoders or by another library.

Every runner answers the conversation's open question by itself (on a fork, or with its own cache) and
returns an `Outcome`. Time is split the same way for all: the pass over the prompt, with whatever tokens it
gave, is prefill; everything after it is decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..compare import answer_on_fork
from ..conversation import Conversation
from ..drafters import Drafter
from ..trace import SourceCount


class Pass(NamedTuple):
    """One decoding pass: packed tokens, tokens it emitted, and milliseconds (0.0 where a library hides them)."""

    packed_tokens: int
    emitted: int
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    observe_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer. token_ids includes an end-of-answer token; the prompt's pass gave the first `prefill_tokens`.

    decode_s: seconds after those tokens. fork: the conversation that holds the answer, None for another library.
    """

    token_ids: tuple[int, ...]
    text: str
    prefill_s: float
    decode_s: float
    passes: tuple[Pass, ...]
    prefill_tokens: int = 1
    sources: dict[str, SourceCount] = field(default_factory=dict)
    fork: Conversation | None = None


class Runner(Protocol):
    """Answers questions for the benchmark. top_k: entries per prediction that it wants from the prefill."""

    top_k: int

    def refuses(self, conversation: Conversation) -> str | None:
        """Why it cannot answer this conversation, None if it can."""
        ...

    def answer(self, conversation: Conversation, max_new_tokens: int) -> Outcome:
        """Answer the open question; the conversation itself stays as it is."""
        ...

    def reset(self) -> None:
        """Empty all memories."""
        ...


class EngineRunner:
    """A drafter in our engine. cold: its memories are emptied before every answer."""

    def __init__(self, drafter: Drafter, *, cold: bool = False) -> None:
        self.drafter, self.cold = drafter, cold
        self.top_k = drafter.top_k

    def refuses(self, conversation: Conversation) -> str | None:
        return None

    def answer(self, conversation: Conversation, max_new_tokens: int) -> Outcome:
        if self.cold:
            self.drafter.reset()
        answer = answer_on_fork(conversation, self.drafter, max_new_tokens=max_new_tokens)
        passes = tuple(
            Pass(
                s.packed_tokens,
                len(s.token_ids),
                *(round(1e3 * seconds, 4) for seconds in (s.draft_s, s.verify_s, s.observe_s)),
            )
            for s in answer
        )
        turn = answer.turn
        assert turn is not None
        return Outcome(
            turn.token_ids,
            turn.text,
            turn.prefill_s,
            turn.decode_s,
            passes,
            sources=turn.sources,
            fork=answer.conversation,
        )

    def reset(self) -> None:
        self.drafter.reset()
