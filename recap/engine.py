"""The one decoding loop: propose, verify in one packed pass, accept, compact, observe.

Every decoder runs here, plain greedy decoding included, so a comparison compares only the drafts. The loop
knows nothing about models (`targets`) or memories (`drafters`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from .conversation import Conversation, Prefilled
from .drafters.base import Drafter
from .drafters.tree import CandidateTree
from .trace import SourceCount, Step, StepNode, Turn, add_counts, start_line, step_line, turn_line


class Answer:
    """The answer to a conversation's last question, made while it is iterated: one Step per pass.

    It may be iterated once. `first_token` is there after the prefill, `turn` when the iteration has ended,
    however it ended; `turn.finish_reason` then is

        "eos"      the target ended the answer
        "length"   max_new_tokens or the target's context was reached
        "stopped"  `stop()` was called (from any thread), should_stop() was true, or the loop was left
        "failed"   a pass raised an exception, which the loop passes on

    and the conversation holds exactly the tokens that were emitted. If the prefill raises, the question
    stays open and there is no turn. Iterating raises RuntimeError if the question is being answered
    elsewhere, or if the conversation has moved on (a new question, a rewind, a closing) in the meantime; an
    answer that was left behind like this touches nothing.
    """

    def __init__(
        self,
        conversation: Conversation,
        drafter: Drafter,
        *,
        max_new_tokens: int = 512,
        record: bool = True,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        if max_new_tokens < 1:
            raise ValueError("max_new_tokens must be at least 1.")
        if not conversation.pending:
            raise ValueError("There is no question to answer: call ask() first.")
        self.conversation, self.drafter = conversation, drafter
        context_left = conversation.target.max_context - conversation.prompt_tokens
        self.max_new_tokens, self.record = min(max_new_tokens, context_left), record
        self.first_token: int | None = None
        self.turn: Turn | None = None
        self.steps = 0
        self.sources: dict[str, SourceCount] = {}
        self.decode_s = self.wait_s = 0.0
        self._should_stop = should_stop
        self._stopped = False
        self._finish_reason = "stopped"
        self._prefilled: Prefilled | None = None
        self._begin_s = 0.0
        self._generation = conversation.generation

    @property
    def text(self) -> str:
        """The answer so far."""
        return self.conversation.target.decode(self.conversation.answer_ids)

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return len(self.conversation.answer_ids)

    def stop(self) -> None:
        """Ask the loop to end before its next pass."""
        self._stopped = True

    def start(self) -> Prefilled:
        """Prefill the question if that is not done yet (iteration does it too)."""
        if self._prefilled is None:
            drafter = self.drafter
            self._prefilled = self.conversation.prefill(seed=drafter.seeds, top_k=drafter.top_k)
        return self._prefilled

    def __iter__(self) -> Iterator[Step]:
        conversation, drafter = self.conversation, self.drafter
        target = conversation.target
        if self._stale or not conversation.pending or conversation.answer_ids:
            raise RuntimeError("The question is answered elsewhere: rewind() to answer it again.")
        prefilled = self.start()
        try:
            begun = time.perf_counter()
            drafter.begin(conversation.ids, blocked=target.blocked, terminal=target.eos_ids)
            if drafter.seeds:
                drafter.seed(prefilled.positions, prefilled.predictions)
            self._begin_s = time.perf_counter() - begun
            self.first_token = prefilled.first_token
            conversation.append([prefilled.first_token])
            drafter.confirm([prefilled.first_token])
            while not self._ended():
                yield self._step()
        except Exception:
            self._finish_reason = "failed"
            raise
        finally:
            if not self._stale:  # otherwise the conversation belongs to the next question
                conversation.finish()
                self.turn = self._summary()

    @property
    def _stale(self) -> bool:
        """The conversation has moved on since this answer was created."""
        return self.conversation.generation != self._generation

    def _ended(self) -> bool:
        if self._stale:
            raise RuntimeError("The conversation went on while this answer was being made.")
        ids = self.conversation.answer_ids
        if ids and ids[-1] in self.conversation.target.eos_ids:
            self._finish_reason = "eos"
        elif len(ids) >= self.max_new_tokens:
            self._finish_reason = "length"
        elif not (self._stopped or (self._should_stop is not None and self._should_stop())):
            return False
        return True

    def _step(self) -> Step:
        """One pass."""
        target, drafter = self.conversation.target, self.drafter
        begun = time.perf_counter()
        # propose: a tree of candidates behind the last confirmed token
        tree = drafter.propose(limit=self.max_new_tokens - self.tokens - 1, record=self.record)
        mask = tree.ancestor_mask()
        drafted = time.perf_counter()
        with target.lock:
            locked = time.perf_counter()  # waiting for others is not decoding
            state = self.conversation.state
            # verify: the target's own next token after every node
            predictions = target.verify(state, tree.tokens, tree.depths, mask, top_k=drafter.top_k)
            verified = time.perf_counter()
            # accept: the branch that the target would have written, and its bonus token behind it
            accepted, bonus = tree.accept(predictions.choice)
            emitted = self._until_end([*(tree.tokens[node] for node in accepted), bonus])
            accepted = accepted[: len(emitted)]
            # compact: the last emitted token has no KV slot yet, it is the next root
            target.compact(state, [0, *accepted[: len(emitted) - 1]])
            self.conversation.append(
                emitted
            )  # at once: tokens and cache agree whatever fails below
            self.steps += 1
        # observe: the drafter learns from every verified node
        sources = drafter.observe(tree, predictions, accepted)
        drafter.confirm(emitted)
        step = self._record_step(
            tree,
            accepted,
            bonus,
            emitted,
            sources,
            draft_s=drafted - begun,
            verify_s=verified - locked,
            observe_s=time.perf_counter() - verified,
        )
        self.decode_s += step.seconds
        self.wait_s += locked - drafted
        self.sources = add_counts(self.sources, sources)
        return step

    def _until_end(self, tokens: list[int]) -> list[int]:
        """The tokens up to the first that ends the answer."""
        ends = self.conversation.target.eos_ids
        last = next((index for index, token in enumerate(tokens) if token in ends), len(tokens))
        return tokens[: last + 1]

    def _record_step(
        self,
        tree: CandidateTree,
        accepted: Sequence[int],
        bonus: int,
        emitted: Sequence[int],
        sources: dict[str, SourceCount],
        **seconds: float,
    ) -> Step:
        shown = self.record
        text = self.conversation.target.token_text
        return Step(
            index=self.steps - 1,
            packed_tokens=len(tree),
            accepted=tuple(accepted),
            bonus=bonus,
            bonus_text=text(bonus) if shown else "",
            token_ids=tuple(emitted),
            texts=tuple(text(token) for token in emitted) if shown else (),
            sources=sources,
            nodes=self._nodes(tree) if shown else (),
            stored=self._stored(tree, accepted) if shown else (),
            **seconds,
        )

    def _nodes(self, tree: CandidateTree) -> tuple[StepNode, ...]:
        text = self.conversation.target.token_text
        root = StepNode(tree.tokens[0], text(tree.tokens[0]), -1, 0, "root", 1.0)
        nodes = (
            StepNode(
                token,
                text(token),
                *place_and_score,
                contributions=tuple(map(tuple, contributions)),
            )
            for token, *place_and_score, contributions in tree.nodes
        )
        return (root, *nodes)

    def _stored(
        self, tree: CandidateTree, accepted: Sequence[int]
    ) -> tuple[tuple[int, dict[str, tuple[tuple[str, float], ...]]], ...]:
        """The stored predictions where the target judged: at the root and each accepted node."""
        text = self.conversation.target.token_text
        return tuple(
            (node, {name: tuple((text(t), p) for t, p in row) for name, row in stored.items()})
            for node in (0, *accepted)
            if (stored := tree.stored(node))
        )

    def _summary(self) -> Turn:
        conversation = self.conversation
        target, prefilled = conversation.target, self.start()
        return Turn(
            decoder=self.drafter.name,
            model=target.name,
            device=target.device,
            dtype=target.dtype,
            text=target.decode(conversation.answer_ids),
            token_ids=conversation.answer_ids,
            prompt_tokens=conversation.prompt_tokens,
            cached_tokens=prefilled.cached,
            passes=self.steps,
            prefill_s=prefilled.seconds + self._begin_s,
            decode_s=self.decode_s,
            wait_s=self.wait_s,
            finish_reason=self._finish_reason,
            sources=self.sources,
        )

    def start_line(self) -> str:
        """The first line of this answer's trace; prefills the question."""
        target, prefilled = self.conversation.target, self.start()
        return start_line(
            decoder=self.drafter.name,
            model=target.name,
            device=target.device,
            dtype=target.dtype,
            prompt_tokens=self.conversation.prompt_tokens,
            cached_tokens=prefilled.cached,
            first_token=prefilled.first_token,
            first_text=target.token_text(prefilled.first_token),
            prefill_s=round(prefilled.seconds, 6),
        )


def stream(
    conversation: Conversation,
    drafter: Drafter,
    *,
    max_new_tokens: int = 512,
    record: bool = True,
    should_stop: Callable[[], bool] | None = None,
) -> Answer:
    """Answer the conversation's last question step by step.

    Iterate over the result for one `Step` per pass; its `turn` then holds the summary. max_new_tokens: where
    the answer is cut (and where the target's context ends). record: fill in the nodes and contributions of
    each step; off for timing. should_stop: asked before each pass. Raises ValueError without a question or
    with max_new_tokens below 1.
    """
    return Answer(
        conversation,
        drafter,
        max_new_tokens=max_new_tokens,
        record=record,
        should_stop=should_stop,
    )


def generate(
    conversation: Conversation, drafter: Drafter, *, max_new_tokens: int = 512, record: bool = False
) -> Turn:
    """Answer the conversation's last question -> its Turn. See `stream`."""
    answer = stream(conversation, drafter, max_new_tokens=max_new_tokens, record=record)
    for _ in answer:
        pass
    assert answer.turn is not None
    return answer.turn


def trace_lines(answer: Answer) -> Iterator[str]:
    """Run an answer and yield its trace, line by line (NDJSON, see `trace`)."""
    yield answer.start_line()
    for step in answer:
        yield step_line(step)
    assert answer.turn is not None
    yield turn_line(answer.turn)
