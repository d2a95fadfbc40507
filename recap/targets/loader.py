"""From a name to a loaded target: a hub id, a local directory, "demo" or "demo-llava".

Whatever would break losslessness silently is refused here, or switched off with a note. PIL alone processes
images; torchvision is never needed.
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
from transformers.utils.hub import cached_file

from . import catalogue, device_map, device_memory, generation_config
from .catalogue import LoadError
from .families import SUPPORTED, target_class
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
    captured: bool,
) -> TransformersTarget:
    """See `recap.targets.load_target`."""
    name = str(name_or_path)
    where = _locate(name)
    layers_by_device = device_map.device_map(device)
    device = _device(None if layers_by_device or device == "auto" else device)
    dtype = _dtype(dtype, device)
    if attention not in ("sdpa", "eager"):
        raise LoadError(
            f'Attention "{attention}" cannot verify a candidate tree, because it takes no mask of '
            'ancestors: choose "sdpa" or "eager".'
        )
    version = {"revision": revision or "main"}  # a directory has none and ignores it
    config = _from(name, AutoConfig, where, **version)
    family = target_class(config.model_type)
    if family is None:
        raise LoadError(
            f'{name} is of type "{config.model_type}", which is not supported: {SUPPORTED} are.'
        )
    _refuse_moving_frequencies(name, config)
    sees_images = family.image_processor_class is not None
    auto = AutoModelForImageTextToText if sees_images else AutoModelForCausalLM
    tokenizer = _from(name, AutoTokenizer, where, **version)
    settings = {"config": config, "dtype": dtype, "attn_implementation": attention, **version}
    if layers_by_device:
        model = _weights(name, auto, where, device_map=layers_by_device, **settings).eval()
        device_map.refuse_offloaded(name, model)
    else:
        model = _weights(name, auto, where, **settings)
        model = _place(name, where, model, device).eval()
    images = _from(name, family.image_processor_class, where, **version) if sees_images else None
    notes = list(generation_config.switched_off(model.generation_config))
    eos = generation_config.eos_ids(model.generation_config, config, tokenizer)
    model.generation_config = generation_config.neutral(model.generation_config)
    template = _template(where, tokenizer, **version)
    if template is None:
        template, note = family.fallback_template(config)
        notes.append(note)
    return family(
        model,
        tokenizer,
        images,
        name={str(path): short for short, path in catalogue.bundled().items()}.get(where, name),
        template=template,
        eos_ids=eos,
        notes=tuple(notes),
        packed=packed,
        captured=captured,
        max_pixels=max_pixels,
    )


def _locate(name: str) -> str:
    """A directory, or a hub id as it is."""
    if bundled := catalogue.bundled().get(name):
        if not (bundled / "config.json").is_file():
            raise LoadError(f"The demo model is missing: {bundled} has no config.json.")
        return str(bundled)
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise LoadError(f"{name} is not a model directory: it has no config.json.")
        return str(path)
    if path.exists() or path.is_absolute() or name[:1] in ".~" or name.count("/") != 1:
        raise LoadError(f"There is no model directory {name}, and it is not a hub id (owner/name).")
    return name


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda", "mps", "xpu"):
        raise LoadError(f'There is no device "{device}": use cpu, cuda, cuda:1 or auto (all GPUs).')
    if found.type == "cuda" and not torch.cuda.is_available():
        raise LoadError("There is no CUDA device here: choose cpu.")
    return found


def _refuse_moving_frequencies(name: str, config: Any) -> None:
    """Rotary frequencies that change with the length seen would also count rejected candidates."""
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
            raise LoadError(
                f'There is no dtype "{dtype}": use one of {", ".join(DTYPES)}.'
            ) from None
    return dtype


def _from(name: str, kind: Any, where: str, **settings: Any) -> Any:
    """`kind.from_pretrained`, its errors as one sentence."""
    try:
        return kind.from_pretrained(where, **settings)
    except Exception as error:  # the libraries below raise anything, classes of their own too
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
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    kinds = {kind.__name__ for one in chain for kind in type(one).__mro__}
    if "OutOfMemoryError" in kinds:
        return f"{name} does not fit into the device's memory: try bfloat16 or a smaller model."
    if not Path(where).is_dir():
        if "GatedRepoError" in kinds:
            return f"{name} is gated: accept its terms on the hub, then set HF_TOKEN or run `hf auth login`."
        if "RepositoryNotFoundError" in kinds:
            return f"There is no model {name} on the hub (or it is private), and no such directory."
        if kinds & {
            "ConnectionError",
            "LocalEntryNotFoundError",
            "OfflineModeIsEnabled",
            "HTTPError",
        }:
            return f"{name} is not a directory here, and the model hub cannot be reached."
    reason = str(error).strip().splitlines()
    return f"{name} cannot be loaded: {reason[0] if reason else type(error).__name__}"


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
