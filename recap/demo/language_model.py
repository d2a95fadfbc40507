"""The language model in training: whole dialogues in, losses of the answers out.

`forward` is the forward pass of transformers' own weights for a batch without a cache, and `positions`
is `get_rope_index` in a few lines; the tests compare both with the originals.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import rotate_half

from .dialogues.compose import Line
from .model import IDS


@dataclass(frozen=True)
class Sequence:
    """A dialogue as tokens; `answer`: which ones are learned; `grids`: (start, rows, cols) per image."""

    ids: np.ndarray  # int64 [N]
    answer: np.ndarray  # bool [N]
    weight: np.ndarray  # float32 [N], weight of the token's loss
    grids: tuple[tuple[int, int, int], ...]
    pictures: tuple[int, ...]  # the number of each image within the dialogue


def encode(
    tok: PreTrainedTokenizerFast, lines: list[Line], grids: list[tuple[int, int]]
) -> Sequence:
    """The token ids that the chat template gives for a dialogue, image pads included."""
    ids: list[int] = []
    answer: list[bool] = []
    weight: list[float] = []
    places, pictures = [], []
    texts = [t for line in lines for t in (line.turn.question, line.turn.answer)]
    coded = tok(texts, add_special_tokens=False)["input_ids"]
    user, middle, newline = (
        tok(t, add_special_tokens=False)["input_ids"]
        for t in ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n", "\n")
    )

    def put(tokens: list[int], learned: bool = False) -> None:
        ids.extend(tokens)
        answer.extend([learned] * len(tokens))
        # Otherwise the easy words of long answers outweigh the one decision in a short answer.
        weight.extend([len(tokens) ** -0.25] * len(tokens))

    for i, line in enumerate(lines):
        put(user)
        if line.image is not None:
            rows, cols = grids[line.image]
            put([IDS["<|vision_start|>"]])
            places.append((len(ids), rows, cols))
            pictures.append(line.image)
            put([IDS["<|image_pad|>"]] * (rows * cols) + [IDS["<|vision_end|>"]])
        put(coded[2 * i] + middle)
        put(coded[2 * i + 1] + [IDS["<|im_end|>"]], learned=True)
        put(newline)
    return Sequence(
        np.array(ids),
        np.array(answer),
        np.array(weight, np.float32),
        tuple(places),
        tuple(pictures),
    )


def positions(seq: Sequence) -> np.ndarray:
    """M-RoPE positions (time, row, column) of every token -> int64 [3, N]."""
    out = np.zeros((3, len(seq.ids)), np.int64)
    at = now = 0
    for start, rows, cols in seq.grids:
        out[:, at:start] = np.arange(now, now + start - at)
        now += start - at
        end = start + rows * cols
        y, x = np.divmod(np.arange(rows * cols), cols)
        out[:, start:end] = np.stack((np.zeros_like(y), y, x)) + now
        now, at = now + max(rows, cols), end
    out[:, at:] = np.arange(now, now + len(seq.ids) - at)
    return out


def forward(language, embeds: Tensor, where: Tensor) -> Tensor:
    """Embeddings [B, N, C] at positions -> normed hidden states [B, N, C].

    Positions are [3, B, N] for a Qwen2.5-VL (M-RoPE), [B, N] for a plain Qwen2.
    """
    config = language.config
    cos, sin = (t[:, None] for t in language.rotary_emb(embeds, where))  # [B, 1, N, head]
    x = embeds
    batch, length, width = x.shape
    head = width // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    causal = torch.full((length, length), float("-inf")).triu(1)
    for layer in language.layers:
        a, y = layer.self_attn, layer.input_layernorm(x)
        q, k, v = (p(y).view(batch, length, -1, head).transpose(1, 2) for p in
                   (a.q_proj, a.k_proj, a.v_proj))  # fmt: skip
        q = ((q * cos + rotate_half(q) * sin) * head**-0.5).to(v.dtype)
        k = (k * cos + rotate_half(k) * sin).to(v.dtype)
        # The heads of a group share keys: fold them into the rows.
        q = q.reshape(batch, -1, group * length, head)
        scores = (q @ k.transpose(-1, -2)).view(batch, -1, length, length)
        mixed = (scores + causal.to(scores.dtype)).softmax(-1).to(v.dtype)
        mixed = mixed.view(batch, -1, group * length, length) @ v
        mixed = mixed.view(batch, -1, length, head).transpose(1, 2).reshape(batch, length, width)
        x = x + a.o_proj(mixed)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return language.norm(x)


def loss_of(
    language, sequences: list[Sequence], features: list[list[Tensor]], plain: bool = False
) -> tuple[Tensor, int]:
    """Weighted mean loss of the answers' tokens, and their number.

    `features[i][j]` are the tokens [cells, C] of the j-th image shown in dialogue i. `plain`: one
    position per token, image tokens included.
    """
    length = max(len(s.ids) for s in sequences)
    ids = torch.zeros(len(sequences), length, dtype=torch.long)
    learned = torch.zeros(len(sequences), length, dtype=torch.bool)
    weight = torch.zeros(len(sequences), length)
    where = torch.zeros(3, len(sequences), length, dtype=torch.long)
    for i, s in enumerate(sequences):
        n = len(s.ids)
        ids[i, :n] = torch.from_numpy(s.ids)
        learned[i, :n] = torch.from_numpy(s.answer)
        weight[i, :n] = torch.from_numpy(s.weight)
        where[:, i, :n] = torch.arange(n) if plain else torch.from_numpy(positions(s))
    embeds = language.embed_tokens(ids)
    pads = (ids == IDS["<|image_pad|>"])[..., None]
    if pads.any():
        flat = torch.cat([f for shown in features for f in shown])
        embeds = embeds.masked_scatter(pads, flat.to(embeds.dtype))
    hidden = forward(language, embeds, where[0] if plain else where)
    picked = hidden[:, :-1][learned[:, 1:]]
    logits = nn.functional.linear(picked, language.embed_tokens.weight)
    want = ids[:, 1:][learned[:, 1:]]
    losses = nn.functional.cross_entropy(logits.float(), want, reduction="none")
    counts = weight[:, 1:][learned[:, 1:]]
    return (losses * counts).sum() / counts.sum(), len(want)
