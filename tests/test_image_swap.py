"""The image-swap diagnostic, on a tiny model whose answers depend on the image."""

import json

import pytest

from recap import Conversation, generate, make_drafter
from recap.bench import image_swap
from recap.bench.samples import Sample
from recap.cli import main
from recap.compare import teacher_forced
from recap.targets import load_target

from . import tiny


@pytest.fixture(scope="module", params=["qwen2_5_vl", "llava_next"])
def target(request, tmp_path_factory):
    return load_target(str(tiny.build(request.param, tmp_path_factory.mktemp(request.param))))


@pytest.fixture
def samples(tmp_path):
    made = []
    for name, seed, size in (("a", 1, (90, 70)), ("b", 2, (60, 120)), ("c", 3, (100, 100))):
        tiny.picture(*size, seed=seed).save(tmp_path / f"{name}.png")
        made.append(Sample(name, ("the red square", "and?"), (tmp_path / f"{name}.png",), "k"))
    return made


def drafter(target):
    return make_drafter("recap", vocab_size=target.vocab_size)


def test_the_same_image_changes_nothing(target, samples):
    for sample in samples:
        turns = image_swap.trace_sample(
            target, sample, sample.open_images(), drafter(target), limit=30
        )
        assert len(turns) == 2
        for turn in turns:
            assert not turn["first_token_changes"]
            assert not any(step["image_changes"] for step in turn["steps"])
            assert sum(len(step["changes"]) for step in turn["steps"]) == len(turn["token_ids"]) - 1


def test_changes_are_those_of_a_teacher_forced_target(target, samples):
    images = image_swap.swapped(samples[0], samples)
    assert [i.size for i in images] == [(90, 70)]
    turn = image_swap.trace_sample(target, samples[0], images, drafter(target), limit=30)[0]
    ids, changes = turn["token_ids"], [turn["first_token_changes"]]
    for step in turn["steps"]:
        changes += step["changes"]
        assert step["image_changes"] == step["changes"][0]
    assert any(changes), "this model looks at its image"
    for index in range(len(ids)):  # the reference: the answer so far as a prompt of its own
        conversation = Conversation(target)
        conversation.ask("the red square", images)
        conversation.prefill(seed=False, top_k=0)
        expected = teacher_forced(conversation, [*ids[:index], 0])[-1]
        assert changes[index] == (expected != ids[index])


def test_teacher_forcing_leaves_the_conversation_as_the_answer_would(target, samples):
    pictures = samples[0].open_images()
    one, two = Conversation(target), Conversation(target)
    for conversation in (one, two):
        conversation.ask("the red square", pictures)
    plain = make_drafter("autoregressive", vocab_size=target.vocab_size)
    answer = generate(one, plain, max_new_tokens=90).token_ids
    two.prefill(seed=False, top_k=0)
    assert teacher_forced(two, answer) == list(answer), "its own image: its own answer"
    assert (two.ids, two.state.length) == (one.ids, one.state.length)
    for conversation in (one, two):
        conversation.ask("and?")
    assert (
        generate(two, plain, max_new_tokens=20).token_ids
        == generate(one, plain, max_new_tokens=20).token_ids
    )


def test_only_another_image_of_the_same_kind_will_do(samples):
    a, b, c = samples
    same = Sample("a2", ("q",), a.images, "k")
    other = Sample("o", ("q",), b.images, "other kind")
    assert image_swap.swapped(a, [a, same, other]) is None
    assert image_swap.swapped(a, [a, same, other, c]) is not None


def test_shares_are_counted_per_outcome_with_intervals():
    def turn(sample, *steps):
        return {"sample": sample, "steps": [{"outcome": o, "image_changes": c} for o, c in steps]}

    turns = [
        turn("a", ("rejected", True), ("rejected", True), ("accepted", False)),
        turn("a", ("rejected", True)),
        turn("b", ("rejected", False), ("accepted", False), ("partly", True)),
    ]
    share = image_swap.shares(turns)
    assert (share["rejected"]["changed"], share["rejected"]["steps"]) == (3, 4)
    assert share["rejected"]["share_95"] == [0.0, 1.0]
    assert share["accepted"]["share"] == 0.0
    assert share["none"] == {"steps": 0, "changed": 0, "share": None, "share_95": None}


def test_from_the_command_line(tmp_path, samples, capsys):
    model = str(tiny.build("qwen2_5_vl", tmp_path / "model"))
    lines = [
        {"id": s.id, "turns": list(s.turns), "image": s.images[0].name, "topic": "k"}
        for s in samples
    ]
    lines.append({"id": "text", "question": "why?"})
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "swap.json"
    words = ["bench", "--image-swap", "--suite", str(tmp_path / "s.jsonl"), "--budget", "15"]
    assert main([*words, "--model", model, "--max-new-tokens", "20", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "| rejected whole |" in printed
    assert "skipped: text: It has no image." in printed
    data = json.loads(out.read_text())
    steps = [step for turn in data["turns"] for step in turn["steps"]]
    assert sum(f["steps"] for f in data["outcomes"].values()) == len(steps)
    text = str(tiny.build("llama", tmp_path / "llama"))
    assert main([*words, "--model", text]) == 2
    assert "no image to swap" in capsys.readouterr().err
