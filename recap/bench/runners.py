"""What the benchmark times: one answer from one state, by one of our decoders or by a peer.

Every runner answers the conversation's open question on its own (a fork, or its own cache) and reports an
`Outcome`. Time is split the same way for all: the pass over the prompt, with whatever tokens it gave,
is prefill; everything after it is decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ..compare import answer_on_fork
from ..conversation import Conversation
from ..drafters import Drafter
from ..trace import SourceCount


class Pass(NamedTuple):
    """One decoding pass: packed rows, tokens it gave, and milliseconds (0.0 where a peer hides them)."""

    packed_tokens: int
    emitted: int
    draft_ms: float = 0.0
    verify_ms: float = 0.0
    observe_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer. token_ids includes an end-of-answer token; prefill_tokens of them came with the prompt's pass.

    decode_s: seconds from those tokens on. twin: the conversation that holds the answer, None for a peer.
    """

    token_ids: tuple[int, ...]
    text: str
    prefill_s: float
    decode_s: float
    passes: tuple[Pass, ...]
    prefill_tokens: int = 1
    sources: dict[str, SourceCount] = field(default_factory=dict)
    twin: Conversation | None = None


class Runner(Protocol):
    """Answers questions for the benchmark. top_k: entries of the prefill's rows that it wants."""

    top_k: int

    def refuses(self, conversation: Conversation) -> str | None:
        """Why it cannot answer this conversation, None if it can."""
        ...

    def answer(self, conversation: Conversation, max_new_tokens: int) -> Outcome:
        """Answer the open question; the conversation does not move."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...

    def state(self) -> Any:
        """What it remembers, ready to be pickled; None for nothing."""
        ...

    def restore(self, state: Any) -> None:
        """Remember what `state` gave."""
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
                round(1e3 * s.draft_s, 4),
                round(1e3 * s.verify_s, 4),
                round(1e3 * s.observe_s, 4),
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
            twin=answer.conversation,
        )

    def reset(self) -> None:
        self.drafter.reset()

    def state(self) -> Any:
        return self.drafter

    def restore(self, state: Any) -> None:
        self.drafter = state
