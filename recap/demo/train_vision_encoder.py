"""First stage: the vision encoder alone learns to name what every cell shows.

The marks of a cell also say what it belongs to (a bar's label carries its value, a table's number its row
and column), so that the language model only has to look it up.
"""

import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from . import model, pool, trainer, vision_encoder, world

BATCH = 32
SIGN_SHARDS = 8


def unpack(packed: list[np.ndarray], count: int) -> torch.Tensor:
    return torch.from_numpy(np.unpackbits(np.stack(packed), axis=-1, count=count)).float()


def batch(items: list[pool.Item], count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Items of one size -> pixels [B, 4 * cells, 588], marks [B, cells, count], letters."""
    pixels = vision_encoder.normalise(torch.from_numpy(np.stack([i.patches for i in items])))
    letters = unpack([i.letters for i in items], len(vision_encoder.LETTERS))
    return pixels, unpack([i.bits for i in items], count), letters


def loss_of(visual, head, items: list[pool.Item], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The losses of marks and of letters on a batch."""
    pixels, marks, letters = batch(items, count)
    midway: list[torch.Tensor] = []
    with torch.autocast("cpu", torch.bfloat16):
        tokens = vision_encoder.encode(visual, pixels, items[0].rows, items[0].cols, midway)
        mark_logits, letter_logits = head(tokens, midway[0])
    weight = torch.tensor(3.0)
    return (
        nn.functional.binary_cross_entropy_with_logits(
            mark_logits.float(), marks, pos_weight=weight
        ),
        nn.functional.binary_cross_entropy_with_logits(
            letter_logits.float(), letters, pos_weight=weight
        ),
    )


def scores(visual, head, items: list[pool.Item], names: tuple[str, ...]) -> dict[str, float]:
    """F1 of each group of marks on held-out pictures."""
    hit, predicted, true = (defaultdict(float) for _ in range(3))
    group = [name.split(":")[0] for name in names]
    for part in pool.groups(items, 64, np.random.default_rng(0)):
        pixels, want, _ = batch(part, len(names))
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            tokens = vision_encoder.encode(visual, pixels, part[0].rows, part[0].cols)
            got = (head.marks(tokens) > 0.7).float()
        both, got, want = ((t.sum((0, 1))).tolist() for t in (got * want, got, want))
        for g, a, b, c in zip(group, both, got, want, strict=True):
            hit[g] += a
            predicted[g] += b
            true[g] += c
    return {g: round(2 * hit[g] / max(1, predicted[g] + true[g]), 4) for g in sorted(true)}


def train(work: Path, minutes: float = 30, peak: float = 2e-3, shards: int = 64) -> Path:
    """Train the vision encoder for a budget of minutes -> `work`/vision_encoder.pt, from which it resumes."""
    torch.set_num_threads(1)
    names = vision_encoder.marks()
    whole = model.build(seed=1)
    visual, head = (
        whole.model.visual,
        vision_encoder.Heads(256, len(names), whole.config.vision_config.hidden_size),
    )
    named = [*visual.named_parameters(), *head.named_parameters()]
    clock, target = trainer.Clock(minutes, peak), work / "vision_encoder.pt"
    opt = trainer.Optimizer(named, peak)
    if state := trainer.load(target, clock):
        visual.load_state_dict(state["visual"])
        head.load_state_dict(state["head"])
        opt.load_state_dict(state["opt"])

    def save() -> None:
        trainer.save(target, clock, visual=visual.state_dict(), head=head.state_dict(),
                     opt=opt.state_dict(), marks=list(names))  # fmt: skip

    index = {name: i for i, name in enumerate(names)}
    held = [pool.item(world.draw_any(f"held{i}"), index) for i in range(400)]
    last_save = last_score = time.time()
    round_ = clock.step
    recent: list[float] = []
    while not clock.done:
        ready = [n for n in range(shards) if pool.path(work / "pool", n).exists()]
        items = pool.load(work / "pool", ready[round_ % len(ready)])
        # Words on signs are learned slowly: three more signs for every four pictures.
        items += pool.load(work / "signs", round_ % SIGN_SHARDS)[: len(items) * 3 // 4]
        round_ += 1
        for part in pool.groups(items, BATCH, np.random.default_rng(round_)):
            loss, letters = loss_of(visual, head, part, len(names))
            (loss + letters).backward()
            opt.step(clock.rate())
            clock.step += 1
            recent.append((loss.item(), letters.item()))
            if clock.step % 50 == 0:
                print(f"vision {clock.step} {clock.elapsed:.0f} s loss {np.mean(recent, 0)} "
                      f"rate {clock.rate():.2e}", flush=True)  # fmt: skip
                recent.clear()
            if clock.done:
                break
        if time.time() - last_save > 180:
            save()
            last_save = time.time()
        if time.time() - last_score > 240:
            print(scores(visual, head, held, names), flush=True)
            last_score = time.time()
    save()
    print(scores(visual, head, held, names), flush=True)
    return target
