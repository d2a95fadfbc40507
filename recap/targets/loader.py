"""From a name to a loaded target: a hub id, a local directory, "demo" or "demo-llava".

Everything that would break losslessness silently is refused here or switched off and said. Images are
processed by PIL alone; torchvision is never needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
)
from transformers.models.llava_next.image_processing_pil_llava_next import (
    LlavaNextImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.utils.hub import cached_file

from . import catalogue, device_map, device_memory, generation_config
from .catalogue import LLAVA, QWEN_VL, SUPPORTED, TEXT, LoadError
from .chat_template import CHATML, INST, PLAIN, VICUNA
from .families.causal_lm import CausalLMTarget
from .families.llava_next import LlavaNextTarget
from .families.qwen_vl import QwenVLTarget
from .transformers_target import TransformersTarget

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def load(
    name_or_path: str | Path,
    *,
    revision: str | None,
    device: str | torch.device | Mapping[str, Any] | None,
    dtype: str | torch.dtype | None,
    max_pixels: int | None,
    attention: str,
    packed: bool,
    static: bool,
) -> TransformersTarget:
    """See `recap.targets.load_target`."""
    name = str(name_or_path)
    where = _locate(name)
    where_to = device_map.device_map(device)
    device = _device(None if where_to or device == "auto" else device)
    dtype = _dtype(dtype, device)
    if attention not in ("sdpa", "eager"):
        raise LoadError(
            f'Attention "{attention}" cannot verify a candidate tree, because it takes no mask of '
            'ancestors: choose "sdpa" or "eager".'
        )
    version = {"revision": revision or "main"}  # a directory has none and ignores it
    config = _from(name, AutoConfig, where, **version)
    kind = config.model_type
    if kind not in (*QWEN_VL, *LLAVA, *TEXT):
        raise LoadError(f'{name} is of type "{kind}", which is not supported: {SUPPORTED} are.')
    _refuse_moving_frequencies(name, config)
    auto = AutoModelForCausalLM if kind in TEXT else AutoModelForImageTextToText
    tokenizer = _from(name, AutoTokenizer, where, **version)
    how = {"config": config, "dtype": dtype, "attn_implementation": attention, **version}
    if where_to:
        model = _weights(name, auto, where, device_map=where_to, **how).eval()
        device_map.refuse_offloaded(name, model)
    else:
        model = _weights(name, auto, where, **how)
        model = _place(name, where, model, device).eval()
    notes = list(generation_config.switched_off(model.generation_config))
    eos = generation_config.eos_ids(model.generation_config, config, tokenizer)
    model.generation_config = generation_config.neutral(model.generation_config)
    template = _template(where, tokenizer, **version)
    if template is None:
        template, note = _stand_in(config)
        notes.append(note)
    shared: dict[str, Any] = {
        "name": {str(path): own for own, path in catalogue.bundled().items()}.get(where, name),
        "template": template,
        "eos_ids": eos,
        "packed": packed,
        "static": static,
    }
    if kind in TEXT:
        return CausalLMTarget(model, tokenizer, notes=tuple(notes), **shared)
    if kind in LLAVA:
        if max_pixels is not None:
            notes.append(
                "max_pixels has no effect: LLaVA-NeXT resizes every image to its own tiles."
            )
        images = _from(name, LlavaNextImageProcessorPil, where, **version)
        return LlavaNextTarget(model, tokenizer, images, notes=tuple(notes), **shared)
    images = _from(name, Qwen2VLImageProcessorPil, where, **version)
    return QwenVLTarget(
        model, tokenizer, images, max_pixels=max_pixels, notes=tuple(notes), **shared
    )


def _locate(name: str) -> str:
    """A directory, or a hub id as it is."""
    if own := catalogue.bundled().get(name):
        if not (own / "config.json").is_file():
            raise LoadError(f"The demo model is not there: {own} has no config.json.")
        return str(own)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(f"{name} is not a model's directory: it has no config.json.")
        return str(path)
    if path.exists() or path.is_absolute() or name[:1] in ".~" or name.count("/") != 1:
        raise LoadError(f"There is no model directory {name}, and it is no hub id (owner/name).")
    return name


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        kind = torch.device(device)
        if kind.type not in ("cpu", "cuda", "mps", "xpu"):
            raise RuntimeError("no device that computes")
    except RuntimeError:
        raise LoadError(
            f'There is no kind of device "{device}": cpu, cuda, cuda:1 and auto (all GPUs) are.'
        ) from None
    device = kind
    if device.type == "cuda" and not torch.cuda.is_available():
        raise LoadError("There is no CUDA device here: choose cpu.")
    return device


def _refuse_moving_frequencies(name: str, config: Any) -> None:
    """Rotary frequencies that change with the length seen would see rejected candidates too."""
    rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
    kinds = {rope.get("rope_type"), *(v.get("rope_type") for v in rope.values() if type(v) is dict)}
    moving = kinds & {"dynamic", "longrope"}
    if moving:
        raise LoadError(
            f"{name} scales its rotary positions by the length seen ({moving.pop()}), "
            "which cannot be verified losslessly."
        )


def _dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    if dtype is None:
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if isinstance(dtype, str):
        try:
            return DTYPES[dtype]
        except KeyError:
            raise LoadError(f'There is no dtype "{dtype}": {", ".join(DTYPES)} are.') from None
    return dtype


def _from(name: str, kind: Any, where: str, **settings: Any) -> Any:
    """`kind.from_pretrained`, its errors told in one sentence."""
    try:
        return kind.from_pretrained(where, **settings)
    except Exception as error:  # the libraries below raise anything, of their own kinds too
        raise LoadError(_sentence(name, where, error)) from error


def _weights(name: str, auto: Any, where: str, **settings: Any) -> Any:
    """The model with every weight from the checkpoint: transformers would fill gaps at random."""
    model, report = _from(name, auto, where, output_loading_info=True, **settings)
    missing = sorted(report["missing_keys"])
    if missing:
        raise LoadError(f"{name} lacks {len(missing)} of the model's weights, {missing[0]} first.")
    return model


def _place(name: str, where: str, model: Any, device: torch.device) -> Any:
    need, dtype = device_memory.weights_gb(model), model.dtype
    try:
        return model.to(device)
    except torch.OutOfMemoryError as error:
        free = device_memory.free_gb(device)
        raise LoadError(device_memory.does_not_fit(name, need, dtype, free)) from error
    except (RuntimeError, AssertionError) as error:  # out of memory, no such card, not built in
        raise LoadError(_sentence(name, where, error)) from error


def _sentence(name: str, where: str, error: BaseException) -> str:
    """What went wrong, from the whole chain of causes."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    kinds = {kind.__name__ for one in chain for kind in type(one).__mro__}
    if "OutOfMemoryError" in kinds:
        return f"{name} does not fit into the device's memory: try bfloat16 or a smaller model."
    if Path(where).is_dir():
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return f"{name} cannot be loaded: {first}"
    if "GatedRepoError" in kinds:
        return f"{name} is gated: accept its terms on the hub, then set HF_TOKEN or run `hf auth login`."
    if "RepositoryNotFoundError" in kinds:
        return f"There is no model {name} on the hub (or it is private), and no such directory."
    if kinds & {"ConnectionError", "LocalEntryNotFoundError", "OfflineModeIsEnabled", "HTTPError"}:
        return f"{name} is no directory here, and the model hub cannot be reached."
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return f"{name} cannot be loaded: {first}"


def _template(where: str, tokenizer: Any, *, revision: str) -> str | None:
    """The chat template: the processor's file where there is one, else the tokenizer's own."""
    for file in ("chat_template.jinja", "chat_template.json"):
        found = cached_file(
            where,
            file,
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
        if found is not None:
            text = Path(found).read_text(encoding="utf-8")
            return json.loads(text)["chat_template"] if file.endswith("json") else text
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return template


def _stand_in(config: Any) -> tuple[str, str]:
    """A template for a checkpoint that brings none, and the sentence that says so."""
    kind = config.model_type
    if kind in QWEN_VL:
        return CHATML, "The checkpoint has no chat template: the family's usual ChatML is used."
    if kind in LLAVA and config.text_config.model_type == "mistral":
        return INST, "The checkpoint has no chat template: Mistral's [INST] form is used."
    if kind in LLAVA:
        return (
            VICUNA,
            "The checkpoint has no chat template: Vicuna's USER / ASSISTANT form is used.",
        )
    return PLAIN, "The tokenizer has no chat template: turns are plain User / Assistant lines."
