"""From logits to what is copied to the host: the greedy choice and the most probable tokens."""

from __future__ import annotations

import numpy as np
import torch

from ..predictions import Predictions

LARGEST_ID = 1 << 24
"""Token ids travel as float32, which is exact below this."""

LOGITS_AT_ONCE = 1 << 26
"""Logits (tokens x vocabulary) held in float32 at one time: 256 MB."""

LARGE_VOCAB, BLOCK = 16_384, 64
"""From this vocabulary size on, the best tokens are searched by blocks of this many."""


def chunk_size(vocab_size: int) -> int:
    """For how many tokens logits are computed at once."""
    return max(1, LOGITS_AT_ONCE // vocab_size)


def pack(logits: torch.Tensor, top_k: int) -> torch.Tensor:
    """Logits [N, V] -> int64 [N, 1] for top_k 0, else float32 [N, 1 + 2k]: choice, ids, probabilities.

    The choice is the argmax of the float32 logits, exact ties decided as `generate()` decides them.
    """
    if top_k == 0:
        return logits.argmax(-1, keepdim=True)
    scores = logits.float()
    choice, ids = _best(scores, min(top_k, scores.shape[-1]))
    probabilities = scores.softmax(-1).gather(1, ids)
    return torch.cat([choice.float(), ids.float(), probabilities], dim=-1)


def _best(scores: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores [N, V] -> argmax [N, 1] and the ids of the k highest [N, k], best first.

    On a CPU with a large vocabulary, the maxima of blocks come first, in one vectorised read; then only the
    k best blocks are searched.
    """
    count, vocab = scores.shape
    if scores.device.type != "cpu" or vocab < LARGE_VOCAB or vocab % BLOCK or k > BLOCK:
        return scores.argmax(-1, keepdim=True), scores.topk(k, dim=-1).indices
    blocks = scores.view(count, vocab // BLOCK, BLOCK)
    highest = blocks.amax(-1)
    first = highest.argmax(-1)  # of equal maxima the first one, like argmax over all scores
    inside = blocks[torch.arange(count), first].argmax(-1)
    best = highest.topk(k, dim=-1).indices
    picked = blocks.gather(1, best[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    index = picked.topk(k, dim=-1).indices
    ids = best.gather(1, index // BLOCK) * BLOCK + index % BLOCK
    return (first * BLOCK + inside)[:, None], ids


def unpack(packed: torch.Tensor) -> Predictions:
    """One copy to the host, then Predictions whose `top_ids[:, 0]` equals `choice` everywhere."""
    table = packed.cpu().numpy()
    choice = table[:, 0].astype(np.int64)
    k = (table.shape[1] - 1) // 2
    ids = table[:, 1 : 1 + k].astype(np.int64)
    probs = np.ascontiguousarray(table[:, 1 + k :], dtype=np.float32)
    if k:
        for node in np.flatnonzero(ids[:, 0] != choice):  # exact ties that top-k orders differently
            found = np.flatnonzero(ids[node] == choice[node])
            rank = int(found[0]) if len(found) else k - 1
            ids[node, 1 : rank + 1] = ids[node, :rank].copy()
            ids[node, 0] = choice[node]
    return Predictions(choice=choice, top_ids=ids, top_probs=probs)
