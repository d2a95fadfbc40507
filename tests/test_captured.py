"""Passes of fixed shapes: the same tokens, whoever used the working store in between."""

import pytest
import torch

from recap import Conversation, generate, load_target, make_drafter, stream
from recap.targets import captured

from . import tiny

torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["llama", "qwen2_5_vl"])
def place(request, tmp_path_factory):
    return tiny.build(request.param, tmp_path_factory.mktemp("model"))


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
    assert fixed._static._rows.shape[4] > 16, "the store grew"


def test_rewind_fork_undo_and_a_next_question(place, short):
    plain, fixed = load_target(place), load_target(place, static=True)
    seen = []
    for target in (plain, fixed):
        conversation, tokens = asked(target), []
        tokens.append(generate(conversation, drafter(target), max_new_tokens=40).token_ids)
        conversation.rewind()
        tokens.append(generate(conversation, drafter(target), max_new_tokens=25).token_ids)
        twin = conversation.fork()
        tokens.append(generate(twin, drafter(target), max_new_tokens=30).token_ids)
        conversation.adopt(twin)
        conversation.ask("and now?")
        tokens.append(generate(conversation, drafter(target), max_new_tokens=30).token_ids)
        conversation.undo()
        conversation.ask("or how many?")
        tokens.append(generate(conversation, drafter(target), max_new_tokens=30).token_ids)
        seen.append(tokens)
    assert seen[0] == seen[1]


def test_eager_attention_keeps_passes_of_any_shape(place):
    assert load_target(place, static=True, attention="eager")._static is None
