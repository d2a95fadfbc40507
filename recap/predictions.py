"""What the target predicts after each packed token: the record that targets hand to drafters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Predictions:
    """The target's predictions after each of N packed tokens, on the host.

    choice:    int64 [N], the greedy next token (argmax of the logits).
    top_ids:   int64 [N, k], the k most probable next tokens, best first; k may be 0.
    top_probs: float32 [N, k], their probabilities over the FULL vocabulary.
    """

    choice: np.ndarray
    top_ids: np.ndarray
    top_probs: np.ndarray

    def __len__(self) -> int:
        return len(self.choice)
