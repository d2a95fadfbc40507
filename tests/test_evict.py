"""A KV cache that is given back and filled again changes no answer."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from recap import Conversation, generate, load_target, make_drafter, stream
from recap.compare import answer_on_fork

from . import tiny

torch.set_num_threads(1)
KINDS = ("qwen2_5_vl", "llava_next", "llama")


@pytest.fixture(scope="module", params=KINDS)
def target(request, tmp_path_factory):
    return load_target(tiny.build(request.param, tmp_path_factory.mktemp(request.param)))


def talk(target, *, evict: bool) -> list[tuple[int, ...]]:
    """Three turns, an undone one, another decoder's answer, a fork; the cache cold before each, or never."""
    conversation, said = Conversation(target), []

    def cold() -> None:
        if evict:
            conversation.evict()
            conversation.evict()
            assert conversation.kv_bytes == 0

    def ask(text: str, *sizes: tuple[int, int]) -> None:
        pictures = [tiny.picture(*size) for size in sizes] if target.sees_images else []
        conversation.ask(text, pictures)

    def answer(name: str = "recap", tokens: int = 12) -> None:
        drafter = make_drafter(name, vocab_size=target.vocab_size)
        said.append(generate(conversation, drafter, max_new_tokens=tokens).token_ids)

    ask("the red square", (60, 60))
    answer()
    cold()
    ask("is left of", (90, 40), (40, 60))
    cold_question(conversation, evict)
    answer()
    cold()
    conversation.rewind()
    answer("token_recycling", 20)
    cold()
    ask("what")
    answer(tokens=5)
    cold()
    conversation.undo()
    ask("the blue circle", (60, 60))
    cold()
    answer(tokens=1)  # the cache ends with the question
    cold()
    conversation.rewind()
    answer()
    cold()
    drafter = make_drafter("autoregressive", vocab_size=target.vocab_size)
    for _ in (apart := answer_on_fork(conversation, drafter, max_new_tokens=12)):
        pass
    said.append(apart.turn.token_ids)
    ask("and")
    running = stream(conversation, drafter, max_new_tokens=30)
    for step in running:
        if step.index == 3:
            running.stop()
    cold()
    ask("the total")
    answer(tokens=20)
    return said


def cold_question(conversation: Conversation, evict: bool) -> None:
    """A question that is asked but not read yet survives too."""
    if evict:
        conversation.evict()


def test_an_evicted_cache_changes_no_answer(target):
    warm = talk(target, evict=False)
    assert talk(target, evict=True) == warm
    assert warm[-3] == warm[-2]  # the fork, decoded plainly, says what Recap said


def test_evicting_gives_memory_back_and_nothing_before_there_is_any(target):
    conversation = Conversation(target)
    conversation.evict()
    conversation.ask("the red square")
    generate(conversation, make_drafter("recap", vocab_size=target.vocab_size), max_new_tokens=4)
    assert conversation.kv_bytes > 0
    state = conversation.state
    rows, length = weakref.ref(state.cache.rows), state.length
    gc.disable()
    conversation.evict()
    gc.enable()
    assert rows() is None  # at once, without the collector
    assert conversation.state is not state
    conversation.refill()
    assert conversation.state.length == length
    kept = conversation.state.cache
    conversation.refill()
    assert conversation.state.cache is kept
