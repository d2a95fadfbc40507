"""The LLaVA demo model: its crops and passes against transformers' own, its answers."""

import json
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, LlavaNextProcessor
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)

from recap import DECODERS, Conversation, generate, load_target, make_drafter
from recap.demo import export, language_model, llava, llava_crops, model, train_llava, world
from recap.demo.dialogues.compose import dialogue
from recap.page import texts
from recap.targets.catalogue import DEMO, DEMO_LLAVA

torch.set_num_threads(1)
EXAMPLES = DEMO.parent / "examples"
needs_tokenizer = pytest.mark.skipif(
    not (DEMO / "tokenizer.json").exists(), reason="assets/demo_model is not there"
)
needs_model = pytest.mark.skipif(
    not (DEMO_LLAVA / "model.safetensors").exists(), reason="assets/demo_llava is not there"
)


@pytest.fixture(scope="module")
def processor(tmp_path_factory) -> LlavaNextImageProcessorPil:
    """The stock processor, as the exported folder configures it."""
    folder = tmp_path_factory.mktemp("processor")
    for name, settings in export.TILED.items():
        (folder / name).write_text(json.dumps(settings))
    return LlavaNextImageProcessorPil.from_pretrained(folder)


@pytest.fixture(scope="module")
def fresh():
    """A first model and a LLaVA model with its language model, both random."""
    first = model.build(seed=2).eval()
    return first, llava.build(first.state_dict(), seed=3).eval()


@pytest.mark.parametrize("kind", world.KINDS)
def test_the_fast_crops_equal_the_processors(kind, processor):
    picture = world.draw(kind, 5)
    stock = processor([picture.image], return_tensors="pt")["pixel_values"][0]
    assert torch.equal(stock, llava_crops.normalise(llava_crops.crops(picture.image)))


@pytest.mark.parametrize(("rows", "cols"), [(6, 6), (5, 6), (7, 5), (4, 7), (7, 4)])
def test_a_token_shows_the_place_that_places_names(rows, cols):
    """Every quarter cell is painted in a colour of its own; the crops must show it where `places` says."""
    paint = np.random.default_rng(0).integers(40, 256, (2 * rows, 2 * cols, 3), np.uint8)
    image = Image.fromarray(paint.repeat(48, 0).repeat(48, 1))
    crops = llava_crops.crops(image)
    quarters, inside = llava_crops.places((image.height, image.width), rows, cols)
    assert quarters.shape[:2] == inside.shape == (len(crops), llava_crops.SIDE**2)
    by_order = paint.reshape(rows, 2, cols, 2, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 3)
    step, right, seen = llava_crops.TILE // llava_crops.SIDE // 2, 0, 0
    for crop, named, there in zip(crops, quarters, inside, strict=True):
        for token in range(llava_crops.SIDE**2):
            y, x = np.array(divmod(token, llava_crops.SIDE)) * 2 * step
            for quarter in range(4):
                at = y + step // 2 + quarter // 2 * step, x + step // 2 + quarter % 2 * step
                around = crop[at[0] - 1 : at[0] + 1, at[1] - 1 : at[1] + 1]
                if not around.any(-1).all():  # the black canvas beside the picture
                    continue
                assert there[token]
                seen += 1
                # A centre may lie on a seam, where two colours mix.
                right += np.abs(crop[at].astype(int) - by_order[named[token, quarter]]).max() < 40
    assert right / seen > 0.85
    assert len(set((quarters // 4).ravel().tolist())) == rows * cols


def test_the_language_model_is_the_first_models(fresh):
    first, whole = fresh
    ids = torch.arange(8, 60)[None]
    with torch.no_grad():
        torch.testing.assert_close(whole(input_ids=ids).logits, first(input_ids=ids).logits)


@needs_tokenizer
def test_the_training_pass_is_the_stock_model(fresh, processor):
    _, whole = fresh
    tok = AutoTokenizer.from_pretrained(DEMO)
    pictures = [world.draw("bar", 1), world.draw("scene", 2)]
    index = {"empty": 0}
    seen = [llava_crops.cropped(p, index) for p in pictures]
    with torch.no_grad():
        crops = [llava.encode(whole, llava_crops.normalise(view.crops)) for view in seen]
        tokens = train_llava.packed(whole, crops, [view.size for view in seen])
        lines = dialogue(Random(1), [(p.kind, p.facts) for p in pictures], length=200)
        seq = language_model.encode(tok, lines, [(1, len(t)) for t in tokens])
        ids = torch.from_numpy(seq.ids)[None]
        stock = processor([pictures[i].image for i in seq.pictures], return_tensors="pt")
        want = whole(input_ids=ids, **stock).logits[0]
        language, pads = whole.model.language_model, ids == model.IDS["<|image_pad|>"]
        shown = torch.cat([tokens[i] for i in seq.pictures])
        embeds = language.embed_tokens(ids).masked_scatter(pads[..., None], shown)
        hidden = language_model.forward(language, embeds, torch.arange(len(seq.ids))[None])[0]
        got = torch.nn.functional.linear(hidden, language.embed_tokens.weight)
        torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
        # The loss counts positions in the same way.
        loss, count = language_model.loss_of(
            language, [seq], [[tokens[i] for i in seq.pictures]], plain=True
        )
        learned = torch.from_numpy(seq.answer[1:])
        each = torch.nn.functional.cross_entropy(
            want[:-1][learned], ids[0, 1:][learned], reduction="none"
        )
        weight = torch.from_numpy(seq.weight[1:])[learned]
        assert count == int(learned.sum())
        torch.testing.assert_close(loss, (each * weight).sum() / weight.sum())


def test_export_reads_back(fresh, tmp_path):
    if not (DEMO / "tokenizer.json").exists():
        pytest.skip("assets/demo_model is not there")
    _, whole = fresh
    tok = AutoTokenizer.from_pretrained(DEMO)
    folder = export.export(whole, tok, tmp_path / "model", export.TILED)
    target = load_target(folder, dtype="bfloat16", packed=False)
    assert target.name == str(folder)
    stock = LlavaNextProcessor.from_pretrained(folder)
    for size in ((576, 480), (480, 672), (300, 900), (577, 333), (100, 100)):
        ids = stock(images=Image.new("RGB", size), text="<|image_pad|>")["input_ids"][0]
        assert ids == [model.IDS["<|image_pad|>"]] * target.count_features(*size[::-1])
    for name, p in whole.state_dict().items():
        torch.testing.assert_close(target.model.state_dict()[name], p.bfloat16(), msg=name)


def test_the_page_says_which_demo_model_answers():
    what = {"device": "cpu", "dtype": "float32", "max_context": 4096}
    for name, word in (("demo", "Demo model"), ("demo-llava", "LLaVA demo model")):
        line = texts.model_line(SimpleNamespace(name=name, **what), 1.0)
        assert f"<strong>{word}</strong>" in line
        assert "Qwen" not in line + texts.DEMO_LIMITS[name]
    assert "LLaVA demo model" in texts.DEMO_LIMITS["demo-llava"]
    assert "rc-knows" not in texts.model_line(SimpleNamespace(name="owner/model", **what), 1.0)


@pytest.fixture(scope="module")
def target():
    """The exported model, by its name."""
    return load_target("demo-llava", packed=False)


def _picture(file: str) -> Image.Image:
    return Image.open(EXAMPLES / file).convert("RGB")


@needs_model
def test_it_is_small_and_has_its_name(target):
    assert target.name == "demo-llava"
    assert target.sees_images
    assert sum(f.stat().st_size for f in DEMO_LLAVA.iterdir()) < 25e6


@needs_model
@pytest.mark.parametrize("file", ["bar-days.png", "scene-few.png", "receipt.png"])
def test_prefill_is_the_stock_forward(target, file):
    conversation = Conversation(target)
    conversation.ask("Describe the picture.", images=[_picture(file)])
    segment, ids = conversation._segment, list(conversation.ids)
    rows = list(range(len(ids)))
    seen = target.prefill(target.new_state(), ids, segment, positions=rows, top_k=1)
    with torch.no_grad():
        want = target.model(input_ids=torch.tensor([ids]), **segment.inputs).logits[0]
    assert list(seen.choice) == want.argmax(-1).tolist()


@needs_model
def test_it_tells_pictures_apart_and_every_decoder_writes_the_same(target):
    answers_by_file = {}
    for file in ("scene-garden.png", "bar-days.png", "receipt.png"):
        answers = set()
        for decoder in DECODERS:
            conversation = Conversation(target)
            conversation.ask("Describe everything in detail.", images=[_picture(file)])
            segment = conversation._segment
            drafter = make_drafter(decoder, vocab_size=target.vocab_size)
            turn = generate(conversation, drafter, max_new_tokens=120)
            answers.add(tuple(turn.token_ids))
        ids = torch.tensor([conversation.ids[: -len(turn.token_ids)]])
        with torch.no_grad():
            stock = target.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), **segment.inputs,
                do_sample=False, max_new_tokens=120, eos_token_id=list(target.eos_ids),
                pad_token_id=0,
            )[0, ids.shape[1] :]  # fmt: skip
        assert answers == {tuple(stock.tolist())}
        answers_by_file[file] = target.decode(turn.token_ids)
    assert all(a != b for a, b in pairwise(answers_by_file.values()))
    assert (
        "shape" in answers_by_file["scene-garden.png"]
        or "star" in answers_by_file["scene-garden.png"]
    )
    assert "chart" in answers_by_file["bar-days.png"] or "bar" in answers_by_file["bar-days.png"]
    assert "receipt" in answers_by_file["receipt.png"] or "total" in answers_by_file["receipt.png"]
