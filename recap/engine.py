"""The one decoding loop: propose, verify in one packed pass, accept, keep, observe.

Every decoder runs here, plain greedy decoding included, so a comparison compares only the drafts.
The loop knows nothing of models (`targets`) nor of memories (`drafters`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from .conversation import Conversation, Prefilled
from .drafters.base import Drafter
from .drafters.tree import CandidateTree
from .trace import SourceCount, Step, StepNode, Turn, add_counts, start_line, step_line, turn_line


class Answer:
    """The answer to a conversation's last question, made while it is iterated: one Step a pass.

    Stop at any time with `stop()` (from any thread, within one pass) or by leaving the loop; the
    conversation then holds what was confirmed. `turn` is there when the iteration has ended.
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
        room = conversation.target.max_context - conversation.prompt_tokens
        self.max_new_tokens, self.record = min(max_new_tokens, room), record
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
        self._iterator = self._run()

    def __iter__(self) -> Iterator[Step]:
        return self._iterator

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

    def start_line(self) -> str:
        """The first line of this answer's trace; the prompt must have been prefilled."""
        target, done = self.conversation.target, self.start()
        return start_line(
            decoder=self.drafter.name,
            model=target.name,
            device=target.device,
            dtype=target.dtype,
            prompt_tokens=self.conversation.prompt_tokens,
            cached_tokens=done.cached,
            first_token=done.first_token,
            first_text=target.token_text(done.first_token),
            prefill_s=round(done.seconds, 6),
        )

    def _run(self) -> Iterator[Step]:
        conversation, drafter = self.conversation, self.drafter
        target = conversation.target
        if self._stale or not conversation.pending or conversation.answer_ids:
            raise RuntimeError("The question is answered elsewhere: rewind() to answer it again.")
        done = self.start()  # if it fails, the question stays open and may be asked again
        try:
            begun = time.perf_counter()
            drafter.begin(conversation.ids, blocked=target.blocked, terminal=target.eos_ids)
            if drafter.seeds:
                drafter.seed(done.positions, done.predictions)
            self._begin_s = time.perf_counter() - begun
            self.first_token = done.first_token
            conversation.append([done.first_token])
            drafter.confirm([done.first_token])
            while not self._ended():
                yield self._step()
                if self._stale:
                    raise RuntimeError("The conversation went on while this answer was being made.")
        except Exception:
            self._finish_reason = "failed"
            raise
        finally:
            if not self._stale:  # left half-way, it may be closed long after the next question
                conversation.finish()
                self.turn = self._summary()

    @property
    def _stale(self) -> bool:
        """The conversation has moved on from where this answer belongs."""
        return self.conversation.generation != self._generation

    def _ended(self) -> bool:
        ids = self.conversation.answer_ids
        if ids and ids[-1] in self.conversation.target.eos_ids:
            self._finish_reason = "eos"
        elif len(ids) >= self.max_new_tokens:
            self._finish_reason = "length"
        elif not (self._stopped or (self._should_stop is not None and self._should_stop())):
            return False
        return True

    def _step(self) -> Step:
        conversation, drafter = self.conversation, self.drafter
        target, state = conversation.target, conversation.state
        begun = time.perf_counter()
        tree = drafter.propose(limit=self.max_new_tokens - self.tokens - 1, record=self.record)
        mask = tree.ancestor_mask()
        drafted = time.perf_counter()
        with target.lock:
            locked = time.perf_counter()  # waiting for others is not decoding
            predictions = target.verify(state, tree.tokens, tree.depths, mask, top_k=drafter.top_k)
            verified = time.perf_counter()
            accepted, bonus = tree.accept(predictions.choice)
            emitted = [*(tree.tokens[row] for row in accepted), bonus]
            for place, token in enumerate(emitted):
                if token in target.eos_ids:
                    emitted = emitted[: place + 1]
                    break
            accepted = accepted[: len(emitted)]
            # the last emitted token has no KV entry yet: it is the next root, the others stay
            target.compact(state, [0, *accepted[: len(emitted) - 1]])
            conversation.append(
                emitted
            )  # at once: tokens and cache never part, whatever fails below
        sources = drafter.observe(tree, predictions, accepted)
        drafter.confirm(emitted)
        observed = time.perf_counter()
        step = Step(
            index=self.steps,
            packed_tokens=len(tree),
            accepted=tuple(accepted),
            bonus=bonus,
            bonus_text=target.token_text(bonus) if self.record else "",
            token_ids=tuple(emitted),
            texts=tuple(target.token_text(t) for t in emitted) if self.record else (),
            sources=sources,
            draft_s=drafted - begun,
            verify_s=verified - locked,
            observe_s=observed - verified,
            nodes=self._nodes(tree) if self.record else (),
            stored=self._stored(tree, accepted) if self.record else (),
        )
        self.steps += 1
        self.decode_s += step.seconds
        self.wait_s += locked - drafted
        self.sources = add_counts(self.sources, sources)
        return step

    def _nodes(self, tree: CandidateTree) -> tuple[StepNode, ...]:
        text = self.conversation.target.token_text
        root = StepNode(tree.tokens[0], text(tree.tokens[0]), -1, 0, "root", 1.0)
        return (
            root,
            *(
                StepNode(
                    n.token,
                    text(n.token),
                    n.parent,
                    n.depth,
                    n.source,
                    n.score,
                    n.rank,
                    tuple(
                        (v.source, v.weight, v.probability, v.confidence) for v in n.contributions
                    ),
                )
                for n in tree.nodes
            ),
        )

    def _stored(
        self, tree: CandidateTree, accepted: list[int]
    ) -> tuple[tuple[int, dict[str, tuple[tuple[str, float], ...]]], ...]:
        """What was known where the target judged: behind the root and each accepted row."""
        text = self.conversation.target.token_text
        return tuple(
            (row, {name: tuple((text(t), p) for t, p in said) for name, said in stored.items()})
            for row in (0, *accepted)
            if (stored := tree.stored(row))
        )

    def _summary(self) -> Turn:
        conversation = self.conversation
        target, done = conversation.target, self.start()
        return Turn(
            decoder=self.drafter.name,
            model=target.name,
            device=target.device,
            dtype=target.dtype,
            text=target.decode(conversation.answer_ids),
            token_ids=conversation.answer_ids,
            prompt_tokens=conversation.prompt_tokens,
            cached_tokens=done.cached,
            passes=self.steps,
            prefill_s=done.seconds + self._begin_s,
            decode_s=self.decode_s,
            wait_s=self.wait_s,
            finish_reason=self._finish_reason,
            sources=self.sources,
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

    Iterate over the result for one `Step` a pass; its `turn` holds the summary afterwards. record:
    fill in the nodes and contributions of each step (off for timing). should_stop: asked before each pass.
    max_new_tokens: the answer is cut there, and where the target's context ends ("length" both times).
    Raises ValueError without a question or with max_new_tokens below 1.
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
