"""Passes of fixed shapes: the same tokens, whichever conversation used the working store in between."""

import threading

import numpy as np
import pytest
import torch

from recap import Conversation, generate, load_target, make_drafter, stream
from recap.compare import teacher_forced
from recap.targets import captured
from recap.targets.kv_cache import KVLayer

from . import tiny

torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["llama", "qwen2_5_vl"])
def place(request, checkpoint):
    return checkpoint(request.param)


@pytest.fixture
def short(monkeypatch):
    """Contexts that start small, so that the store has to grow."""
    monkeypatch.setattr(captured, "LEAST_CONTEXT", 16)


def asked(target, text="what is the red square?"):
    conversation = Conversation(target)
    conversation.ask(text, images=[tiny.picture(90, 70)] if target.sees_images else [])
    return conversation


def drafter(target):
    return make_drafter("recap", vocab_size=target.vocab_size)


def test_two_conversations_take_turns_in_the_store(place, short):
    plain, fixed = load_target(place), load_target(place, static=True)
    questions = ("what is the red square?", "and the total on the receipt?")
    want = [
        generate(asked(plain, q), drafter(plain), max_new_tokens=90).token_ids for q in questions
    ]
    answers = [stream(asked(fixed, q), drafter(fixed), max_new_tokens=90) for q in questions]
    steps = [iter(answer) for answer in answers]
    while any(answer.turn is None for answer in answers):
        for step in steps:
            next(step, None)
    assert [answer.turn.token_ids for answer in answers] == want
    assert fixed.captured.context > 16, "the store grew"


def test_rewind_fork_undo_and_a_next_question(place, short):
    plain, fixed = load_target(place), load_target(place, static=True)
    seen = []
    for target in (plain, fixed):
        conversation, tokens = asked(target), []
        tokens.append(generate(conversation, drafter(target), max_new_tokens=40).token_ids)
        conversation.rewind()
        tokens.append(generate(conversation, drafter(target), max_new_tokens=25).token_ids)
        fork = conversation.fork()
        tokens.append(generate(fork, drafter(target), max_new_tokens=30).token_ids)
        conversation.adopt(fork)
        conversation.ask("and now?")
        tokens.append(generate(conversation, drafter(target), max_new_tokens=30).token_ids)
        conversation.undo()
        conversation.ask("or how many?")
        tokens.append(generate(conversation, drafter(target), max_new_tokens=30).token_ids)
        seen.append(tokens)
    assert seen[0] == seen[1]


def test_slots_of_another_conversations_pass_are_not_kept(place):
    """One store for all: compacting after somebody else's pass would copy that conversation's slots."""
    target = load_target(place, static=True)
    one, other = asked(target), asked(target, "and the total?")
    root = np.ones((1, 1), bool)
    for conversation in (one, other):
        conversation.prefill(seed=False, top_k=0)
        target.verify(conversation.state, [7], [0], root, top_k=0)
    with pytest.raises(AssertionError, match="this conversation's"):
        target.compact(one.state, [0])
    target.compact(other.state, [0])


def test_teacher_forcing_holds_the_device_from_pass_to_compaction(place, monkeypatch):
    target = load_target(place, static=True)
    conversation, held = asked(target), []
    monkeypatch.setattr(captured, "LEAST_CONTEXT", 16)
    compact = target.compact
    monkeypatch.setattr(
        target,
        "compact",
        lambda *a: (held.append(target.lock._owner == threading.get_ident()), compact(*a))[1],
    )
    teacher_forced(conversation, list(range(10, 90)))
    assert held == [True, True]


@pytest.mark.parametrize("at", [1, 5, 9])
@pytest.mark.parametrize("static", [False, True])
def test_memory_that_runs_out_inside_a_pass_leaves_no_trace(static, at, place, monkeypatch):
    """Some layers are written, others are not. The next answer equals that of a cache made from nothing."""
    target = load_target(place, static=static)
    conversation, calls = asked(target), []
    conversation.prefill(seed=True, top_k=8)
    layer = captured._Layer if static else KVLayer
    update = layer.update

    def full(self, *args, **more):
        calls.append(1)
        if len(calls) == at:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return update(self, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(layer, "update", full)
        with pytest.raises(torch.OutOfMemoryError):
            generate(conversation, drafter(target), max_new_tokens=60)
    assert conversation.state.length == len(conversation.ids) - 1
    conversation.ask("and now?")
    answer = generate(conversation, drafter(target), max_new_tokens=20).token_ids
    conversation.rewind()
    conversation.evict()
    assert generate(conversation, drafter(target), max_new_tokens=20).token_ids == answer
