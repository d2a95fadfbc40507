"""The twin's two stages: the CLIP tower learns what the demo model's eye sees, then the words follow.

"sight" teaches tower and projector: each token of each crop is to be the eye's token of the cell that
it looks at, and to name its marks by the eye's own heads. "voice" teaches the language half, which
comes from the demo model, to read overview and tiles at plain positions.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from . import language_model, llava, pool, trainer, views, vision_encoder
from . import model as first_model
from .train_language_model import dialogues, look, practise
from .train_vision_encoder import unpack

BATCH = 32


def heads(work: Path) -> tuple[vision_encoder.Naming, tuple[str, ...]]:
    """The first eye's heads, frozen, and the names of its marks."""
    first = trainer.load(work / "vision_encoder.pt")
    names = tuple(first["marks"])
    vision = first_model.config().vision_config
    head = vision_encoder.Naming(vision.out_hidden_size, len(names), vision.hidden_size)
    head.load_state_dict(first["head"])
    return head.requires_grad_(False), names


def teacher(work: Path):
    """The first model as it was shipped: its eye teaches the tower, its words are taken over."""
    net = first_model.build(seed=1)
    net.load_state_dict(trainer.load(work / "drill.pt")["net"])
    return net.requires_grad_(False)


def shard(work: Path, number: int) -> tuple[list[pool.Item], list[views.Views]]:
    """The same pictures in both models' eyes."""
    return pool.load(work / "pool", number), pool.load(work / "views", number)


def batch(
    items: list[pool.Item], seen: list[views.Views], eyes: list[Tensor],
    which: list[list[int]], marks: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Crops `which[i]` of each picture, and what their tokens are to be.

    -> pixels [B, 3, TILE, TILE], tokens [B, 36, hidden], marks [B, 36, marks], letters [B, 36,
    4 * letters], and whether any of the picture is there [B, 36].
    """
    pixels, tokens, bits, letters, inside = [], [], [], [], []
    for item, view, told, crops in zip(items, seen, eyes, which, strict=True):
        quarters, there = views.places(view.size, item.rows, item.cols)
        for k in crops:
            cells = quarters[k][:, 0] // 4
            pixels.append(view.crops[k])
            tokens.append(told[cells])
            bits.append(view.bits[cells])
            letters.append(item.letters[quarters[k]])
            inside.append(there[k])
    return (
        views.normalise(np.stack(pixels)),
        torch.stack(tokens).float(),
        unpack(bits, marks),
        unpack(letters, len(vision_encoder.LETTERS)).flatten(2),
        torch.from_numpy(np.stack(inside)),
    )


def losses(
    whole, head: vision_encoder.Naming, spell: nn.Module, made: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """How far the tokens are off (1 is as far as their spread), and the losses of marks and letters."""
    pixels, tokens, marks, letters, inside = made
    midway: list[Tensor] = []
    with torch.autocast("cpu", torch.bfloat16):
        got = llava.see(whole, pixels, midway)
        read = spell(nn.functional.layer_norm(midway[0], midway[0].shape[-1:]))
        said = head.out(got)
    got, want = got.float()[inside], tokens[inside]
    three = torch.tensor(3.0)
    return (
        nn.functional.mse_loss(got, want) / want.var(),
        nn.functional.binary_cross_entropy_with_logits(
            said.float()[inside], marks[inside], pos_weight=three
        ),
        nn.functional.binary_cross_entropy_with_logits(
            read.float()[inside], letters[inside], pos_weight=three
        ),
    )


def some_crops(view: views.Views, rng: np.random.Generator) -> list[int]:
    """The overview and one tile; the one tile of a square picture is the overview once more."""
    tiles = len(view.crops) - 1
    return [0] if tiles == 1 else [0, int(rng.integers(1, tiles + 1))]


def often(items: list[pool.Item], rng: np.random.Generator) -> list[int]:
    """The numbers of the pictures to learn from: scenes are soon learned, words on signs are not."""
    times = {"scene": 0.5, "sign": 3}
    return [
        i
        for i, (item, chance) in enumerate(zip(items, rng.random(len(items)), strict=True))
        for _ in range(int(times.get(item.kind, 1) + chance))
    ]


def train_sight(work: Path, minutes: float, peak: float = 2e-3, shards: int = 64) -> Path:
    """Teach tower and projector for a budget of minutes; resumes from `work`/sight.pt."""
    torch.set_num_threads(1)
    head, names = heads(work)
    first = teacher(work)
    whole = llava.build(first.state_dict())
    spell = nn.Linear(whole.config.vision_config.hidden_size, 4 * len(vision_encoder.LETTERS))
    nn.init.constant_(spell.bias, -4.0)
    sight = {"tower": whole.model.vision_tower, "projector": whole.model.multi_modal_projector,
             "spell": spell}  # fmt: skip
    named = [
        (f"{part}.{name}", p)
        for part, module in sight.items()
        for name, p in module.named_parameters()
        if "post_layernorm" not in name
    ]
    clock, target = trainer.Clock(minutes, peak, warm=60), work / "sight.pt"
    opt = trainer.Pair(named, peak)
    if state := trainer.load(target, clock):
        for part, module in sight.items():
            module.load_state_dict(state[part])
        opt.load_state_dict(state["opt"])

    def keep() -> None:
        parts = {part: module.state_dict() for part, module in sight.items()}
        trainer.save(target, clock, opt=opt.state_dict(), **parts)

    told: dict[int, list[Tensor]] = {}
    recent, last_save, turn = [], time.time(), clock.step // (pool.SHARD // BATCH)
    while not clock.done:
        number = turn % shards
        turn += 1
        items, seen = shard(work, number)
        if number not in told:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                told[number] = [s.bfloat16() for s in look(first.model.visual, items)]
        rng = np.random.default_rng(turn)
        order = rng.permutation(often(items, rng))
        for k in range(0, len(order), BATCH):
            part = order[k : k + BATCH]
            which = [some_crops(seen[i], rng) for i in part]
            made = batch([items[i] for i in part], [seen[i] for i in part],
                         [told[number][i] for i in part], which, len(names))  # fmt: skip
            off, marks, letters = losses(whole, head, spell, made)
            (off + 10 * marks + 50 * letters).backward()
            opt.step(clock.rate())
            clock.step += 1
            recent.append((off.item(), marks.item(), letters.item()))
            if clock.step % 25 == 0:
                print(f"sight {clock.step} {clock.elapsed:.0f} s off, marks, letters "
                      f"{np.mean(recent, 0).round(4)} rate {clock.rate():.2e}", flush=True)  # fmt: skip
                recent.clear()
            if clock.done:
                break
            if time.time() - last_save > 120:
                keep()
                last_save = time.time()
    keep()
    return target


def packed(whole, crops: list[Tensor], sizes: list[tuple[int, int]]) -> list[Tensor]:
    """Projected crops [1 + tiles, 36, hidden] of pictures -> each one's tokens, as the model packs them."""
    if not crops:
        return []
    tokens, _ = whole.model.pack_image_features(
        crops, torch.tensor(sizes), "default", whole.model.image_newline
    )
    return tokens


def train_voice(
    work: Path, tok: PreTrainedTokenizerFast, minutes: float, peak: float = 1.2e-3, shards: int = 64,
    room: int = 450, brief: float = 0.6,
) -> Path:  # fmt: skip
    """Train the words for a budget of minutes, all that sees frozen; resumes from `work`/voice.pt."""
    torch.set_num_threads(1)
    whole, target = llava.build(teacher(work).state_dict()), work / "voice.pt"
    sight = trainer.load(work / "sight.pt")
    whole.model.vision_tower.load_state_dict(sight["tower"])
    whole.model.multi_modal_projector.load_state_dict(sight["projector"])
    language = whole.model.language_model
    named = [*language.named_parameters(), ("newline", whole.model.image_newline)]
    clock = trainer.Clock(minutes, peak, warm=60, flat=0.3)
    opt = trainer.Pair(named, peak)
    if state := trainer.load(target, clock):
        whole.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])

    def keep() -> None:
        trainer.save(target, clock, net=whole.state_dict(), opt=opt.state_dict())

    kept: dict[int, list[Tensor]] = {}

    def lesson(turn: int) -> tuple[list, Callable]:
        number = turn // 2 % shards  # each shard twice running
        items, seen = shard(work, number)
        sizes = [view.size for view in seen]
        if number not in kept:
            kept[number] = look_at(whole, seen)
        with torch.no_grad():
            grids = [(1, len(tokens)) for tokens in packed(whole, kept[number], sizes)]
        talks = dialogues(tok, items, Random(f"voice{turn + 1}"), room, brief, grids)

        def loss_of(sequences: list[language_model.Sequence], shown: list[list[int]]):
            features = [
                packed(whole, [kept[number][j].float() for j in some], [sizes[j] for j in some])
                for some in shown
            ]
            return language_model.loss_of(language, sequences, features, plain=True)

        return talks, loss_of

    practise("voice", clock, opt, lesson, keep)
    return target


def look_at(whole, seen: list[views.Views]) -> list[Tensor]:
    """The projected tokens of each picture's crops, bfloat16 [1 + tiles, 36, hidden]."""
    out = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for k in range(0, len(seen), BATCH):
            part = [view.crops for view in seen[k : k + BATCH]]
            tokens = llava.see(whole, views.normalise(np.concatenate(part))).bfloat16()
            out += tokens.split([len(crops) for crops in part])
    return out
