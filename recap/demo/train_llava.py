"""The two stages of the LLaVA demo model: first what sees, then the language model.

The vision stage trains CLIP tower and projector: each token of each crop is to equal the first demo model's
token of the cell that it shows, and to name that cell's marks through the first model's heads. The language
stage starts from the first model's language model and learns to read overview and tiles at plain positions.
"""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from . import language_model, llava, llava_crops, pool, trainer, vision_encoder
from . import model as first_model
from .train_language_model import dialogues, encode_pictures, learn_dialogues
from .train_vision_encoder import unpack

BATCH = 32


def heads(work: Path) -> tuple[vision_encoder.Heads, tuple[str, ...]]:
    """The first model's heads, frozen, and the names of its marks."""
    first = trainer.load(work / "vision_encoder.pt")
    names = tuple(first["marks"])
    vision = first_model.config().vision_config
    head = vision_encoder.Heads(vision.out_hidden_size, len(names), vision.hidden_size)
    head.load_state_dict(first["head"])
    return head.requires_grad_(False), names


def teacher(work: Path):
    """The first demo model: its vision encoder teaches the tower, its language model is taken over."""
    net = first_model.build(seed=1)
    net.load_state_dict(trainer.load(work / "short_questions.pt")["net"])
    return net.requires_grad_(False)


def shard(work: Path, number: int) -> tuple[list[pool.Item], list[llava_crops.CroppedPicture]]:
    """The same pictures as both models see them."""
    return pool.load(work / "pool", number), pool.load(work / "crops", number)


def batch(
    items: list[pool.Item], pictures: list[llava_crops.CroppedPicture], taught: list[Tensor],
    which: list[list[int]], marks: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Crops `which[i]` of each picture, and what their tokens should be.

    -> pixels [B, 3, TILE, TILE], tokens [B, 36, hidden], marks [B, 36, marks], letters [B, 36,
    4 * letters], and whether the token shows any of the picture [B, 36].
    """
    pixels, tokens, bits, letters, inside = [], [], [], [], []
    for item, picture, teacher_tokens, crops in zip(items, pictures, taught, which, strict=True):
        quarters, there = llava_crops.places(picture.size, item.rows, item.cols)
        for k in crops:
            cells = quarters[k][:, 0] // 4
            pixels.append(picture.crops[k])
            tokens.append(teacher_tokens[cells])
            bits.append(picture.bits[cells])
            letters.append(item.letters[quarters[k]])
            inside.append(there[k])
    return (
        llava_crops.normalise(np.stack(pixels)),
        torch.stack(tokens).float(),
        unpack(bits, marks),
        unpack(letters, len(vision_encoder.LETTERS)).flatten(2),
        torch.from_numpy(np.stack(inside)),
    )


def losses(
    whole, head: vision_encoder.Heads, letter_head: nn.Module, made: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Error of the tokens relative to their variance, and the losses of marks and letters."""
    pixels, tokens, marks, letters, inside = made
    midway: list[Tensor] = []
    with torch.autocast("cpu", torch.bfloat16):
        got = llava.encode(whole, pixels, midway)
        letter_logits = letter_head(nn.functional.layer_norm(midway[0], midway[0].shape[-1:]))
        mark_logits = head.marks(got)
    got, want = got.float()[inside], tokens[inside]
    positive_weight = torch.tensor(3.0)
    return (
        nn.functional.mse_loss(got, want) / want.var(),
        nn.functional.binary_cross_entropy_with_logits(
            mark_logits.float()[inside], marks[inside], pos_weight=positive_weight
        ),
        nn.functional.binary_cross_entropy_with_logits(
            letter_logits.float()[inside], letters[inside], pos_weight=positive_weight
        ),
    )


def some_crops(picture: llava_crops.CroppedPicture, rng: np.random.Generator) -> list[int]:
    """The overview and one tile; a square picture's only tile equals the overview and is left out."""
    tiles = len(picture.crops) - 1
    return [0] if tiles == 1 else [0, int(rng.integers(1, tiles + 1))]


def repeated(items: list[pool.Item], rng: np.random.Generator) -> list[int]:
    """Numbers of the pictures to use, some twice: scenes are learned quickly, words on signs slowly."""
    times = {"scene": 0.5, "sign": 3}
    return [
        i
        for i, (item, chance) in enumerate(zip(items, rng.random(len(items)), strict=True))
        for _ in range(int(times.get(item.kind, 1) + chance))
    ]


def train_vision(work: Path, minutes: float, peak: float = 2e-3, shards: int = 64) -> Path:
    """Train tower and projector for a budget of minutes -> `work`/llava_vision.pt, from which it resumes."""
    torch.set_num_threads(1)
    head, names = heads(work)
    first = teacher(work)
    whole = llava.build(first.state_dict())
    letter_head = nn.Linear(whole.config.vision_config.hidden_size, 4 * len(vision_encoder.LETTERS))
    nn.init.constant_(letter_head.bias, -4.0)
    parts = {"tower": whole.model.vision_tower, "projector": whole.model.multi_modal_projector,
             "letter_head": letter_head}  # fmt: skip
    named = [
        (f"{part}.{name}", p)
        for part, module in parts.items()
        for name, p in module.named_parameters()
        if "post_layernorm" not in name
    ]
    clock, target = trainer.Clock(minutes, peak, warm=60), work / "llava_vision.pt"
    opt = trainer.Optimizer(named, peak)
    if state := trainer.load(target, clock):
        for part, module in parts.items():
            module.load_state_dict(state[part])
        opt.load_state_dict(state["opt"])

    def save() -> None:
        states = {part: module.state_dict() for part, module in parts.items()}
        trainer.save(target, clock, opt=opt.state_dict(), **states)

    taught: dict[int, list[Tensor]] = {}
    recent, last_save, round_ = [], time.time(), clock.step // (pool.SHARD // BATCH)
    while not clock.done:
        number = round_ % shards
        round_ += 1
        items, pictures = shard(work, number)
        if number not in taught:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                taught[number] = [s.bfloat16() for s in encode_pictures(first.model.visual, items)]
        rng = np.random.default_rng(round_)
        order = rng.permutation(repeated(items, rng))
        for k in range(0, len(order), BATCH):
            part = order[k : k + BATCH]
            which = [some_crops(pictures[i], rng) for i in part]
            made = batch([items[i] for i in part], [pictures[i] for i in part],
                         [taught[number][i] for i in part], which, len(names))  # fmt: skip
            error, marks, letters = losses(whole, head, letter_head, made)
            (error + 10 * marks + 50 * letters).backward()
            opt.step(clock.rate())
            clock.step += 1
            recent.append((error.item(), marks.item(), letters.item()))
            if clock.step % 25 == 0:
                print(f"vision {clock.step} {clock.elapsed:.0f} s error, marks, letters "
                      f"{np.mean(recent, 0).round(4)} rate {clock.rate():.2e}", flush=True)  # fmt: skip
                recent.clear()
            if clock.done:
                break
            if time.time() - last_save > 120:
                save()
                last_save = time.time()
    save()
    return target


def packed(whole, crops: list[Tensor], sizes: list[tuple[int, int]]) -> list[Tensor]:
    """Projected crops [1 + tiles, 36, hidden] per picture -> its tokens, packed as the model packs them."""
    if not crops:
        return []
    tokens, _ = whole.model.pack_image_features(
        crops, torch.tensor(sizes), "default", whole.model.image_newline
    )
    return tokens


def train_language(
    work: Path, tok: PreTrainedTokenizerFast, minutes: float, peak: float = 1.2e-3, shards: int = 64,
    length: int = 450, brief: float = 0.6,
) -> Path:  # fmt: skip
    """Train the language model for a budget of minutes -> `work`/llava_language.pt; the rest is frozen."""
    torch.set_num_threads(1)
    whole, target = llava.build(teacher(work).state_dict()), work / "llava_language.pt"
    vision = trainer.load(work / "llava_vision.pt")
    whole.model.vision_tower.load_state_dict(vision["tower"])
    whole.model.multi_modal_projector.load_state_dict(vision["projector"])
    language = whole.model.language_model
    named = [*language.named_parameters(), ("newline", whole.model.image_newline)]
    clock = trainer.Clock(minutes, peak, warm=60, flat=0.3)
    opt = trainer.Optimizer(named, peak)
    if state := trainer.load(target, clock):
        whole.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])

    def save() -> None:
        trainer.save(target, clock, net=whole.state_dict(), opt=opt.state_dict())

    cached: dict[int, list[Tensor]] = {}

    def batches(round_: int) -> tuple[list, Callable]:
        number = round_ // 2 % shards  # each shard twice in a row
        items, pictures = shard(work, number)
        sizes = [picture.size for picture in pictures]
        if number not in cached:
            cached[number] = encode_crops(whole, pictures)
        with torch.no_grad():
            grids = [(1, len(tokens)) for tokens in packed(whole, cached[number], sizes)]
        made = dialogues(tok, items, Random(f"llava{round_ + 1}"), length, brief, grids)

        def loss_of(sequences: list[language_model.Sequence], shown: list[list[int]]):
            features = [
                packed(whole, [cached[number][j].float() for j in some], [sizes[j] for j in some])
                for some in shown
            ]
            return language_model.loss_of(language, sequences, features, plain=True)

        return made, loss_of

    learn_dialogues("language", clock, opt, batches, save)
    return target


def encode_crops(whole, pictures: list[llava_crops.CroppedPicture]) -> list[Tensor]:
    """The projected tokens of each picture's crops, bfloat16 [1 + tiles, 36, hidden]."""
    out = []
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for k in range(0, len(pictures), BATCH):
            part = [picture.crops for picture in pictures[k : k + BATCH]]
            tokens = llava.encode(whole, llava_crops.normalise(np.concatenate(part))).bfloat16()
            out += tokens.split([len(crops) for crops in part])
    return out
