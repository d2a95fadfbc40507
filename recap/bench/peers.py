"""Other libraries' decoders on the same target and the same prompts, where they are installed.

    transformers_greedy   transformers' own `generate(do_sample=False)`
    transformers_lookup   the same with `prompt_lookup_num_tokens` and `max_matching_ngram_size`
    flashspec_ngram       flashspec's engine with its n-gram drafter (PyPI `flashspec`); text only
    arctic_suffix         suffix decoding of PyPI `arctic-inference`: its cache proposes the tree, our
                          engine verifies it (its own engine is vLLM)

All of them run the target's own modules: the same weights in the same layout, the output layer included
(`shared_output_layer`), and the same attention.

What is timed. The first two: from the moment `generate` hands out the tokens of the prompt's pass to the
moment it hands out the last ones, by a streamer that only reads the clock. flashspec: the engine's own
step times without the first step, which holds the prompt. arctic: draft, pass and update, as ours. Each has
a few settings that are tried on the first samples (`tune`); the fastest one is measured.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers.generation.streamers import BaseStreamer

from ..conversation import Conversation
from ..targets.transformers_target import TransformersTarget
from .runners import EngineRunner, Outcome, Pass, Runner
from .suffix import SuffixDrafter

Setting = dict[str, Any]

TUNED_TOKENS = 48
"""Answer length on which a library's settings are tried."""


@contextmanager
def shared_output_layer(target: TransformersTarget) -> Iterator[None]:
    """Let the target's model use the output layer that our engine uses, packed on a CPU, for a while."""
    model = target.model
    own = model.get_output_embeddings()
    model.set_output_embeddings(target.output_layer)
    try:
        yield
    finally:
        model.set_output_embeddings(own)


class PeerRunner:
    """A library with an engine of its own: nothing but its setting stays between answers."""

    top_k = 0

    def __init__(self, target: TransformersTarget, **setting: Any) -> None:
        self.target, self.setting = target, setting

    def refuses(self, conversation: Conversation) -> str | None:
        return None

    def reset(self) -> None:
        """It remembers nothing."""

    @contextmanager
    def _running(self) -> Iterator[None]:
        """The model to ourselves, as our engine runs it."""
        with self.target.lock, torch.inference_mode(), shared_output_layer(self.target):
            yield

    def _outcome(
        self,
        ids: Sequence[int],
        prefill_s: float,
        prefill_tokens: int,
        passes: Sequence[Pass],
        seconds: float,
    ) -> Outcome:
        ends = (i for i, token in enumerate(ids) if token in self.target.eos_ids)
        ids = tuple(ids[: next(ends, len(ids)) + 1])
        first = min(prefill_tokens, len(ids))
        return Outcome(ids, self.target.decode(ids), prefill_s, seconds, tuple(passes), first)


class _Clock(BaseStreamer):
    """Notes when tokens come and how many."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int]] = []

    def put(self, value: torch.Tensor) -> None:
        self.marks.append((time.perf_counter(), value.numel()))

    def end(self) -> None:
        """Nothing to flush."""


class GenerateRunner(PeerRunner):
    """transformers' `generate`, greedy; settings are its keyword arguments."""

    def answer(self, conversation: Conversation, max_new_tokens: int) -> Outcome:
        target, clock = self.target, _Clock()
        inputs = model_inputs(conversation)
        prompt_tokens = inputs["input_ids"].shape[1]
        # a copied placeholder would stand for an image that is not there
        blocked = sorted(target.blocked)
        with self._running():
            out = target.model.generate(
                **inputs,
                do_sample=False,
                max_new_tokens=min(max_new_tokens, target.max_context - prompt_tokens),
                eos_token_id=sorted(target.eos_ids) or None,
                pad_token_id=min(target.eos_ids, default=0),
                suppress_tokens=blocked or None,
                streamer=clock,
                **self.setting,
            )
        ids = out[0, prompt_tokens:].tolist()
        (begun, _), (first_at, first), *later = clock.marks
        last = later[-1][0] if later else first_at
        passes = [Pass(0, emitted) for _, emitted in later]
        return self._outcome(ids, first_at - begun, first, passes, last - first_at)


def model_inputs(conversation: Conversation) -> dict[str, torch.Tensor]:
    """The whole prompt of the open question as the model's `forward` takes it, images included."""
    target = conversation.target
    ids = torch.tensor([conversation.ids[: conversation.prompt_tokens]], device=target.device)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    images = [image for message in conversation.messages for image in message.images]
    if images:
        made, _ = target.image_inputs(images)
        inputs |= {name: value.to(target.device) for name, value in made.items()}
    if "mm_token_type_ids" in inspect.signature(target.model.forward).parameters:
        token = target.model.config.image_token_id
        inputs["mm_token_type_ids"] = (ids == token).to(torch.int32)
    return inputs


class FlashspecRunner(PeerRunner):
    """flashspec's engine, greedy, with the n-gram drafter; setting: gamma, tokens it proposes per step."""

    def __init__(self, target: TransformersTarget, **setting: Any) -> None:
        super().__init__(target, **setting)
        flashspec = importlib.import_module("flashspec")
        engine = importlib.import_module("flashspec.engine")
        ngram = importlib.import_module("flashspec.engine.ngram")
        # it warns that a bandit of one arm cannot adapt, which is what is wanted
        logging.getLogger("flashspec").setLevel(logging.ERROR)
        config = flashspec.FlashSpecConfig(
            device=target.device,
            drafter_strategy="bandit",
            bandit={"n_arms": 1},
            sampling=flashspec.SamplingConfig(temperature=0.0, gamma=setting["gamma"]),
        )
        device = torch.device(target.device)
        model = engine.TargetModel(target.name, device, target.model.dtype, model=target.model)
        self.engine = flashspec.SpeculativeEngine(config, [ngram.NgramDrafter()], model)

    def refuses(self, conversation: Conversation) -> str | None:
        return "it reads text models only" if self.target.sees_images else None

    def answer(self, conversation: Conversation, max_new_tokens: int) -> Outcome:
        target = self.target
        prompt = torch.tensor([conversation.ids[: conversation.prompt_tokens]])
        limit = min(max_new_tokens, target.max_context - prompt.shape[1])
        with self._running():
            made = self.engine.generate(
                prompt, max_new_tokens=limit, eos_token_ids=sorted(target.eos_ids)
            )
        first, *later = made.arm_steps
        ids = made.output_ids[0, : made.n_tokens_generated].tolist()
        passes = [Pass(1 + self.setting["gamma"], step.emitted) for step in later]
        seconds = sum(step.seconds for step in later)
        return self._outcome(ids, first.seconds, first.emitted, passes, seconds)


def _suffix(target: TransformersTarget, **setting: Any) -> Runner:
    return EngineRunner(SuffixDrafter(**setting))


@dataclass(frozen=True, slots=True)
class Peer:
    """A decoder of another library. package: what to install. module: what is imported."""

    package: str
    module: str
    make: Callable[..., Runner]
    settings: tuple[Setting, ...] = ({},)

    def missing(self) -> str | None:
        """Why it cannot be measured here; None if it can."""
        if importlib.util.find_spec(self.module.partition(".")[0]) is None:
            return f"not installed (pip install {self.package})"
        try:
            importlib.import_module(self.module)
        except Exception as error:  # built for another machine, other versions: anything may come
            return f"installed but not importable: {_first_line(error)}"
        return None


PEERS: dict[str, Peer] = {
    "transformers_greedy": Peer("transformers", "transformers", GenerateRunner),
    "transformers_lookup": Peer(
        "transformers",
        "transformers",
        GenerateRunner,
        tuple(
            {"prompt_lookup_num_tokens": tokens, "max_matching_ngram_size": ngram}
            for tokens in (3, 6, 10, 16)
            for ngram in (2, 3)
        ),
    ),
    "flashspec_ngram": Peer(
        "flashspec", "flashspec", FlashspecRunner, tuple({"gamma": n} for n in (2, 3, 4, 6, 10))
    ),
    "arctic_suffix": Peer(
        "arctic-inference",
        "arctic_inference.suffix_decoding",
        _suffix,
        tuple({"tokens": n, "factor": f} for n in (4, 8, 16, 32) for f in (1.0, 2.0)),
    ),
}
"""Every peer with the settings that are tried."""


def tune(
    target: TransformersTarget, name: str, conversations: Sequence[Conversation]
) -> tuple[Runner | None, dict[str, Any]]:
    """The peer with its fastest setting on these open questions -> (runner, what the report says of it).

    The runner is None where the library is missing or refuses. A setting that fails is noted and passed over.
    """
    peer = PEERS[name]
    missing = peer.missing()
    if missing is not None:
        return None, {"status": missing}
    version = importlib.metadata.version(peer.package)
    about: dict[str, Any] = {"status": "measured", "version": version}
    tried: list[tuple[float, Runner, Setting]] = []
    sweep: list[dict[str, Any]] = []
    for setting in peer.settings:
        try:
            runner = peer.make(target, **setting)
            refusals = [runner.refuses(c) for c in conversations]
            taken = [c for c, no in zip(conversations, refusals, strict=True) if no is None]
            if not taken:
                return None, about | {"status": f"skipped: {refusals[0]}"}
            speed = _speed(runner, taken) if len(peer.settings) > 1 else 0.0
        except Exception as error:  # another library's: anything may come
            sweep.append({"setting": setting, "error": _first_line(error)})
            continue
        tried.append((speed, runner, setting))
        sweep.append({"setting": setting, "tokens_per_s": round(speed, 2)})
    if not tried:
        return None, about | {"status": f"failed: {sweep[0]['error']}", "sweep": sweep}
    _, runner, about["setting"] = max(tried, key=lambda one: one[0])
    runner.reset()
    return runner, about | ({"sweep": sweep} if len(peer.settings) > 1 else {})


def again(target: TransformersTarget, name: str, about: dict[str, Any]) -> Runner | None:
    """The peer with the setting that an interrupted run had found, None where it was not measured."""
    return PEERS[name].make(target, **about["setting"]) if "setting" in about else None


def _speed(runner: Runner, conversations: Sequence[Conversation]) -> float:
    """Decoded tokens per second, after a short warm-up."""
    runner.answer(conversations[0], 8)
    outcomes = [runner.answer(c, TUNED_TOKENS) for c in conversations]
    decoded = sum(len(o.token_ids) - o.prefill_tokens for o in outcomes)
    seconds = sum(o.decode_s for o in outcomes)
    return decoded / seconds if seconds else 0.0


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def in_words(about: dict[str, Any]) -> str:
    """What the report says of a peer, as a sentence.

    >>> in_words({"status": "measured", "version": "1.2", "setting": {"gamma": 4, "factor": 2.0}})
    '1.2, measured with gamma 4, factor 2.0'
    """
    version = f"{about['version']}, " if "version" in about else ""
    setting = f" with {_words(about['setting'])}" if about.get("setting") else ""
    tried = [
        f"{_words(one['setting'])}: {one.get('tokens_per_s', one.get('error'))}"
        for one in about.get("sweep", [])
    ]
    sweep = f"; tokens/s by setting: {'; '.join(tried)}" if tried else ""
    return f"{version}{about['status']}{setting}{sweep}"


def _words(setting: Setting) -> str:
    return ", ".join(f"{name} {value}" for name, value in setting.items())
