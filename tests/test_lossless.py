"""Greedy output never changes: every decoder, every family, against transformers' own `generate()`.

float32, token for token, over an image turn, a text turn on the reused cache and a turn with a second
image. The mutants at the end are the known ways to get this wrong; each must be noticed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recap import DECODERS, Conversation, generate, load_target, make_drafter, stream
from recap.targets import DEMO, Segment, masks
from recap.targets import logits as logits_module
from recap.targets.families.qwen_vl import QwenVLTarget
from recap.targets.kv_cache import KVCache
from recap.targets.transformers_target import TransformersTarget

from . import tiny

torch.set_num_threads(1)

SEEDS = (0, 1, 2)
TOKENS = 200
HUB = Path(__file__).parents[2] / "shared" / "data" / "hub_layouts"
QUESTIONS = (
    ("what is the red square?", (90, 70)),
    ("and the total on the receipt?", None),
    ("now look at this:", (56, 140)),
)


def hub(name: str) -> Path:
    place = HUB / name
    if not place.is_dir():
        pytest.skip(f"{place} is not here: the published layouts are not part of the repository")
    return place


BUILDERS: dict[str, Callable[..., Path]] = {
    "qwen2": partial(tiny.build, "qwen2"),
    "mistral, window 16": partial(tiny.build, "mistral", sliding_window=16),
    "qwen2, window 16 in some layers": partial(
        tiny.build, "qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1
    ),
    "qwen2.5-vl, window 16 in some layers": partial(
        tiny.build, "qwen2_5_vl", use_sliding_window=True, sliding_window=16, max_window_layers=1
    ),
    "qwen2.5-vl, hub layout": tiny.build_hub_qwen,
    "llava-1.6, hub layout": tiny.build_hub_llava,
    "qwen2.5-vl, hub files": lambda where, **more: tiny.build_hub_qwen(
        where, hub("qwen2.5-vl-7b-instruct"), **more
    ),
    "llava-1.6, hub files": lambda where, **more: tiny.build_hub_llava(
        where, hub("llava-v1.6-mistral-7b-hf"), **more
    ),
}
THREE_SEEDS = [(kind, seed) for kind in tiny.KINDS for seed in SEEDS]
ONE_SEED = [(kind, 0) for kind in BUILDERS]


@pytest.fixture(scope="module")
def place(checkpoint, tmp_path_factory) -> Callable[[str, int], Path]:
    made: dict[tuple[str, int], Path] = {}

    def find(kind: str, seed: int) -> Path:
        if kind in tiny.KINDS:
            return checkpoint(kind, seed=seed)
        if (kind, seed) not in made:
            made[kind, seed] = BUILDERS[kind](tmp_path_factory.mktemp("model"), seed=seed)
        return made[kind, seed]

    return find


def expected(
    target: TransformersTarget, ids: list[int], seen: list[Segment], new: int
) -> list[int]:
    """What `generate()` answers to these ids and all images so far, from nothing."""
    inputs: dict[str, Any] = {}
    pictured = [segment.inputs for segment in seen if segment.inputs]
    for name in pictured[0] if pictured else ():
        parts = [one[name] for one in pictured]
        if name == "pixel_values" and parts[0].ndim == 5:  # LLaVA pads images to the most tiles
            most = max(part.shape[1] for part in parts)
            pad = [(0, 0) * 3 + (0, most - part.shape[1]) for part in parts]
            parts = [torch.nn.functional.pad(part, p) for part, p in zip(parts, pad, strict=True)]
        inputs[name] = torch.cat(parts).to(target.model.device)
    feed = torch.tensor([ids], device=target.model.device)
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = (feed == target.model.config.image_token_id).int()
    made = target.model.generate(
        input_ids=feed, attention_mask=torch.ones_like(feed), **inputs, max_new_tokens=new
    )
    if hasattr(target.model.model, "rope_deltas"):
        target.model.model.rope_deltas = None  # generate() leaves it behind; ours never reads it
    return made[0, len(ids) :].tolist()


def turns(target: TransformersTarget, seed: int = 0) -> Iterator[tuple[str, list]]:
    for at, (text, size) in enumerate(QUESTIONS):
        pictures = [tiny.picture(*size, seed=seed + at)] if size and target.sees_images else []
        yield text, pictures


class Watch:
    """Counts what the passes of a target did, so that a test knows it tested something."""

    def __init__(self, target: TransformersTarget, monkeypatch: pytest.MonkeyPatch) -> None:
        self.accepted = self.rejected = self.moved = 0
        self._packed, self._verify, self._compact = 0, target.verify, target.compact
        monkeypatch.setattr(target, "verify", self.verify)
        monkeypatch.setattr(target, "compact", self.compact)

    def verify(self, state, tokens, *rest, **more):
        self._packed = len(tokens)
        return self._verify(state, tokens, *rest, **more)

    def compact(self, state, kept):
        self.accepted += len(kept) - 1
        self.rejected += self._packed - len(kept)
        self.moved += list(kept) != list(range(len(kept)))
        self._compact(state, kept)


def compare(
    where: Path, seed: int, monkeypatch, device: str, new: int = TOKENS, **settings: Any
) -> dict[str, Watch]:
    """Every decoder over all turns, each on one reused cache, against `generate()` from nothing.

    `generate()` runs on the weights as they were loaded; the decoders on the packed ones, those with trees
    also on the loaded ones and in passes of fixed shapes (seed 0 alone).
    """
    settings |= {"dtype": "float32", "device": device}
    plain, fast, captured = (
        load_target(where, packed=packed, static=static, **settings)
        for packed, static in ((False, False), (True, False), (True, True))
    )
    right: dict[int, list[int]] = {}
    watches = {}
    trees = ("recap", "token_recycling")
    paths = [(plain, trees), (captured, (*trees, "autoregressive")), (fast, DECODERS)]
    for target, decoder in ((t, d) for t, names in paths[-1 if seed else 0 :] for d in names):
        with monkeypatch.context() as patch:
            watches[decoder] = Watch(target, patch)
            drafter = make_drafter(decoder, vocab_size=target.vocab_size)
            conversation, seen = Conversation(target), []
            for at, (text, pictures) in enumerate(turns(target, seed)):
                conversation.ask(text, images=pictures)
                seen.append(conversation._segment)
                if at not in right:
                    right[at] = expected(plain, list(conversation.ids), seen, new)
                assert (conversation.state.length > 0) == (at > 0), "later turns reuse the cache"
                turn = generate(conversation, drafter, max_new_tokens=new)
                assert list(turn.token_ids) == right[at], (decoder, at, target.passes)
    return watches


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), THREE_SEEDS + ONE_SEED)
def test_equal_to_generate(kind, seed, place, monkeypatch, device):
    new = TOKENS if (kind in tiny.KINDS and seed == 0) or kind.endswith("layout") else 100
    watches = compare(place(kind, seed), seed, monkeypatch, device, new)
    for decoder in ("recap", "token_recycling"):
        watch = watches[decoder]
        assert watch.accepted > 40, "branches were accepted"
        assert watch.rejected > 40, "branches were rejected"
        assert watch.moved > 5, "accepted slots had to be moved"
    assert watches["prompt_lookup"].rejected > 0
    assert watches["autoregressive"].accepted == watches["autoregressive"].rejected == 0


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_equal_to_generate_in_short(kind, place, monkeypatch, device):
    compare(place(kind, 0), 0, monkeypatch, device, 40)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava_next", "mistral, window 16"])
def test_equal_to_generate_with_eager_attention(kind, place, monkeypatch, device):
    compare(place(kind, 0), 0, monkeypatch, device, 60, attention="eager")


def demo(dtype: str, packed: bool = True) -> TransformersTarget:
    if not (DEMO / "config.json").is_file():
        pytest.skip("the demo model is not trained yet: assets/demo_model is missing")
    return load_target("demo", dtype=dtype, packed=packed)


def pictures_of_the_demo(seed: int) -> list[Any]:
    from PIL import Image

    files = sorted((DEMO.parent / "examples").rglob("*.png"))
    if not files:
        return [tiny.picture(448, 448, seed)]
    return [Image.open(files[(seed * 7) % len(files)])]


DEMO_TURNS = ("Describe the image in detail.", "What else is there?", "And here?")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_demo_model_equals_generate(seed):
    plain, fast = demo("float32", packed=False), demo("float32")
    right: dict[int, list[int]] = {}
    for target, decoder in ((t, d) for t in (plain, fast) for d in DECODERS):
        drafter = make_drafter(decoder, vocab_size=target.vocab_size)
        conversation, seen = Conversation(target), []
        for at, text in enumerate(DEMO_TURNS):
            pictures = pictures_of_the_demo(seed + at) if at != 1 else []
            try:
                conversation.ask(text, images=pictures)
            except ValueError:  # its context is short
                break
            seen.append(conversation._segment)
            room = min(TOKENS, target.max_context - len(conversation.ids) - 1)
            if at not in right:
                right[at] = expected(plain, list(conversation.ids), seen, room)
            turn = generate(conversation, drafter, max_new_tokens=room)
            assert list(turn.token_ids) == right[at], (decoder, at)
    assert right


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava_next", "llama"])
def test_reused_cache_and_fresh_prefill_give_the_same_tokens(kind, place):
    target = load_target(place(kind, 1), dtype="float32")
    conversation = Conversation(target)
    segments, ends = [], []
    for text, pictures in turns(target):
        conversation.ask(text, images=pictures)
        segments.append(conversation._segment)
        ends.append(len(conversation.ids))
        drafter = make_drafter("recap", vocab_size=target.vocab_size)
        reused = generate(conversation, drafter, max_new_tokens=40)
    ids, state = list(conversation.ids), target.new_state()
    for segment, end in zip(segments, ends, strict=True):
        first = target.prefill(state, ids[:end], segment, positions=[end - 1], top_k=0)
    fresh = [int(first.choice[-1])]
    while len(fresh) < 40:
        seen = target.verify(state, fresh[-1:], [0], np.ones((1, 1), bool), top_k=0)
        target.compact(state, [0])
        fresh.append(int(seen.choice[0]))
    assert fresh == list(reused.token_ids)


def test_a_question_answered_again_is_answered_alike(place):
    target = load_target(place("qwen2_5_vl", 0))
    conversation = Conversation(target)
    conversation.ask("what is it?", images=[tiny.picture(90, 70)])
    answers = []
    for decoder in DECODERS:
        drafter = make_drafter(decoder, vocab_size=target.vocab_size)
        answers.append(generate(conversation, drafter, max_new_tokens=30).token_ids)
        conversation.rewind()
    twin = conversation.fork()
    drafter = make_drafter("recap", vocab_size=target.vocab_size)
    answers.append(generate(twin, drafter, max_new_tokens=30).token_ids)
    answers.append(generate(conversation, drafter, max_new_tokens=30).token_ids)
    assert len(set(answers)) == 1


# bfloat16: every token is the argmax of the pass that made it; equality is not promised.


def own_argmax(
    target: TransformersTarget, conversation: Conversation, new: int, patch
) -> list[int]:
    """Run Recap; check each emitted token against the logits of its own pass -> the tokens."""
    logits: list[torch.Tensor] = []
    pack = logits_module.pack
    patch.setattr(
        logits_module, "pack", lambda rows, k: (logits.append(rows.clone()), pack(rows, k))[1]
    )
    answer = stream(
        conversation, make_drafter("recap", vocab_size=target.vocab_size), max_new_tokens=new
    )
    tokens: list[int] = []
    for step in answer:
        if not tokens:
            tokens.append(answer.first_token)
        best = logits[-1].float().argmax(-1).tolist()
        path = [0, *step.accepted]
        emitted = [best[row] for row in path][: len(step.token_ids)]
        assert list(step.token_ids) == emitted
        tokens += emitted
    return tokens


def match(ours: list[int], plain: list[int]) -> float:
    """Share of the answer up to the first difference."""
    same = next(
        (i for i, (a, b) in enumerate(zip(ours, plain, strict=False)) if a != b), len(plain)
    )
    return same / len(plain)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llama", "demo"])
def test_bfloat16_emits_the_argmax_of_its_own_pass(kind, place, monkeypatch, record_property):
    target = demo("bfloat16") if kind == "demo" else load_target(place(kind, 0), dtype="bfloat16")
    conversation = Conversation(target)
    pictures = pictures_of_the_demo(0) if kind == "demo" else [tiny.picture(90, 70)]
    conversation.ask("Describe the image.", images=pictures if target.sees_images else [])
    plain = generate(
        conversation,
        make_drafter("autoregressive", vocab_size=target.vocab_size),
        max_new_tokens=100,
    )
    conversation.rewind()
    with monkeypatch.context() as patch:
        ours = own_argmax(target, conversation, 100, patch)
    ratio = match(ours, list(plain.token_ids))
    record_property("match_ratio", ratio)
    print(f"bfloat16, {kind}: {ratio:.1%} of the answer before the first difference")
    assert ours[0] == plain.token_ids[0]


# The known mistakes. Each one, built in, must change the output.


def packed_positions(patch) -> None:
    """Positions by packed index instead of depth."""
    real = TransformersTarget.verify

    def verify(self, state, tokens, depths, mask, **more):
        return real(self, state, tokens, list(range(len(tokens))), mask, **more)

    patch.setattr(TransformersTarget, "verify", verify)


def crop_without_gather(patch) -> None:
    """Accepted slots are counted, not moved."""
    patch.setattr(KVCache, "compact", lambda self, base, kept: self.crop_to(base + len(kept)))


def causal_mask(patch) -> None:
    """Every packed token sees all earlier ones, other branches too."""
    real = masks.tree_mask

    def mask(ancestors, depths, length, window):
        return real(torch.ones_like(ancestors).tril(), depths, length, window)

    patch.setattr(masks, "tree_mask", mask)


def dropped_delta(patch) -> None:
    """Tokens behind an image stand where a text model would put them."""
    real = QwenVLTarget.positions

    def positions(self, state, depths):
        forgetful = copy.copy(state)
        forgetful.extra = {"images": []}
        return real(self, forgetful, depths)

    patch.setattr(QwenVLTarget, "positions", positions)


def bool_mask_under_eager(patch) -> None:
    """Eager attention adds the mask: True would be a bias of 1."""
    patch.setattr(masks, "as_bias", lambda mask, dtype: mask)


def dropped_prefix(patch) -> None:
    """The tree sees itself alone, as a kernel that ignores the cache would have it."""
    real = masks.tree_mask

    def mask(ancestors, depths, length, window):
        made = real(ancestors, depths, length, window)
        made[:, :length] &= len(depths) == 1
        return made

    patch.setattr(masks, "tree_mask", mask)


MUTANTS = [
    packed_positions,
    crop_without_gather,
    causal_mask,
    dropped_delta,
    bool_mask_under_eager,
    dropped_prefix,
]


@pytest.mark.parametrize("decoder", ["recap", "token_recycling"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_are_noticed(mutant, decoder, place, monkeypatch):
    attention = "eager" if mutant is bool_mask_under_eager else "sdpa"
    target = load_target(place("qwen2_5_vl", 0), dtype="float32", attention=attention)

    def answer() -> list[int]:
        conversation = Conversation(target)
        conversation.ask("what is the red square?", images=[tiny.picture(112, 112)])
        segment = conversation._segment
        drafter = make_drafter(decoder, vocab_size=target.vocab_size)
        tokens = generate(conversation, drafter, max_new_tokens=120).token_ids
        return [list(conversation.ids[: conversation.prompt_tokens]), segment, list(tokens)]

    ids, segment, right = answer()
    assert right == expected(target, ids, [segment], 120)
    with monkeypatch.context() as patch:
        mutant(patch)
        assert answer()[2] != right
