"""The second stage: the language half learns whole dialogues on top of the frozen eye.

Every picture is talked about afresh each time it comes by; the eye's tokens of a picture are kept in
memory.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from . import dialogue, language_model, model, pool, trainer, vision_encoder
from .align import align

BATCH = 16
Talk = tuple[language_model.Sequence, list[int]]  # a dialogue, and the pictures that it shows


def look(visual, items: list[pool.Item]) -> list[torch.Tensor]:
    """The merged tokens of each picture, batched by size."""
    out: list[torch.Tensor | None] = [None] * len(items)
    by_size: dict[tuple[int, int], list[int]] = {}
    for i, it in enumerate(items):
        by_size.setdefault((it.rows, it.cols), []).append(i)
    for (rows, cols), which in by_size.items():
        for k in range(0, len(which), 64):
            part = which[k : k + 64]
            patches = np.stack([items[i].patches for i in part])
            seen = vision_encoder.see(
                visual, vision_encoder.normalise(torch.from_numpy(patches)), rows, cols
            )
            for i, s in zip(part, seen, strict=True):
                out[i] = s
    return out


def dialogues(
    tok: PreTrainedTokenizerFast, items: list[pool.Item], rng: Random, room: int, brief: float = 0.0,
    grids: list[tuple[int, int]] | None = None,
) -> list[Talk]:  # fmt: skip
    """A fresh dialogue for each picture, in order of length, with the pictures it shows.

    One in ten shows a second picture, with half the room for each; one in twenty shows none.
    `grids` are the pictures' rows and columns of tokens, if they are not those of their cells.
    """
    grids = grids or [(item.rows, item.cols) for item in items]
    out = []
    for i in range(len(items)):
        chance = rng.random()
        shown = [] if chance < 0.04 else [i, rng.randrange(len(items))] if chance < 0.14 else [i]
        pictures = [(items[j].kind, items[j].facts) for j in shown]
        lines = dialogue.talk(rng, pictures, room // max(1, len(shown)), brief)
        seq = language_model.encode(tok, lines, [grids[j] for j in shown])
        out.append((seq, [shown[k] for k in seq.pictures]))
    out.sort(key=lambda d: len(d[0].ids))
    return out


def train(
    work: Path, tok: PreTrainedTokenizerFast, minutes: float, peak: float, shards: int = 64,
    room: int = 700, brief: float = 0.0, name: str = "tongue", start: int = 0,
) -> Path:  # fmt: skip
    """Train the language half for a budget of minutes; resumes from `work`/`name`.pt.

    Under another name than "tongue" it goes on from there: a drill of short questions, say.
    """
    torch.set_num_threads(1)
    net, target = model.build(seed=1), work / f"{name}.pt"
    first = trainer.load(work / "vision_encoder.pt")
    net.model.visual.load_state_dict(first["visual"])
    visual, language = net.model.visual, net.model.language_model
    visual.requires_grad_(False)
    clock = trainer.Clock(minutes, peak, warm=60, flat=0.3)
    opt = trainer.Pair(list(language.named_parameters()), peak)
    if state := trainer.load(target, clock):
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
    elif name != "tongue":
        state = trainer.load(work / "language_model.pt")
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
    else:
        table = language.embed_tokens.weight
        table.data = align(table.data, tok, first["marks"], first["head"]["out.weight"])
    if after := trainer.load(work / "lesson.pt"):
        visual.load_state_dict(after["visual"])

    def keep() -> None:
        trainer.save(target, clock, net=net.state_dict(), opt=opt.state_dict())

    kept: dict[int, list[torch.Tensor]] = {}

    def lesson(turn: int) -> tuple[list[Talk], Callable]:
        number = (start + turn // 2) % shards  # each shard twice running
        items = pool.load(work / "pool", number)
        if number not in kept:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                kept[number] = [s.bfloat16() for s in look(visual, items)]
        talks = dialogues(tok, items, Random(f"{name}{turn + 1}"), room, brief)
        return talks, lambda seqs, shown: language_model.loss_of(
            language, seqs, [[kept[number][j] for j in some] for some in shown]
        )

    practise(name, clock, opt, lesson, keep)
    return target


def practise(
    name: str, clock: trainer.Clock, opt: trainer.Pair,
    lesson: Callable[[int], tuple[list[Talk], Callable]], keep: Callable[[], None],
) -> None:  # fmt: skip
    """Learn from dialogues until the clock says so, and keep checkpoints.

    `lesson(turn)` gives a shard's dialogues in order of length, and the function from a batch of them
    (their sequences, and the pictures that each shows) to the loss and its number of tokens.
    """
    last_save, recent, turn = time.time(), [], clock.step // (pool.SHARD // BATCH)
    while not clock.done:
        talks, loss_of = lesson(turn)
        turn += 1
        starts = list(range(0, len(talks), BATCH))
        for k in np.random.default_rng(turn).permutation(len(starts)):
            part = talks[starts[k] : starts[k] + BATCH]
            with torch.autocast("cpu", torch.bfloat16):
                loss, count = loss_of([s for s, _ in part], [shown for _, shown in part])
            loss.backward()
            opt.step(clock.rate())
            clock.step += 1
            recent.append((loss.item(), count))
            if clock.step % 25 == 0:
                mean = np.average([r[0] for r in recent], weights=[r[1] for r in recent])
                print(f"{name} {clock.step} {clock.elapsed:.0f} s loss {mean:.4f} "
                      f"rate {clock.rate():.2e}", flush=True)  # fmt: skip
                recent.clear()
            if clock.done:
                break
            if time.time() - last_save > 150:
                keep()
                last_save = time.time()
    keep()
