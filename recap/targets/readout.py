"""From logits to what travels: the greedy choice and the most probable tokens, in one copy."""

from __future__ import annotations

import numpy as np
import torch

from ..drafters.base import Predictions

LARGEST_ID = 1 << 24
"""Token ids travel as float32, which is exact below this."""

LOGITS_AT_ONCE = 1 << 26
"""Logits (rows x vocabulary) held in float32 at one time: 256 MB."""


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
    choice = scores.argmax(-1, keepdim=True)
    values, ids = scores.topk(min(top_k, scores.shape[-1]), dim=-1)
    values = (values - scores.logsumexp(-1, keepdim=True)).exp_()
    return torch.cat([choice.float(), ids.float(), values], dim=-1)


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
