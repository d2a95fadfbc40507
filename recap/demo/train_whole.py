"""The last stage: everything unfrozen at a low rate, on dialogues and on the marks of cells.

The heads of the first stage stay as they were: they hold what the eye says to what the language half
has learned to hear, and let the marks that are still unsure go on improving.
"""

import time
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from recap.demo import eye, model, pool, stage, tongue
from recap.demo.train_eye import DRILL
from recap.demo.train_tongue import BATCH, dialogues, look

MARKS = 5.0  # weight of the marks' loss beside the answers'


def train(
    work: Path, tok: PreTrainedTokenizerFast, minutes: float, peak: float, shards: int = 64,
    room: int = 700,
) -> Path:  # fmt: skip
    """Train everything for a budget of minutes; resumes from `work`/whole.pt; returns that path."""
    torch.set_num_threads(1)
    net, target = model.build(seed=1), work / "whole.pt"
    net.load_state_dict(stage.load(work / "tongue.pt")["net"])
    visual, language = net.model.visual, net.model.language_model
    first = stage.load(work / "eye.pt")
    names = tuple(first["marks"])
    head = eye.Naming(language.config.hidden_size, len(names), visual.config.hidden_size)
    head.load_state_dict(first["head"])
    head.requires_grad_(False)
    clock = stage.Clock(minutes, peak, warm=30, flat=0.2)
    opt = stage.Pair([*language.named_parameters(), *visual.named_parameters()], peak)
    if state := stage.load(target, clock):
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])

    def keep() -> None:
        stage.save(target, clock, net=net.state_dict(), opt=opt.state_dict())

    last_save, recent, turn = time.time(), [], clock.step // (pool.SHARD // BATCH)
    weight = torch.tensor(3.0)
    while not clock.done:
        items = pool.load(work / "pool", (turn + shards // 2) % shards)
        items += pool.load(work / "signs", turn % DRILL)[:256]
        turn += 1
        talks = dialogues(tok, items, Random(f"whole{turn}"), room)
        starts = list(range(0, len(talks), BATCH))
        for k in np.random.default_rng(turn).permutation(len(starts)):
            part = talks[starts[k] : starts[k] + BATCH]
            need = sorted({j for _, shown in part for j in shown})
            with torch.autocast("cpu", torch.bfloat16):
                seen = dict(zip(need, look(visual, [items[j] for j in need]), strict=True))
                features = [[seen[j] for j in shown] for _, shown in part]
                loss, count = tongue.loss_of(language, [s for s, _ in part], features)
                said = head.out(torch.cat([seen[j] for j in need]))
            bits = np.concatenate([items[j].bits for j in need])
            want = torch.from_numpy(np.unpackbits(bits, axis=-1, count=len(names))).float()
            marks = nn.functional.binary_cross_entropy_with_logits(
                said.float(), want, pos_weight=weight
            )
            (loss + MARKS * marks).backward()
            opt.step(clock.rate())
            clock.step += 1
            recent.append((loss.item(), marks.item(), count))
            if clock.step % 25 == 0:
                mean = np.average([r[:2] for r in recent], 0, weights=[r[2] for r in recent])
                print(f"whole {clock.step} {clock.elapsed:.0f} s losses {mean} "
                      f"rate {clock.rate():.2e}", flush=True)  # fmt: skip
                recent.clear()
            if clock.done:
                break
            if time.time() - last_save > 150:
                keep()
                last_save = time.time()
    keep()
    return target
