"""Loading: published layouts, what is switched off and said, what is refused in one sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig

from recap import load_target
from recap.targets import LoadError, Message, catalogue, generation_config, loader

from . import tiny

torch.set_num_threads(1)

HUB = Path(__file__).parents[2] / "shared" / "data" / "hub_layouts"
LAYOUTS = {
    "qwen": (tiny.build_hub_qwen, "qwen2.5-vl-7b-instruct"),
    "llava": (tiny.build_hub_llava, "llava-v1.6-mistral-7b-hf"),
}


def layout(name: str, origin: str, where: Path) -> Path:
    build, folder = LAYOUTS[name]
    if origin == "own copy":
        return build(where)
    if not (HUB / folder).is_dir():
        pytest.skip(f"{HUB / folder} is not here: published files are not part of the repository")
    return build(where, HUB / folder)


@pytest.mark.parametrize("origin", ["own copy", "published files"])
def test_published_qwen_layout(origin, tmp_path):
    target = load_target(layout("qwen", origin, tmp_path))
    assert target.notes == (
        "The checkpoint's repetition penalty of 1.05 is switched off, here and in the baseline: "
        "greedy means the target's bare argmax.",
    )
    assert {target.token_text(i) for i in target.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
    assert "<|vision_pad|>" in {target.token_text(i) for i in target.blocked}
    config = target.model.config.text_config
    assert config.sliding_window is None
    assert config.rope_parameters["mrope_section"] == [2, 3, 3]
    assert config.rope_parameters["rope_theta"] == 1e6
    assert target.image_processor.size["longest_edge"] == 12544
    assert target.model.generation_config.repetition_penalty in (None, 1.0)
    assert not target.model.generation_config.do_sample
    ids = target.encode([Message("user", "Hi", (tiny.picture(60, 60),))], (), None).ids
    assert target.tokenizer.decode(ids).startswith(
        "<|im_start|>system\nYou are a helpful assistant."
    )
    assert target.dtype == "float32", "the checkpoint's bfloat16 is not for a CPU"


@pytest.mark.parametrize("origin", ["own copy", "published files"])
def test_published_llava_layout(origin, tmp_path):
    target = load_target(layout("llava", origin, tmp_path))
    assert target.notes == ()
    assert [target.token_text(i) for i in target.eos_ids] == ["</s>"]
    assert target.max_context == 4096
    ids = target.encode([Message("user", "Hi", (tiny.picture(60, 60),))], (), None).ids
    text = target.tokenizer.decode(ids)
    assert text.startswith("<s>")
    assert text.count("<image>") > 16


def test_the_small_copies_keep_the_published_structure():
    """Every field of the published files that says how to load is in the tests' own copies."""
    folder = HUB / "qwen2.5-vl-7b-instruct"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: published files are not part of the repository")
    sizes = {*tiny.TEXT_SIZES, "vocab_size"}

    def fields(file: Path) -> set[str]:
        return {k for k in json.loads(file.read_text()) if not k.endswith("token_id")} - sizes

    assert fields(folder / "config.json") == set(tiny.HUB_QWEN)
    assert fields(folder / "generation_config.json") == set(tiny.HUB_QWEN_GENERATION)
    assert fields(folder / "preprocessor_config.json") == set(tiny.HUB_QWEN_PREPROCESSOR)
    folder = HUB / "llava-v1.6-mistral-7b-hf"
    assert fields(folder / "config.json") - {"image_grid_pinpoints"} == set(tiny.HUB_LLAVA)
    assert fields(folder / "processor_config.json") == set(tiny.HUB_LLAVA_PROCESSOR)


@pytest.fixture
def llama(tmp_path) -> Path:
    return tiny.build("llama", tmp_path / "llama")


def edit(place: Path, **changes) -> Path:
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | changes))
    return place


def test_nothing_needs_torchvision(tmp_path):
    load_target(tiny.build("qwen2_5_vl", tmp_path / "qwen"))
    load_target(tiny.build("llava_next", tmp_path / "llava"))
    assert "torchvision" not in sys.modules


def test_model_without_a_chat_template_gets_a_plain_one_and_says_so(llama):
    (llama / "chat_template.jinja").unlink()
    target = load_target(llama)
    assert target.notes == (
        "The tokenizer has no chat template: turns are plain User / Assistant lines.",
    )
    ids = list(target.encode([Message("user", "ab?")], (), None).ids)
    assert target.decode(ids) == "User: ab?\nAssistant:"
    messages = [Message("user", "ab?"), Message("assistant", "c"), Message("user", "d")]
    later = target.encode(messages, [*ids, 70], [70]).ids
    assert target.decode(later).strip() == "User: d\nAssistant:"


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "llava_next"])
def test_vision_model_without_a_chat_template_gets_its_familys(kind, tmp_path):
    place = tiny.build(kind, tmp_path)
    (place / "chat_template.jinja").unlink()
    target = load_target(place)
    assert len(target.notes) == 1
    segment = target.encode([Message("user", "Hi", (tiny.picture(60, 60),))], (), None)
    assert len(segment.images) == 1
    text = target.decode(segment.ids)
    assert text.rstrip().endswith("assistant" if kind == "qwen2_5_vl" else "Hi [/INST]")


def test_every_setting_that_changes_greedy_output_is_said():
    settings = {
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3,
        "min_length": 5,
        "min_new_tokens": 2,
        "forced_eos_token_id": 7,
        "suppress_tokens": [1, 2],
        "begin_suppress_tokens": [3],
        "bad_words_ids": [[4]],
        "encoder_repetition_penalty": 1.1,
    }
    notes = generation_config.switched_off(GenerationConfig(**settings))
    assert len(notes) == len(settings)
    assert all("is switched off, here and in the baseline" in note for note in notes)
    assert (
        generation_config.switched_off(GenerationConfig(do_sample=True, temperature=0.5, top_k=3))
        == ()
    )
    kept = generation_config.neutral(GenerationConfig(eos_token_id=[5, 6], **settings))
    assert kept.eos_token_id == [5, 6]
    assert generation_config.switched_off(kept) == ()


def test_end_tokens_fall_back_to_the_config_and_then_the_tokenizer(llama):
    (llama / "generation_config.json").unlink()
    assert load_target(edit(llama, eos_token_id=[5, 6])).eos_ids == {5, 6}
    assert load_target(edit(llama, eos_token_id=None)).eos_ids == {2}


def test_names_and_dtypes(llama):
    target = load_target(llama, dtype="bf16")
    assert (target.name, target.device, target.dtype) == (str(llama), "cpu", "bfloat16")
    assert load_target(llama, dtype=torch.float32).dtype == "float32"


def fails(name, match: str, **settings) -> None:
    with pytest.raises(LoadError, match=match) as caught:
        load_target(name, **settings)
    assert "\n" not in str(caught.value)


def test_refusals_are_one_sentence(llama, tmp_path):
    fails(llama, "takes no mask of ancestors", attention="flash_attention_2")
    fails(llama, 'no dtype "int8"', dtype="int8")
    fails(llama, 'no device "toaster"', device="toaster")
    if not torch.cuda.is_available():
        fails(llama, "no CUDA device", device="cuda")
    fails(tmp_path / "nowhere", "There is no model directory")
    fails("./nowhere", "There is no model directory")
    fails("nowhere", "There is no model directory")
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", "it has no config.json")
    fails(edit(llama, model_type="gemma2"), 'is of type "gemma2", which is not supported: Qwen2-VL')
    fails(edit(llama, model_type="no_such_type"), "cannot be loaded")


def test_length_dependent_positions_are_refused(llama):
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    fails(edit(llama, rope_parameters=rope), r"by the length seen \(dynamic\)")


def test_importing_the_package_does_not_import_torch():
    code = "import sys, recap; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_weights_are_an_error_not_random_numbers(llama):
    fails(edit(llama, num_hidden_layers=4), "lacks 9 of the model's weights, model.layers.3")


def test_broken_files_are_named(llama, tmp_path):
    broken = shutil.copytree(llama, tmp_path / "broken")
    (broken / "config.json").write_text("{")
    fails(broken, "broken cannot be loaded")
    no_weights = shutil.copytree(llama, tmp_path / "no_weights")
    (no_weights / "model.safetensors").unlink()
    fails(no_weights, "no_weights cannot be loaded")
    half = shutil.copytree(llama, tmp_path / "half")
    data = (half / "model.safetensors").read_bytes()
    (half / "model.safetensors").write_bytes(data[: len(data) // 2])
    fails(half, "half cannot be loaded")


@pytest.mark.parametrize(
    ("cause", "match"),
    [
        ("GatedRepoError", "is gated: accept its terms"),
        ("RepositoryNotFoundError", "There is no model some/model on the hub"),
        ("LocalEntryNotFoundError", "the model hub cannot be reached"),
        ("OfflineModeIsEnabled", "the model hub cannot be reached"),
    ],
)
def test_hub_errors_are_one_sentence(cause, match, monkeypatch):
    error = type(cause, (OSError,), {})("a long story\nover lines")

    def refuse(*args, **more):
        raise OSError("wrapped\nby transformers") from error

    monkeypatch.setattr(loader.AutoConfig, "from_pretrained", refuse)
    fails("some/model", match)


def test_hub_id_without_a_network(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    fails("owner/no-such-model", "the model hub cannot be reached")


@pytest.mark.parametrize(("name", "where"), [("demo", "DEMO"), ("demo-llava", "DEMO_LLAVA")])
def test_demo_is_missing_in_one_sentence(monkeypatch, tmp_path, name, where):
    monkeypatch.setattr(catalogue, where, tmp_path / "demo_model")
    fails(name, "The demo model is missing")
