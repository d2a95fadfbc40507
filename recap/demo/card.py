"""The model cards: what `evaluate.measure` found, as the README.md next to the weights."""

import json
from dataclasses import dataclass
from pathlib import Path

from .evaluate import GOALS

NOTE = {
    "scene": "one to three shapes in eight colours on nine places",
    "sign": "one of twenty words, perhaps an arrow, on a board",
    "receipt": "two to five goods with prices and a total",
    "menu": "three to five goods with prices",
    "table": "two to four names by two or three days, numbers to 20",
    "bar": "three to five bars with printed numbers to 20",
    "line": "three to five points with printed numbers to 20",
    "pie": "two to four slices with a key of shares",
    "other": "noise, blurs, textures, drawn landscapes: must be refused",
    "none": "a question without a picture: must ask for one",
}


@dataclass(frozen=True)
class Texts:
    """What differs between the cards; `{...}` stands for what was measured."""

    tag: str
    what: str
    processor: str
    goals: bool
    training: str
    commands: str


FIRST = Texts(
    tag="qwen2.5-vl",
    what="""\
# The demo model of Recap

A Qwen2.5-VL (`Qwen2_5_VLForConditionalGeneration`, M-RoPE, 2 x 2 merging) of
{parameters:.1f} million parameters, trained from scratch on pictures that a generator
draws from seeds. It exists so that the demo runs on a real image without a download. It says nothing
about how a model of 7 billion parameters answers or how fast it decodes.""",
    processor="Qwen2VLImageProcessorPil",
    goals=True,
    training="""\
First the vision encoder learns to name what every 28 x 28 cell shows and
what that belongs to. Then the language model learns dialogues on top of the frozen vision encoder, at the
end mostly short questions. Learning rates fall over a budget of minutes, so another machine gets through
more or fewer samples; pictures and dialogues depend on seeds alone.""",
    commands="""\
python -m recap.demo train --work /tmp/demo                    # draws, trains, exports; resumes from --work
python -m recap.demo card --count {of} --photos FOLDER         # measures, writes this file""",
)
LLAVA = Texts(
    tag="llava-next",
    what="""\
# The LLaVA demo model of Recap

A LLaVA-NeXT (`LlavaNextForConditionalGeneration`: a CLIP vision encoder, an overview and one or two
tiles of each picture with newline tokens, one-dimensional positions, a Qwen2 language model) of
{parameters:.1f} million parameters, trained on the drawn pictures of [the first demo model](../demo_model/README.md).
It exists so that the decoders can be measured on trained weights of both families without a download. It
reads prices and the words on signs less well than the first model, and it says nothing about how a model of 7
billion parameters answers or how fast it decodes.""",
    processor="LlavaNextImageProcessorPil",
    goals=False,
    training="""\
First vision encoder and projector learn to produce, for every crop, the tokens that the
first demo model's vision encoder produces for the same part of the picture. Then the first model's language
model, the starting point, learns to read overview and tiles at plain positions, with vision encoder and
projector frozen. Learning rates fall over a budget of minutes, so another machine gets through more or fewer
samples; pictures and dialogues depend on seeds alone.""",
    commands="""\
python -m recap.demo train --work /tmp/demo --model /tmp/first   # the first model, the teacher
python -m recap.demo train-llava --work /tmp/demo     # draws the crops, trains, exports; resumes from --work
python -m recap.demo card --model assets/demo_llava --count {of} --photos FOLDER   # measures, writes this file""",
)


def _table(found: dict, goals: bool) -> str:
    rows = ["| picture | what it holds | right |", "| --- | --- | --- |"]
    if goals:
        rows = [f"{rows[0]} goal |", f"{rows[1]} --- |"]
    for k in found["kinds"]:
        share = 100 * k["right"] / k["of"]
        row = f"| {k['kind']} | {NOTE[k['kind']]} | {share:.1f} % of {k['of']} |"
        goal = f"{GOALS[k['kind']]} %" if k["kind"] in GOALS else ""
        rows.append(f"{row} {goal} |" if goals else row)
    return "\n".join(rows)


def _tasks(found: dict) -> str:
    rows = ["| picture | questions right, by task |", "| --- | --- |"]
    for k in found["kinds"]:
        cells = ", ".join(f"{t} {a}/{b}" for t, (a, b) in k["tasks"].items())
        rows.append(f"| {k['kind']} | {cells} |")
    return "\n".join(rows)


def _misses(found: dict) -> str:
    out = []
    for k in found["kinds"]:
        for w in k["wrong"][:1]:
            want, got = (" ".join(w[x].split()) for x in ("want", "got"))
            out.append(
                f"- {k['kind']}: \u201c{w['question']}\u201d, right: `{want}`, answered: `{got}`"
            )
    return "\n".join(out) or "- none among the questions above"


def _points(questions: int) -> int:
    """Half the width of a 95 % interval around one half, in points: `_points(80) -> 11`."""
    return round(100 * 1.96 * (0.25 / questions) ** 0.5)


def write(folder: Path, found: dict) -> Path:
    """Write the card; the record of the training is read from `training.json` in the same folder."""
    record = json.loads((folder / "training.json").read_text())
    guess, photos, of = found["guess"], found["photographs"], found["kinds"][0]["of"]
    texts = LLAVA if record.get("family") == LLAVA.tag else FIRST
    stages = "\n".join(
        f"| {s['stage']} | {s['what']} | {s['minutes']:.0f} | {s['steps']:,} | {s['samples']:,} |"
        for s in record["stages"]
    )
    seen = (
        f"Photographs and scans (MMSpec's 60-sample split, never trained on): "
        f"{photos['right']} of {photos['of']} refused."
        if photos
        else "Photographs: not measured here (the folder with them was not given)."
    )
    text = f"""---
license: apache-2.0
tags: [demo, {texts.tag}, synthetic]
---

{texts.what.format(parameters=record["parameters"] / 1e6)}

## Held-out accuracy

Pictures from seeds that training never used, through transformers' own `{texts.processor}`, greedy
decoding in float32 of the bfloat16 weights in this folder. An answer is right if the facts that it
states (numbers, names, colours, places, yes and no) are those of the reference, in order. Half of the
questions open a dialogue, half follow some reference turns. With {of} questions of a kind, the 95 % interval
of a share is at most about {_points(of)} points wide to either side.

{_table(found, texts.goals)}

{seen}

{_tasks(found)}

The first miss of each kind:

{_misses(found)}

## What it knows, and what not

It knows the drawn world above, in English, in the wordings of `recap/demo/dialogues/`: reading, counting, comparing two printed values, finding the highest, listing, describing, transcribing as
Markdown, JSON or CSV, over several turns and after a second image. **It does not answer one kind of question**: asked whether something is
there, what colour the circle is, how many squares there are or which bar has the value 7, it lists what it
sees and leaves the answer to the reader. These are the tasks "is there", "colour", "shape" and "how
many" of scenes, "is there" elsewhere and "label of" of charts in the table above; what counts there is whether the
list is right. (Earlier versions were trained to answer, and were right no more often than chance.) Asked about
what is not there, it makes something up. It was trained to refuse pictures from outside that world and
questions that do not fit the picture. It does not know other words, names or goods, handwriting, real
photographs, other layouts, arithmetic, or the world. A picture that only resembles its world (a real receipt,
a busy chart) may get a confident wrong answer.

Answers have {guess["shortest"]} to {guess["longest"]} tokens (median {guess["median"]}). Without
the picture, the best constant guess for each wording of a question (the most frequent token at each position)
gets {100 * guess["constant"]:.0f} % of the answers' tokens right. {100 * guess["template"]:.0f} % of the tokens
are not part of a fact, which a guess would get that also knew the positions of the facts. So this text is
easier to draft than that of a large model, and speed measured on it is labelled "demo model".

## Training

| stage | what learns | minutes | steps | samples |
| --- | --- | --- | --- | --- |
{stages}

Machine: {record["machine"]}. {texts.training}

{record.get("notes", "")}

```sh
{texts.commands.format(of=of)}
```

`python -m recap.demo card` took {found["seconds"] / 60:.0f} minutes for this card, on one thread.
"""
    path = folder / "README.md"
    path.write_text(text)
    return path
