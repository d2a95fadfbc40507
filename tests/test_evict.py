"""A KV cache that is given back and filled again changes no answer."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from recap import Conversation, generate, load_target, make_drafter, stream
from recap.compare import answer_on_fork, divergence, teacher_forced

from . import tiny

torch.set_num_threads(1)
KINDS = ("qwen2_5_vl", "llava_next", "llama")


@pytest.fixture(scope="module", params=KINDS)
def target(request, checkpoint):
    return load_target(checkpoint(request.param))


@contextmanager
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def kv_tensors() -> int:
    """KV tensors of all conversations that live now."""
    return sum(type(o) is torch.Tensor and o.ndim == 6 for o in gc.get_objects())


def talk(target, *, evict: bool) -> list[tuple[int, ...]]:
    """Three turns, an undone one, another decoder's answer, a fork; the cache evicted before each, or never."""
    conversation, answers = Conversation(target), []

    def evicted() -> None:
        if evict:
            for _ in range(2):
                conversation.evict()
            assert conversation.kv_bytes == 0

    def ask(text: str, *sizes: tuple[int, int]) -> None:
        pictures = [tiny.picture(*size) for size in sizes] if target.sees_images else []
        conversation.ask(text, pictures)

    def answer(name: str = "recap", tokens: int = 12) -> None:
        drafter = make_drafter(name, vocab_size=target.vocab_size)
        answers.append(generate(conversation, drafter, max_new_tokens=tokens).token_ids)

    ask("the red square", (60, 60))
    answer()
    evicted()
    ask("is left of", (90, 40), (40, 60))
    evicted()  # a question that is asked but not prefilled yet survives too
    answer()
    evicted()
    conversation.rewind()
    answer("token_recycling", 20)
    evicted()
    ask("what")
    answer(tokens=5)
    evicted()
    conversation.undo()
    ask("the blue circle", (60, 60))
    evicted()
    answer(tokens=1)  # the cache ends with the question
    evicted()
    conversation.rewind()
    answer()
    evicted()
    drafter = make_drafter("autoregressive", vocab_size=target.vocab_size)
    with conversation.fork() as fork:
        answers.append(generate(fork, drafter, max_new_tokens=12).token_ids)
    ask("and")
    running = stream(conversation, drafter, max_new_tokens=30)
    for step in running:
        if step.index == 3:
            running.stop()
    evicted()
    ask("the total")
    answer(tokens=20)
    return answers


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
    slots, length = weakref.ref(conversation.state.cache.slots), conversation.state.length
    with collector_off():
        conversation.evict()
        assert slots() is None
    conversation.refill()
    assert conversation.state.length == length
    kept = conversation.state.cache
    conversation.refill()
    assert conversation.state.cache is kept


def test_forks_and_conversations_free_their_cache_without_the_collector(target):
    plain = make_drafter("autoregressive", vocab_size=target.vocab_size)
    recap = make_drafter("recap", vocab_size=target.vocab_size)
    with collector_off():
        before = kv_tensors()
        conversation = Conversation(target)
        conversation.ask("the red square")
        ids = generate(conversation, plain, max_new_tokens=6).token_ids
        for _ in range(5):
            with conversation.fork() as fork:
                assert generate(fork, recap, max_new_tokens=6).token_ids == ids
                assert kv_tensors() == before + 2
            assert fork.kv_bytes == 0
            answer = answer_on_fork(conversation, recap, max_new_tokens=6)
            for _ in answer:
                pass
            assert kv_tensors() == before + 2
            left = answer_on_fork(conversation, recap, max_new_tokens=6)
            for _ in left:
                break
            del answer, left, _
            assert divergence(conversation, ids, [*ids[:4], ids[4] + 1, 9]).place == 5
            assert kv_tensors() == before + 1
        assert kv_tensors() == before + 1
        del conversation
        assert kv_tensors() == before
        closed = Conversation(target)
        closed.ask("the red square")
        generate(closed, plain, max_new_tokens=2)
        closed.close()
        assert kv_tensors() == before


def test_teacher_forcing_an_evicted_conversation(target):
    """Prefilling replaces the evicted state: the passes must use the new one."""
    answers = []
    for evict in (False, True):
        conversation = Conversation(target)
        conversation.ask("the red square")
        generate(
            conversation, make_drafter("recap", vocab_size=target.vocab_size), max_new_tokens=9
        )
        conversation.ask("and the total")
        if evict:
            conversation.evict()
        answers.append(teacher_forced(conversation, range(10, 80)))
        assert conversation.state.length == len(conversation.ids) - 1
    assert answers[0] == answers[1]
