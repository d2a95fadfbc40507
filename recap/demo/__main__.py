"""`python -m recap.demo`: draw the pool, train, export, measure, draw the examples.

`train` makes the demo model, `twin` its LLaVA-NeXT twin from the same `--work`.
"""

import argparse
import json
from pathlib import Path

from . import (
    card,
    evaluate,
    examples,
    export,
    lesson,
    llava,
    model,
    pool,
    train_language_model,
    train_llava,
    train_vision_encoder,
    trainer,
    views,
)

ASSETS = Path(__file__).parents[2] / "assets"
STAGES = {  # name: what learns there, and how many samples a step has
    "eye": ("the vision tower, on marks of cells", train_vision_encoder.BATCH),
    "lesson": ("the vision tower, a lesson of signs", 32),
    "tongue": ("the language half, on dialogues", train_language_model.BATCH),
    "drill": ("the language half, mostly on short questions", train_language_model.BATCH),
}
TWIN_STAGES = {
    "sight": ("tower and projector, from the demo model's eye", train_llava.BATCH),
    "voice": (
        "the language half, on dialogues about overview and tiles",
        train_language_model.BATCH,
    ),
}


def _export(work: Path, to: Path, machine: str, notes: str) -> None:
    """Export the newest checkpoint, with the record of how it came about."""
    latest = next(work / f"{s}.pt" for s in ("drill", "tongue") if (work / f"{s}.pt").exists())
    net = model.build()
    net.load_state_dict(trainer.load(latest)["net"])
    export.export(net, export.saved_tokenizer(work), to)
    _write_record(work, to, net, STAGES, machine=machine, notes=notes)


def _export_twin(work: Path, to: Path, machine: str, notes: str) -> None:
    """The same for the twin."""
    net = llava.build()
    net.load_state_dict(trainer.load(work / "voice.pt")["net"])
    export.export(net, export.saved_tokenizer(work), to, export.TILED)
    _write_record(work, to, net, TWIN_STAGES, machine=machine, notes=notes, family=card.TWIN.tag)


def _write_record(work: Path, to: Path, net, stages: dict, **more: str) -> None:
    """`training.json`, which the card reads."""
    done = []
    for name, (what, batch) in stages.items():
        if state := trainer.load(work / f"{name}.pt"):
            done.append({
                "stage": name, "what": what, "minutes": round(state["elapsed"] / 60, 1),
                "steps": state["step"], "samples": state["step"] * batch,
            })  # fmt: skip
    record = {"parameters": sum(p.numel() for p in net.parameters()), **more, "stages": done}
    (to / "training.json").write_text(json.dumps(record, indent=2) + "\n")


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m recap.demo", description=__doc__)
    sub = parser.add_subparsers(dest="command", required=True)
    own = ("pool", "eye", "lesson", "tongue", "drill", "train", "export", "card", "examples")
    for name in (*own, "views", "sight", "voice", "twin", "export-twin"):
        p = sub.add_parser(name)
        p.add_argument("--work", type=Path, default=Path("/tmp/recap-demo"), help="checkpoints")
        p.add_argument("--model", type=Path, default=ASSETS / "demo_model")
        p.add_argument("--twin", type=Path, default=ASSETS / "demo_llava")
        p.add_argument("--shards", type=int, default=64, help="of 1,024 pictures each")
        p.add_argument("--minutes", type=float, nargs=4, default=(40, 4.6, 45, 75),
                       metavar=("EYE", "LESSON", "TONGUE", "DRILL"))  # fmt: skip
        p.add_argument("--twin-minutes", type=float, nargs=2, default=(53.5, 24.5),
                       metavar=("SIGHT", "VOICE"))  # fmt: skip
        p.add_argument("--machine", default="one thread of a two-core AMD EPYC with AVX512-BF16")
        p.add_argument("--notes", default="", help="what else is to be told of this training")
        p.add_argument("--count", type=int, default=200, help="questions of each kind")
        p.add_argument("--photos", type=Path, help="a folder of real pictures to refuse")
    args = parser.parse_args()
    does = args.command
    if does in ("pool", "train"):
        pool.fill(args.work / "signs", train_vision_encoder.DRILL, kind="sign", seed="drill")
        pool.fill(args.work / "pool", args.shards)
    if does in ("eye", "train"):
        train_vision_encoder.train(args.work, args.minutes[0], shards=args.shards)
    if does in ("lesson", "train"):
        lesson.train(args.work, args.minutes[1])
    if does in ("tongue", "drill", "train"):
        tok = export.saved_tokenizer(args.work)
        if does != "drill":
            train_language_model.train(args.work, tok, args.minutes[2], 2e-3, args.shards)
        if does != "tongue":
            train_language_model.train(
                args.work, tok, args.minutes[3], 1.6e-3, args.shards,
                room=450, brief=0.8, name="drill", start=args.shards // 2,
            )  # fmt: skip
    if does in ("export", "train"):
        _export(args.work, args.model, args.machine, args.notes)
    if does in ("views", "twin"):
        names = trainer.load(args.work / "eye.pt")["marks"]
        pool.fill(args.work / "views", args.shards, names=names, keep=views.views)
    if does in ("sight", "twin"):
        train_llava.train_sight(args.work, args.twin_minutes[0], shards=args.shards)
    if does in ("voice", "twin"):
        tok = export.saved_tokenizer(args.work)
        train_llava.train_voice(args.work, tok, args.twin_minutes[1], shards=args.shards)
    if does in ("export-twin", "twin"):
        _export_twin(args.work, args.twin, args.machine, args.notes)
    if does == "card":
        found = evaluate.measure(args.model, args.count, args.photos)
        print(card.write(args.model, found))
    if does == "examples":
        print(examples.write(ASSETS / "examples"))


if __name__ == "__main__":
    main()
