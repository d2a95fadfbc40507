"""From logits to what travels: the greedy choice and the most probable tokens, in one copy."""

from __future__ import annotations

import numpy as np
import torch

from ..predictions import Predictions

LARGEST_ID = 1 << 24
"""Token ids travel as float32, which is exact below this."""

LOGITS_AT_ONCE = 1 << 26
"""Logits (rows x vocabulary) held in float32 at one time: 256 MB."""

LARGE_VOCAB, BLOCK = 16_384, 64
"""From so many tokens on, blocks of so many are searched for the best."""


def chunk_rows(vocab_size: int) -> int:
    """How many rows of logits are made at once."""
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

    On a CPU and with a large vocabulary the maxima of blocks are taken first, one vectorised read; only the k best
    blocks are looked into.
    """
    rows, vocab = scores.shape
    if scores.device.type != "cpu" or vocab < LARGE_VOCAB or vocab % BLOCK or k > BLOCK:
        return scores.argmax(-1, keepdim=True), scores.topk(k, dim=-1).indices
    blocks = scores.view(rows, vocab // BLOCK, BLOCK)
    highest = blocks.amax(-1)
    first = highest.argmax(-1)  # of equal maxima the first, as argmax over the row has it
    inside = blocks[torch.arange(rows), first].argmax(-1)
    among = highest.topk(k, dim=-1).indices
    picked = blocks.gather(1, among[:, :, None].expand(-1, -1, BLOCK)).flatten(1)
    places = picked.topk(k, dim=-1).indices
    ids = among.gather(1, places // BLOCK) * BLOCK + places % BLOCK
    return (first * BLOCK + inside)[:, None], ids


def unpack(packed: torch.Tensor) -> Predictions:
    """One copy to the host, then Predictions whose `top_ids[:, 0]` equals `choice` in every row."""
    table = packed.cpu().numpy()
    choice = table[:, 0].astype(np.int64)
    k = (table.shape[1] - 1) // 2
    ids = table[:, 1 : 1 + k].astype(np.int64)
    probs = np.ascontiguousarray(table[:, 1 + k :], dtype=np.float32)
    if k:
        for row in np.flatnonzero(ids[:, 0] != choice):  # an exact tie that top-k ordered otherwise
            place = np.flatnonzero(ids[row] == choice[row])
            at = int(place[0]) if len(place) else k - 1
            ids[row, 1 : at + 1] = ids[row, :at].copy()
            ids[row, 0] = choice[row]
    return Predictions(choice=choice, top_ids=ids, top_probs=probs)
