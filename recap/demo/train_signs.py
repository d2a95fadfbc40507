"""Second stage: the vision encoder learns more signs, and keeps its tokens for everything else.

The heads of the first stage are frozen. The tokens of other pictures are pulled towards their old values, so
that a language model that has learned to read the old tokens can read the new ones.
"""

import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn

from . import model, pool, train_vision_encoder, trainer, vision_encoder, world

BATCH = 32


def train(work: Path, minutes: float, peak: float = 1e-3, shards: int = 64) -> Path:
    """Train for a budget of minutes: `work`/vision_encoder.pt -> `work`/signs.pt."""
    torch.set_num_threads(1)
    first, target = trainer.load(work / "vision_encoder.pt"), work / "signs.pt"
    names = tuple(first["marks"])
    index = {name: i for i, name in enumerate(names)}
    visual = model.build(seed=1).model.visual
    head = vision_encoder.Heads(
        visual.config.out_hidden_size, len(names), visual.config.hidden_size
    )
    visual.load_state_dict(first["visual"])
    head.load_state_dict(first["head"])
    head.requires_grad_(False)
    before = copy.deepcopy(visual).requires_grad_(False)
    held = [pool.item(world.draw("sign", f"held{i}"), index) for i in range(128)]
    clock = trainer.Clock(minutes, peak, warm=20, flat=0.3)
    opt = trainer.Optimizer(list(visual.named_parameters()), peak)
    round_ = 0
    while not clock.done:
        others = [i for i in pool.load(work / "pool", round_ % shards) if i.kind != "sign"][:192]
        units = (80, 96, 112)
        signs = [
            pool.item(world.draw("sign", f"more{round_}-{i}", units[i % 3]), index)
            for i in range(576)
        ]
        round_ += 1
        batches = pool.groups(signs, BATCH, np.random.default_rng(round_))
        other_batches = pool.groups(others, 16, np.random.default_rng(round_))
        for i, part in enumerate(batches):
            marks, letters = train_vision_encoder.loss_of(visual, head, part, len(names))
            loss = marks + letters
            rest = other_batches[i % len(other_batches)]
            pixels = train_vision_encoder.batch(rest, len(names))[0]
            size = rest[0].rows, rest[0].cols
            with torch.autocast("cpu", torch.bfloat16):
                now = vision_encoder.encode(visual, pixels, *size).float()
                with torch.no_grad():
                    then = vision_encoder.encode(before, pixels, *size).float()
            drift = nn.functional.mse_loss(now, then) / then.var()
            (10 * loss + drift).backward()
            opt.step(clock.rate())
            clock.step += 1
            if clock.step % 20 == 0:
                print(f"signs {clock.step} {clock.elapsed:.0f} s marks {marks.item():.5f} letters "
                      f"{letters.item():.5f} drift {drift.item():.5f}", flush=True)  # fmt: skip
            if clock.done:
                break
        if round_ % 3 == 0:
            print(train_vision_encoder.scores(visual, head, held, names)["word"], flush=True)
    print(train_vision_encoder.scores(visual, head, held, names), flush=True)
    trainer.save(target, clock, visual=visual.state_dict())
    return target
