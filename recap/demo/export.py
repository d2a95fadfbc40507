"""Exports a directory that loads like any checkpoint from a hub: tokenizer, processor files, weights."""

import json
import shutil
from pathlib import Path
from random import Random

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast

from . import llava_crops, model, vision_encoder, world
from .dialogues.compose import dialogue
from .model import IDS, SPECIAL

# The template of Qwen2.5-VL without its default system prompt.
CHAT_TEMPLATE = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}"
    "<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(dialogues: int = 2000) -> PreTrainedTokenizerFast:
    """A byte-level BPE of `model.VOCAB` tokens, trained on seeded dialogues; digits stay single."""
    texts = []
    for i in range(dialogues):
        picture = world.draw_any(f"words{i}") if i % 4 == 0 else picture  # noqa: F821
        lines = dialogue(Random(f"words{i}"), [(picture.kind, picture.facts)])
        texts += [t for line in lines for t in (line.turn.question, line.turn.answer)]
    texts += ["user\n", "assistant\n", "system\n"] * 2000
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\d"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])  # fmt: skip
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=model.VOCAB, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    ))  # fmt: skip
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=[t for t in SPECIAL if t not in ("<|im_end|>", "<|endoftext|>")],
        model_max_length=4096, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = CHAT_TEMPLATE
    assert [fast.convert_tokens_to_ids(t) for t in SPECIAL] == list(range(len(SPECIAL)))
    return fast


def saved_tokenizer(work: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a training run, made on its first use."""
    folder = work / "tokenizer"
    if not folder.exists():
        tokenizer().save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


# Settings of the two families' processors, by file.
PIXELS = {"image_mean": list(vision_encoder.MEAN), "image_std": list(vision_encoder.STD)}
MERGED = {"preprocessor_config.json": {
    "min_pixels": model.MIN_PIXELS, "max_pixels": model.MAX_PIXELS, "patch_size": vision_encoder.PATCH,
    "temporal_patch_size": 2, "merge_size": vision_encoder.MERGE, **PIXELS,
    "image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor",
}}  # fmt: skip
TILED = {"preprocessor_config.json": {
    "size": {"shortest_edge": llava_crops.TILE}, **PIXELS,
    "crop_size": {"height": llava_crops.TILE, "width": llava_crops.TILE},
    "image_grid_pinpoints": llava_crops.PINPOINTS,
    "image_processor_type": "LlavaNextImageProcessor", "processor_class": "LlavaNextProcessor",
}, "processor_config.json": {
    "patch_size": llava_crops.TILE // llava_crops.SIDE, "vision_feature_select_strategy": "default",
    "num_additional_image_tokens": 1, "image_token": "<|image_pad|>",
    "processor_class": "LlavaNextProcessor",
}}  # fmt: skip


def export(
    whole: PreTrainedModel,
    tok: PreTrainedTokenizerFast,
    to: Path,
    files: dict[str, dict] = MERGED,
) -> Path:
    """Write the checkpoint in bfloat16, completely or not at all; other files in the folder stay.

    files: the processor's settings by file name.
    """
    part = to.with_name(to.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tok.save_pretrained(part)
    small = type(whole)(whole.config)
    small.load_state_dict(whole.state_dict())
    small = small.to(torch.bfloat16)
    small.generation_config = GenerationConfig(
        do_sample=False, bos_token_id=IDS["<|endoftext|>"], pad_token_id=IDS["<|endoftext|>"],
        eos_token_id=[IDS["<|im_end|>"], IDS["<|endoftext|>"]],
    )  # fmt: skip
    small.save_pretrained(part)
    for name, settings in files.items():
        (part / name).write_text(json.dumps(settings, indent=2) + "\n")
    to.mkdir(parents=True, exist_ok=True)
    for file in part.iterdir():
        file.replace(to / file.name)
    part.rmdir()
    return to
