"""What a checkpoint's generation config asks for beyond the argmax, and how it is switched off.

Greedy means the target's bare argmax, in every decoder alike. A repetition penalty, a forced or a
suppressed token changes what `generate()` picks; it is switched off, with a note.
"""

from __future__ import annotations

from typing import Any

from transformers import GenerationConfig

_BY_VALUE = {
    "repetition_penalty": ("repetition penalty of {}", 1.0),
    "encoder_repetition_penalty": ("prompt repetition penalty of {}", 1.0),
    "no_repeat_ngram_size": ("ban on repeated {}-token sequences", 0),
    "encoder_no_repeat_ngram_size": ("ban on repeating {}-token sequences of the prompt", 0),
    "min_length": ("minimum length of {} tokens", 0),
    "min_new_tokens": ("minimum of {} new tokens", 0),
    "guidance_scale": ("guidance scale of {}", 1.0),
}
_BY_NAME = {
    "forced_bos_token_id": "forced first token",
    "forced_eos_token_id": "forced last token",
    "suppress_tokens": "list of suppressed tokens",
    "begin_suppress_tokens": "list of tokens suppressed at the start",
    "bad_words_ids": "list of forbidden words",
    "sequence_bias": "sequence bias",
    "exponential_decay_length_penalty": "length penalty",
    "watermarking_config": "watermark",
    "prompt_lookup_num_tokens": "prompt lookup",
}


def switched_off(config: GenerationConfig) -> tuple[str, ...]:
    """A sentence for every setting of the checkpoint that is not applied.

    >>> switched_off(GenerationConfig(repetition_penalty=1.05))[0][:60]
    "The checkpoint's repetition penalty of 1.05 is switched off,"
    """
    found = []
    for field, (words, neutral) in _BY_VALUE.items():
        value = getattr(config, field, None)
        if value is not None and value != neutral:
            found.append(words.format(value))
    for field, words in _BY_NAME.items():
        if getattr(config, field, None):
            found.append(words)
    tail = "is switched off, here and in the baseline: greedy means the target's bare argmax."
    return tuple(f"The checkpoint's {words} {tail}" for words in found)


def neutral(config: GenerationConfig) -> GenerationConfig:
    """A generation config that keeps the checkpoint's token ids and nothing else: bare greedy."""
    kept = {
        name: getattr(config, name, None)
        for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    return GenerationConfig(do_sample=False, **kept)


def eos_ids(generation: GenerationConfig, config: Any, tokenizer: Any) -> frozenset[int]:
    """Ids that end an answer: the generation config's, else the model config's, else the tokenizer's."""
    text = config.get_text_config()
    for source in (generation, config, text, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return frozenset(ids if isinstance(ids, (list, tuple, set)) else [ids])
    return frozenset()
