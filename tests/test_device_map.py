"""A model over several devices. There is one device here, so its layers are told apart by name alone:
`cpu` and `cpu:0` are the same memory, and two places for the code that is tested."""

from __future__ import annotations

import pytest
import torch

from recap import Conversation, generate, load_target
from recap.drafters import make_drafter
from recap.targets import LoadError, device_map, transformers_target

from . import tiny

torch.set_num_threads(1)


def answers(target) -> list[tuple[int, ...]]:
    """The answers to two questions and on two forks, and the sizes of the cache's blocks."""
    conversation = Conversation(target)
    drafter = make_drafter("recap", vocab_size=target.vocab_size)
    made = []
    for question in ("What is there?", "And then?"):
        images = [tiny.picture(60, 60)] if target.sees_images and not made else []
        conversation.ask(question, images)
        made.append(generate(conversation, drafter, max_new_tokens=60).token_ids)
        made.append(generate(conversation.fork(), drafter, max_new_tokens=60).token_ids)
    made.append(tuple(len(block) for block in conversation.state.cache.store.blocks))
    return made


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava_next", "llama"])
def test_layers_on_two_devices_give_the_same_answers(kind, tmp_path, monkeypatch):
    where = tiny.build(kind, tmp_path)
    *alone, blocks = answers(load_target(where))
    assert len(blocks) == 1
    layers = blocks[0]

    def halves(language) -> tuple[torch.device, ...]:
        first = layers // 2
        return (torch.device("cpu"),) * first + (torch.device("cpu", 0),) * (layers - first)

    monkeypatch.setattr(transformers_target.device_map, "layer_devices", halves)
    placed = load_target(where, device={"": "cpu"}, static=True)
    assert placed.passes == "plain", "neither packed nor of fixed shapes"
    *spread_out, blocks = answers(placed)
    assert blocks == (layers // 2, layers - layers // 2)
    assert spread_out == alone


def test_what_device_means():
    assert device_map.device_map("auto") is None, "one device or none: nothing to spread over"
    assert device_map.device_map("cuda:1") is None
    assert device_map.device_map({"": "cpu"}) == {"": "cpu"}


def test_auto_uses_all_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_map.device_map("auto") == "auto"


@pytest.mark.parametrize("left", ["disk", "cpu"])
def test_weights_that_no_gpu_holds_are_refused(left, tmp_path):
    target = load_target(tiny.build("llama", tmp_path))
    target.model.hf_device_map = {"model": 0, "lm_head": left}
    with pytest.raises(LoadError, match=r"^m needs \d+ GB in float32 and the device has"):
        device_map.refuse_offloaded("m", target.model)


def test_auto_on_one_device_is_that_device(tmp_path):
    assert load_target(tiny.build("llama", tmp_path), device="auto").device in ("cpu", "cuda")
