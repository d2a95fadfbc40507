"""`python -m recap.demo`: draw the pool, train, export, measure, draw the examples."""

import argparse
import json
from pathlib import Path

from recap.demo import (
    card,
    evaluate,
    examples,
    export,
    lesson,
    model,
    pool,
    stage,
    train_eye,
    train_tongue,
)

ASSETS = Path(__file__).parents[2] / "assets"
STAGES = {
    "eye": "the vision tower, on marks of cells",
    "lesson": "the vision tower, a lesson of signs",
    "tongue": "the language half, on dialogues",
    "drill": "the language half, mostly on short questions",
}

BATCHES = {"eye": train_eye.BATCH, "lesson": 32, "tongue": train_tongue.BATCH,
           "drill": train_tongue.BATCH}  # fmt: skip


def _export(work: Path, to: Path, machine: str, notes: str) -> None:
    """Export the newest checkpoint, with the record of how it came about."""
    latest = next(work / f"{s}.pt" for s in ("drill", "tongue") if (work / f"{s}.pt").exists())
    net = model.build()
    net.load_state_dict(stage.load(latest)["net"])
    export.export(net, export.saved_tokenizer(work), to)
    stages = []
    for name, what in STAGES.items():
        if state := stage.load(work / f"{name}.pt"):
            batch = BATCHES[name]
            stages.append({
                "stage": name, "what": what, "minutes": round(state["elapsed"] / 60, 1),
                "steps": state["step"], "samples": state["step"] * batch,
            })  # fmt: skip
    record = {
        "parameters": sum(p.numel() for p in net.parameters()),
        "machine": machine,
        "notes": notes,
        "stages": stages,
    }
    (to / "training.json").write_text(json.dumps(record, indent=2) + "\n")


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m recap.demo", description=__doc__)
    sub = parser.add_subparsers(dest="command", required=True)
    for name in ("pool", "eye", "lesson", "tongue", "drill", "train", "export", "card", "examples"):
        p = sub.add_parser(name)
        p.add_argument("--work", type=Path, default=Path("/tmp/recap-demo"), help="checkpoints")
        p.add_argument("--model", type=Path, default=ASSETS / "demo_model")
        p.add_argument("--shards", type=int, default=64, help="of 1,024 pictures each")
        p.add_argument("--minutes", type=float, nargs=4, default=(40, 4.6, 45, 75),
                       metavar=("EYE", "LESSON", "TONGUE", "DRILL"))  # fmt: skip
        p.add_argument("--machine", default="one thread of a two-core AMD EPYC with AVX512-BF16")
        p.add_argument("--notes", default="", help="what else is to be told of this training")
        p.add_argument("--count", type=int, default=200, help="questions of each kind")
        p.add_argument("--photos", type=Path, help="a folder of real pictures to refuse")
    args = parser.parse_args()
    does = args.command
    if does in ("pool", "train"):
        pool.fill(args.work / "signs", train_eye.DRILL, kind="sign", seed="drill")
        pool.fill(args.work / "pool", args.shards)
    if does in ("eye", "train"):
        train_eye.train(args.work, args.minutes[0], shards=args.shards)
    if does in ("lesson", "train"):
        lesson.train(args.work, args.minutes[1])
    if does in ("tongue", "drill", "train"):
        tok = export.saved_tokenizer(args.work)
        if does != "drill":
            train_tongue.train(args.work, tok, args.minutes[2], 2e-3, args.shards)
        if does != "tongue":
            train_tongue.train(
                args.work, tok, args.minutes[3], 1.6e-3, args.shards,
                room=450, brief=0.8, name="drill", start=args.shards // 2,
            )  # fmt: skip
    if does in ("export", "train"):
        _export(args.work, args.model, args.machine, args.notes)
    if does == "card":
        found = evaluate.measure(args.model, args.count, args.photos)
        print(card.write(args.model, found))
    if does == "examples":
        print(examples.write(ASSETS / "examples"))


if __name__ == "__main__":
    main()
