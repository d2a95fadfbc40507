"""Third and fourth stage: the language model learns whole dialogues on top of the frozen vision encoder.

Every picture gets a new dialogue each time it is used. Its image tokens are cached in memory.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from . import language_model, model, pool, trainer, vision_encoder
from .align import align
from .dialogues.compose import dialogue

BATCH = 16
Dialogue = tuple[language_model.Sequence, list[int]]  # with the numbers of its pictures


def encode_pictures(visual, items: list[pool.Item]) -> list[torch.Tensor]:
    """The merged tokens [cells, C] of each picture, computed in batches of one size."""
    out: list[torch.Tensor | None] = [None] * len(items)
    by_size: dict[tuple[int, int], list[int]] = {}
    for i, it in enumerate(items):
        by_size.setdefault((it.rows, it.cols), []).append(i)
    for (rows, cols), which in by_size.items():
        for k in range(0, len(which), 64):
            part = which[k : k + 64]
            patches = np.stack([items[i].patches for i in part])
            seen = vision_encoder.encode(
                visual, vision_encoder.normalise(torch.from_numpy(patches)), rows, cols
            )
            for i, s in zip(part, seen, strict=True):
                out[i] = s
    return out


def dialogues(
    tok: PreTrainedTokenizerFast, items: list[pool.Item], rng: Random, length: int,
    brief: float = 0.0, grids: list[tuple[int, int]] | None = None,
) -> list[Dialogue]:  # fmt: skip
    """A new dialogue for each picture, sorted by length.

    One in ten shows a second picture, with half the length for each; one in twenty shows none.
    length, brief: see `compose`. grids: rows and columns of image tokens, if not those of the cells.
    """
    grids = grids or [(item.rows, item.cols) for item in items]
    out = []
    for i in range(len(items)):
        chance = rng.random()
        shown = [] if chance < 0.04 else [i, rng.randrange(len(items))] if chance < 0.14 else [i]
        pictures = [(items[j].kind, items[j].facts) for j in shown]
        lines = dialogue(rng, pictures, length // max(1, len(shown)), brief)
        seq = language_model.encode(tok, lines, [grids[j] for j in shown])
        out.append((seq, [shown[k] for k in seq.pictures]))
    out.sort(key=lambda d: len(d[0].ids))
    return out


def train(
    work: Path, tok: PreTrainedTokenizerFast, minutes: float, peak: float, shards: int = 64,
    length: int = 700, brief: float = 0.0, name: str = "language_model", start: int = 0,
) -> Path:  # fmt: skip
    """Train the language model for a budget of minutes -> `work`/`name`.pt, from which it resumes.

    Any other stage than "language_model" starts from that stage's checkpoint.
    """
    torch.set_num_threads(1)
    net, target = model.build(seed=1), work / f"{name}.pt"
    first = trainer.load(work / "vision_encoder.pt")
    net.model.visual.load_state_dict(first["visual"])
    visual, language = net.model.visual, net.model.language_model
    visual.requires_grad_(False)
    clock = trainer.Clock(minutes, peak, warm=60, flat=0.3)
    opt = trainer.Optimizer(list(language.named_parameters()), peak)
    if state := trainer.load(target, clock):
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
    elif name != "language_model":
        state = trainer.load(work / "language_model.pt")
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
    else:
        table = language.embed_tokens.weight
        table.data = align(table.data, tok, first["marks"], first["head"]["marks.weight"])
    if signs := trainer.load(work / "signs.pt"):
        visual.load_state_dict(signs["visual"])

    def save() -> None:
        trainer.save(target, clock, net=net.state_dict(), opt=opt.state_dict())

    cached: dict[int, list[torch.Tensor]] = {}

    def batches(round_: int) -> tuple[list[Dialogue], Callable]:
        number = (start + round_ // 2) % shards  # each shard twice in a row
        items = pool.load(work / "pool", number)
        if number not in cached:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                cached[number] = [s.bfloat16() for s in encode_pictures(visual, items)]
        made = dialogues(tok, items, Random(f"{name}{round_ + 1}"), length, brief)
        return made, lambda seqs, shown: language_model.loss_of(
            language, seqs, [[cached[number][j] for j in some] for some in shown]
        )

    learn_dialogues(name, clock, opt, batches, save)
    return target


def learn_dialogues(
    name: str, clock: trainer.Clock, opt: trainer.Optimizer,
    batches: Callable[[int], tuple[list[Dialogue], Callable]], save: Callable[[], None],
) -> None:  # fmt: skip
    """Learn from dialogues until the budget of minutes is used, saving checkpoints.

    `batches(round)` returns a shard's dialogues sorted by length, and a function from a batch of them
    (sequences, and the pictures that each shows) to the loss and its number of tokens.
    """
    last_save, recent, round_ = time.time(), [], clock.step // (pool.SHARD // BATCH)
    while not clock.done:
        made, loss_of = batches(round_)
        round_ += 1
        starts = list(range(0, len(made), BATCH))
        for k in np.random.default_rng(round_).permutation(len(starts)):
            part = made[starts[k] : starts[k] + BATCH]
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
                save()
                last_save = time.time()
    save()
