"""Held-out accuracy of the exported model: greedy answers against the facts that were drawn.

The pictures come from seeds that training never uses, through the stock image processor. An answer is
right if the facts that it states (numbers, names, colours, places, yes and no ...) are those of the
reference answer, in that order; wording does not count. Half of the questions open a dialogue, half
come after one to three turns of it.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoTokenizer
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from . import world
from .dialogues import compose, off_topic
from .dialogues.templates import Turn
from .model import IDS
from .world import bars, board, pie, receipt, scene, sign, table

_WORDS = (
    *board.COLOURS, *scene.SHAPES, *scene.SIZES, *" ".join(scene.PLACES).split(), *sign.WORDS,
    *sign.BOARDS, *sign.ARROWS, *receipt.SHOPS, *receipt.GOODS, *table.NAMES,
    *table.DAYS, *table.THEMES, *bars.MONTHS, *bars.FRUITS, *bars.TITLES, *pie.TITLES,
    "rising", "falling", "mixed", "yes", "no", "none", "nothing", "empty", "null", "not", "menu",
    "receipt", "bar", "line", "chart",
)  # fmt: skip
FACTS = {w.lower() for w in _WORDS} | {f"{s}s" for s in scene.SHAPES}
GOALS = {"scene": 95, "sign": 95, "bar": 95, "receipt": 85, "menu": 85, "table": 85, "line": 85,
         "pie": 85}  # fmt: skip


def facts(text: str) -> list[str]:
    """What an answer states: `facts("The red circle is at 3.50.") -> ["red", "circle", "3.50"]`."""
    found = re.findall(r"\d+(?:\.\d+)?%?|[a-z]+(?:-shaped)?", text.lower())
    return [w for w in found if w[0].isdigit() or w in FACTS]


def right(turn: Turn, answer: str) -> bool:
    """Whether an answer states the facts of the reference answer."""
    if turn.task == "refusal":
        return "only know" in answer
    if turn.task == "no image":
        return "give me an image" in answer
    if turn.task in ("small talk", "misfit", "kind"):
        return answer.strip() == turn.answer
    return facts(answer) == facts(turn.answer)


@dataclass(frozen=True)
class Question:
    """One question with the picture and the turns before it."""

    kind: str
    turn: Turn
    image: Image.Image | None
    before: tuple[Turn, ...] = field(default=())

    def messages(self) -> list[dict]:
        """As chat messages; the picture is part of the first."""
        out: list[dict] = []
        for turn in (*self.before, self.turn):
            content: list[dict] = [{"type": "text", "text": turn.question}]
            if self.image is not None and not out:
                content.insert(0, {"type": "image"})
            out.append({"role": "user", "content": content})
            out.append({"role": "assistant", "content": turn.answer})
        return out[:-1]


def questions(kind: str, count: int, seed: str = "card") -> Iterator[Question]:
    """`count` questions of a kind of picture ("none": without a picture), one for each picture."""
    for i in range(count):
        rng = Random(f"{seed}-{kind}-{i}")
        if kind == "none":
            yield Question(kind, off_topic.without_picture(rng)[0], None)
            continue
        picture = world.draw(kind, f"{seed}{i}", unit=rng.choice((80, 96, 112)))
        before: list[Turn] = []
        if i % 2:
            for _ in range(rng.randint(1, 2)):
                before += compose.question(rng, kind, picture.facts)
        ask = compose.question if i % 10 == 9 else compose.question_about
        turns = ask(rng, kind, picture.facts)
        yield Question(kind, turns[-1], picture.image, (*before, *turns[:-1]))


class Reader:
    """The exported model, read back in float32, with the stock processor of its family."""

    def __init__(self, folder: Path) -> None:
        kind = AutoModelForImageTextToText
        self.net = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self.tok = AutoTokenizer.from_pretrained(folder)
        self.tiled = self.net.config.model_type == "llava_next"
        processor = LlavaNextImageProcessorPil if self.tiled else Qwen2VLImageProcessorPil
        self.processor = processor.from_pretrained(folder)

    def process(self, images: list[Image.Image]) -> tuple[dict[str, torch.Tensor], list[int]]:
        """The processed images, and how many image tokens each needs."""
        seen = dict(self.processor(images=images, return_tensors="pt"))
        if not self.tiled:
            return seen, [int(grid.prod()) // 4 for grid in seen["image_grid_thw"]]
        with torch.no_grad():
            tokens = self.net.model.get_image_features(**seen, return_dict=True).pooler_output
        return seen, [len(t) for t in tokens]

    def prompt(self, q: Question, pads: int) -> str:
        """The rendered chat, with the image token repeated."""
        text = self.tok.apply_chat_template(
            q.messages(), tokenize=False, add_generation_prompt=True
        )
        return text.replace("<|image_pad|>", "<|image_pad|>" * pads, 1)

    def answer(self, asked: list[Question], longest: int = 320) -> list[str]:
        """Greedy answers to a batch of questions."""
        images = [q.image for q in asked if q.image is not None]
        more, pads = self.process(images) if images else ({}, [])
        rest = iter(pads)
        texts = [self.prompt(q, 0 if q.image is None else next(rest)) for q in asked]
        inputs = self.tok(texts, return_tensors="pt", padding=True, padding_side="left")
        ids = inputs["input_ids"]
        if not self.tiled:
            more["mm_token_type_ids"] = (ids == IDS["<|image_pad|>"]).long()
        with torch.no_grad():
            out = self.net.generate(
                input_ids=ids, attention_mask=inputs["attention_mask"], **more,
                do_sample=False, max_new_tokens=longest,
            )  # fmt: skip
        return self.tok.batch_decode(out[:, ids.shape[1] :], skip_special_tokens=True)


def accuracy(reader: Reader, kind: str, count: int, batch: int = 25) -> dict:
    """Right answers by task, and the wrong ones, for one kind of picture."""
    asked = sorted(questions(kind, count), key=lambda q: len(q.turn.answer))
    tasks: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    wrong = []
    for i in range(0, count, batch):
        part = asked[i : i + batch]
        for q, answer in zip(part, reader.answer(part), strict=True):
            good = right(q.turn, answer)
            tasks[q.turn.task][0] += good
            tasks[q.turn.task][1] += 1
            if not good:
                wrong.append({"question": q.turn.question, "want": q.turn.answer, "got": answer})
    return {
        "kind": kind, "right": sum(v[0] for v in tasks.values()), "of": count,
        "tasks": {k: tuple(v) for k, v in sorted(tasks.items())}, "wrong": wrong,
    }  # fmt: skip


def photographs(reader: Reader, folder: Path) -> dict | None:
    """How often real pictures from a folder are refused (None where the folder is missing)."""
    files = sorted(p for p in folder.glob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        return None
    rng = Random("photographs")
    asked = []
    for file in files:
        turn = off_topic.refuse(rng)[0]
        asked.append(Question("photograph", turn, Image.open(file).convert("RGB")))
    good = 0
    for i in range(0, len(asked), 20):
        part = asked[i : i + 20]
        good += sum(right(q.turn, x) for q, x in zip(part, reader.answer(part, 80), strict=True))
    return {"right": good, "of": len(asked)}


def guessable(tok, count: int = 1500) -> dict[str, float]:
    """How much of the reference answers could be guessed without the picture.

    "constant": for each wording of a question the most frequent token at each position, learned
    from one half of the dialogues, tried on the other. "template": the share of tokens that are not
    part of a fact: what a guess would get that also knew the positions of the facts.
    """
    by_template: dict[str, list[list[int]]] = defaultdict(list)
    lengths, held = [], []
    plain = total = 0
    for i in range(count):
        rng = Random(f"guess{i}")
        kind = rng.choices(world.KINDS, world.WEIGHTS)[0]
        picture = world.draw(kind, f"guess{i}", unit=8)
        for line in compose.dialogue(rng, [(kind, picture.facts)]):
            ids = tok(line.turn.answer, add_special_tokens=False)["input_ids"]
            lengths.append(len(ids))
            if i % 2:
                held.append((line.turn.template, ids))
            else:
                by_template[line.turn.template].append(ids)
            total += len(ids)
            plain += sum(not facts(tok.decode([t])) for t in ids)
    guess = {
        template: [Counter(col).most_common(1)[0][0] for col in _columns(rows)]
        for template, rows in by_template.items()
    }
    hit = sum(
        a == b for template, ids in held for a, b in zip(guess.get(template, []), ids, strict=False)
    )
    lengths.sort()
    return {
        "constant": hit / sum(len(ids) for _, ids in held), "template": plain / total,
        "shortest": lengths[0], "median": lengths[len(lengths) // 2], "longest": lengths[-1],
    }  # fmt: skip


def _columns(rows: list[list[int]]) -> Iterator[list[int]]:
    for i in range(max(map(len, rows))):
        yield [row[i] for row in rows if i < len(row)]


def measure(folder: Path, count: int, photos: Path | None) -> dict:
    """Everything that the model card reports."""
    torch.set_num_threads(1)
    reader, start = Reader(folder), time.time()
    kinds = []
    for kind in (*world.KINDS, "none"):
        kinds.append(accuracy(reader, kind, count))
        print(f"{kind}: {kinds[-1]['right']} of {count}", flush=True)
    return {
        "kinds": kinds, "photographs": photographs(reader, photos) if photos else None,
        "guess": guessable(reader.tok), "seconds": time.time() - start,
    }  # fmt: skip
