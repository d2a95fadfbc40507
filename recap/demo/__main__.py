"""`python -m recap.demo`: draw the pictures, train, export, measure, draw the examples.

`train` makes the demo model, `train-llava` the LLaVA demo model from the same `--work` folder. Every stage is a
command of its own, too.
"""

import argparse
import json
from pathlib import Path

from . import (
    card,
    evaluate,
    examples,
    export,
    llava,
    llava_crops,
    model,
    pool,
    train_language_model,
    train_llava,
    train_signs,
    train_vision_encoder,
    trainer,
)

ASSETS = Path(__file__).parents[2] / "assets"
STAGES = {  # checkpoint: what learns there, and how many samples a step has
    "vision_encoder": ("the vision encoder, on marks of cells", train_vision_encoder.BATCH),
    "signs": ("the vision encoder, on more signs", train_signs.BATCH),
    "language_model": ("the language model, on dialogues", train_language_model.BATCH),
    "short_questions": (
        "the language model, mostly on short questions",
        train_language_model.BATCH,
    ),
}
LLAVA_STAGES = {
    "llava_vision": ("tower and projector, from the first model's tokens", train_llava.BATCH),
    "llava_language": (
        "the language model, on dialogues about overview and tiles",
        train_language_model.BATCH,
    ),
}
COMMANDS = (
    "pool", "vision-encoder", "signs", "language-model", "short-questions", "export", "train",
    "llava-crops", "llava-vision", "llava-language", "export-llava", "train-llava",
    "card", "examples",
)  # fmt: skip


def _export(work: Path, to: Path, machine: str, notes: str) -> None:
    """Export the newest checkpoint, with a record of its training."""
    names = ("short_questions", "language_model")
    latest = next(work / f"{name}.pt" for name in names if (work / f"{name}.pt").exists())
    net = model.build()
    net.load_state_dict(trainer.load(latest)["net"])
    export.export(net, export.saved_tokenizer(work), to)
    _write_record(work, to, net, STAGES, machine=machine, notes=notes)


def _export_llava(work: Path, to: Path, machine: str, notes: str) -> None:
    """The same for the LLaVA demo model."""
    net = llava.build()
    net.load_state_dict(trainer.load(work / "llava_language.pt")["net"])
    export.export(net, export.saved_tokenizer(work), to, export.TILED)
    family = card.LLAVA.tag
    _write_record(work, to, net, LLAVA_STAGES, machine=machine, notes=notes, family=family)


def _write_record(work: Path, to: Path, net, stages: dict, **more: str) -> None:
    """`training.json`, which the card reads."""
    done = []
    for name, (what, batch) in stages.items():
        if state := trainer.load(work / f"{name}.pt"):
            done.append({
                "stage": name.replace("_", " "), "what": what,
                "minutes": round(state["elapsed"] / 60, 1),
                "steps": state["step"], "samples": state["step"] * batch,
            })  # fmt: skip
    record = {"parameters": sum(p.numel() for p in net.parameters()), **more, "stages": done}
    (to / "training.json").write_text(json.dumps(record, indent=2) + "\n")


def main() -> None:
    """Read the command line and carry out the command."""
    parser = argparse.ArgumentParser(prog="python -m recap.demo", description=__doc__)
    sub = parser.add_subparsers(dest="command", required=True)
    for name in COMMANDS:
        p = sub.add_parser(name)
        p.add_argument("--work", type=Path, default=Path("/tmp/recap-demo"), help="checkpoints")
        p.add_argument("--model", type=Path, default=ASSETS / "demo_model")
        p.add_argument("--llava", type=Path, default=ASSETS / "demo_llava")
        p.add_argument("--shards", type=int, default=64, help="of 1,024 pictures each")
        p.add_argument("--minutes", type=float, nargs=4, default=(40, 4.6, 45, 75),
                       metavar=("VISION", "SIGNS", "LANGUAGE", "SHORT"))  # fmt: skip
        p.add_argument("--llava-minutes", type=float, nargs=2, default=(53.5, 24.5),
                       metavar=("VISION", "LANGUAGE"))  # fmt: skip
        p.add_argument("--machine", default="one thread of a two-core AMD EPYC with AVX512-BF16")
        p.add_argument("--notes", default="", help="what else to record about this training")
        p.add_argument("--count", type=int, default=200, help="questions of each kind")
        p.add_argument("--photos", type=Path, help="a folder of real pictures to refuse")
    args = parser.parse_args()
    command = args.command
    if command in ("pool", "train"):
        shards = train_vision_encoder.SIGN_SHARDS
        pool.fill(args.work / "signs", shards, kind="sign", seed="signs")
        pool.fill(args.work / "pool", args.shards)
    if command in ("vision-encoder", "train"):
        train_vision_encoder.train(args.work, args.minutes[0], shards=args.shards)
    if command in ("signs", "train"):
        train_signs.train(args.work, args.minutes[1], shards=args.shards)
    if command in ("language-model", "train"):
        tok = export.saved_tokenizer(args.work)
        train_language_model.train(args.work, tok, args.minutes[2], 2e-3, args.shards)
    if command in ("short-questions", "train"):
        tok = export.saved_tokenizer(args.work)
        train_language_model.train(
            args.work, tok, args.minutes[3], 1.6e-3, args.shards,
            length=450, brief=0.8, name="short_questions", start=args.shards // 2,
        )  # fmt: skip
    if command in ("export", "train"):
        _export(args.work, args.model, args.machine, args.notes)
    if command in ("llava-crops", "train-llava"):
        names = trainer.load(args.work / "vision_encoder.pt")["marks"]
        pool.fill(args.work / "crops", args.shards, names=names, convert=llava_crops.cropped)
    if command in ("llava-vision", "train-llava"):
        train_llava.train_vision(args.work, args.llava_minutes[0], shards=args.shards)
    if command in ("llava-language", "train-llava"):
        tok = export.saved_tokenizer(args.work)
        train_llava.train_language(args.work, tok, args.llava_minutes[1], shards=args.shards)
    if command in ("export-llava", "train-llava"):
        _export_llava(args.work, args.llava, args.machine, args.notes)
    if command == "card":
        found = evaluate.measure(args.model, args.count, args.photos)
        print(card.write(args.model, found))
    if command == "examples":
        print(examples.write(ASSETS / "examples"))


if __name__ == "__main__":
    main()
