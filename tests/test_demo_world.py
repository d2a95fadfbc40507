"""The drawn world and the demo model: seeds, facts, the fast passes against transformers' own, answers."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from recap.demo import evaluate, examples, language_model, model, vision_encoder, world
from recap.demo.dialogues import compose
from recap.demo.dialogues.templates import Turn
from recap.demo.world.board import COLOURS
from recap.demo.world.scene import PLACES

ASSETS = Path(__file__).parents[1] / "assets"
FOLDER = ASSETS / "demo_model"
needs_model = pytest.mark.skipif(
    not (FOLDER / "model.safetensors").exists(), reason="assets/demo_model is not there"
)


@pytest.mark.parametrize("kind", world.KINDS)
def test_a_seed_names_one_picture(kind):
    one, same, other = (world.draw(kind, seed, unit=40) for seed in (3, 3, 4))
    assert one.image.tobytes() == same.image.tobytes()
    assert (one.facts, one.cells) == (same.facts, same.cells)
    assert one.image.tobytes() != other.image.tobytes()
    assert len(one.cells) == one.rows * one.cols


def test_shapes_have_their_colour_where_the_facts_say():
    for seed in range(20):
        picture = world.draw("scene", seed, unit=32)
        for thing in picture.facts["things"]:
            spot = PLACES.index(thing["place"])
            x, y = (spot % 3 * 2 + 1) * 32, (spot // 3 * 2 + 1) * 32
            off = np.subtract(picture.image.getpixel((x, y)), COLOURS[thing["colour"]])
            assert np.abs(off).max() <= 16, (seed, thing)


def test_bars_are_as_tall_as_their_values():
    for seed in range(20):
        picture = world.draw("bar", seed, unit=32)
        a = np.asarray(picture.image).astype(int)
        paint = np.abs(a - COLOURS[picture.facts["colour"]]).max(-1) <= 16
        count = len(picture.facts["values"])
        wide = (6 - 0.25) / count
        heights = []
        for i in range(count):
            x = round((0.25 + wide * (i + 0.5)) * 32)
            column = paint[32 : round(4.12 * 32), x - 4 : x + 5].all(1)  # digits are thinner
            heights.append(int(column.sum()))
        assert np.argsort(heights).tolist() == np.argsort(picture.facts["values"]).tolist()


def test_a_receipt_adds_up():
    for seed in range(20):
        facts = world.draw("receipt", seed, unit=8).facts
        assert float(facts["total"]) == sum(float(p) for _, p in facts["goods"])


@pytest.mark.parametrize("kind", world.KINDS)
def test_the_reference_answers_are_right_and_others_wrong(kind):
    rng, picture = Random(f"turns-{kind}"), world.draw(kind, 1, unit=8)
    for _ in range(120):
        for turn in compose.question(rng, kind, picture.facts):
            assert evaluate.right(turn, turn.answer)
            assert not evaluate.right(turn, "The 37 red kiwis, no.")
            assert "{" not in turn.question
            assert turn.answer.strip() == turn.answer


def test_facts_are_numbers_and_closed_words_in_order():
    text = "The large red circle is in the top left: 3.50 or 15%."
    want = ["large", "red", "circle", "top", "left", "3.50", "15%"]
    assert evaluate.facts(text) == want
    turn = Turn("price", "How much is the tea?", "The tea is 3.50.")
    assert evaluate.right(turn, "tea: 3.50")
    assert not evaluate.right(turn, "The tea is 3.00.")


@pytest.fixture(scope="module")
def fresh():
    """A model with random weights."""
    return model.build(seed=2).eval()


@pytest.mark.parametrize("kind", world.KINDS)
def test_the_fast_vision_encoder_equals_transformers(fresh, kind):
    picture = world.draw(kind, 5)
    stock = Qwen2VLImageProcessorPil(
        size={"shortest_edge": model.MIN_PIXELS, "longest_edge": model.MAX_PIXELS}
    )(images=[picture.image], return_tensors="pt")
    rows, cols = picture.rows, picture.cols
    assert stock["image_grid_thw"].tolist() == [[1, 2 * rows, 2 * cols]]
    mine = vision_encoder.normalise(
        torch.from_numpy(vision_encoder.prepare(picture.image, rows, cols))
    )
    frames = stock["pixel_values"].view(-1, 3, 2, 196)
    for frame in (0, 1):
        assert torch.equal(frames[:, :, frame].reshape(-1, 588), mine)
    with torch.no_grad():
        want = fresh.model.visual(
            stock["pixel_values"], grid_thw=stock["image_grid_thw"]
        ).pooler_output
        got = vision_encoder.encode(fresh.model.visual, mine[None], rows, cols)[0]
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@needs_model
def test_the_fast_language_model_equals_transformers(fresh):
    tok = AutoTokenizer.from_pretrained(FOLDER)
    pictures = [world.draw("bar", 1), world.draw("receipt", 2)]
    grids = [(p.rows, p.cols) for p in pictures]
    lines = compose.dialogue(Random(1), [(p.kind, p.facts) for p in pictures], length=200)
    seq = language_model.encode(tok, lines, grids)
    ids = torch.from_numpy(seq.ids)[None]
    pads = ids == model.IDS["<|image_pad|>"]
    mine = [
        vision_encoder.normalise(torch.from_numpy(vision_encoder.prepare(p.image, *g)))
        for p, g in zip(pictures, grids, strict=True)
    ]
    double = torch.cat(
        [m.view(-1, 3, 1, 196).expand(-1, 3, 2, 196).reshape(-1, 1176) for m in mine]
    )
    grid = torch.tensor([[1, 2 * r, 2 * c] for r, c in grids])
    with torch.no_grad():
        where, _ = fresh.model.get_rope_index(
            ids, mm_token_type_ids=pads.long(), image_grid_thw=grid
        )
        assert (where[:, 0].numpy() == language_model.positions(seq)).all()
        want = fresh(
            input_ids=ids, pixel_values=double, image_grid_thw=grid, mm_token_type_ids=pads.long()
        ).logits
        seen = [
            vision_encoder.encode(fresh.model.visual, m[None], *g)[0]
            for m, g in zip(mine, grids, strict=True)
        ]
        language = fresh.model.language_model
        embeds = language.embed_tokens(ids).masked_scatter(pads[..., None], torch.cat(seen))
        hidden = language_model.forward(
            language, embeds, torch.from_numpy(language_model.positions(seq))[:, None]
        )
        got = torch.nn.functional.linear(hidden, language.embed_tokens.weight)
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)


@needs_model
def test_training_reads_what_the_chat_template_renders():
    tok = AutoTokenizer.from_pretrained(FOLDER)
    assert tok.convert_tokens_to_ids(list(model.SPECIAL)) == list(range(len(model.SPECIAL)))
    for seed in range(8):
        picture = world.draw_any(f"template{seed}")
        lines = compose.dialogue(Random(seed), [(picture.kind, picture.facts)])
        seq = language_model.encode(tok, lines, [(picture.rows, picture.cols)])
        messages = []
        for line in lines:
            content = [{"type": "text", "text": line.turn.question}]
            if line.image is not None:
                content.insert(0, {"type": "image"})
            messages.append({"role": "user", "content": content})
            messages.append({"role": "assistant", "content": line.turn.answer})
        text = tok.apply_chat_template(messages, tokenize=False)
        pads = "<|image_pad|>" * (picture.rows * picture.cols)
        text = text.replace("<|image_pad|>", pads)
        assert tok(text)["input_ids"] == seq.ids.tolist()
        assert tok.decode(seq.ids) == text


def test_the_gallery_lists_pictures_that_are_there():
    entries = json.loads((ASSETS / "examples" / "examples.json").read_text())
    assert len(entries) == len(examples.GALLERY) >= 14
    for entry in entries:
        with Image.open(ASSETS / "examples" / entry["file"]) as image:
            assert 400 <= min(image.size) <= max(image.size) <= 700
        assert entry["alt"]
        assert 2 <= sum(map(len, entry["conversations"])) <= 7


@pytest.fixture(scope="module")
def reader():
    """The exported model."""
    return evaluate.Reader(FOLDER)


def _ask(reader, file: str, question: str) -> str:
    image = Image.open(ASSETS / "examples" / file).convert("RGB")
    return reader.answer([evaluate.Question("", Turn("", question, ""), image)])[0]


ASKED = [
    ("sign-arrow.png", "sign", 187, "What does the sign say?", lambda f: [f["word"]]),
    ("bar-days.png", "bar", 8, "How many bars are there?", lambda f: [len(f["labels"])]),
    ("receipt.png", "receipt", 8, "What is the total?", lambda f: [f["total"]]),
    ("scene-garden.png", "scene", 58, "How many shapes are there?", lambda f: [len(f["things"])]),
    ("table-two.png", "table", 5, "Who is in the table?", lambda f: f["names"]),
    ("pie.png", "pie", 2, "How many slices are there?", lambda f: [len(f["slices"])]),
]


@needs_model
@pytest.mark.parametrize(("file", "kind", "seed", "question", "want"), ASKED)
def test_the_model_reads_the_gallery(reader, file, kind, seed, question, want):
    stated = want(world.draw(kind, f"gallery{seed}", unit=8).facts)
    answer = _ask(reader, file, question)
    assert [str(v).lower() for v in stated] == [
        w for w in evaluate.facts(answer) if w in {str(v).lower() for v in stated}
    ], answer


@needs_model
def test_the_model_refuses_noise_and_asks_for_a_picture(reader):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (480, 576, 3), np.uint8))
    asked = evaluate.Question("", Turn("", "What do you see?", ""), noise)
    bare = evaluate.Question("", Turn("", "What does the sign say?", ""), None)
    assert "only know" in reader.answer([asked])[0]
    assert "give me an image" in reader.answer([bare])[0]
