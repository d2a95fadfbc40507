"""One packed pass with every shape fixed, so that a GPU can run it as a captured graph.

For cost work: it stands at one place of one conversation. Its predictions are those of `Target.verify`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from ..drafters.base import Predictions
from ..targets import readout
from ..targets.base import KVState
from ..targets.common import TransformersTarget


class _FixedLayer(CacheLayerMixin):
    """Keys and values [1, H, length + rows, D]; every pass writes the last `rows` of them."""

    is_sliding = False
    is_croppable = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, rows: int) -> None:
        super().__init__()
        self.length = keys.shape[2]
        shape = (*keys.shape[:2], self.length + rows, keys.shape[3])
        self.keys, self.values = keys.new_zeros(shape), values.new_zeros(shape)
        self.keys[:, :, : self.length] = keys
        self.values[:, :, : self.length] = values
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocated already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.keys[:, :, self.length :] = key_states
        self.values[:, :, self.length :] = value_states
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.keys.shape[2], 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    def reset(self) -> None:
        """Nothing to forget: the next pass overwrites."""


class FixedPass:
    """A pass of a given tree behind a prefilled state. tokens, depths [N]; mask bool [N, N]."""

    def __init__(
        self,
        target: TransformersTarget,
        state: KVState,
        tokens: list[int],
        depths: list[int],
        mask: np.ndarray,
        *,
        top_k: int,
    ) -> None:
        self.target, self.top_k = target, top_k
        device = target.model.device
        with torch.inference_mode():
            layers = [
                _FixedLayer(keys[:, :, : state.length], values[:, :, : state.length], len(tokens))
                for keys, values in state.cache._views
            ]
            self._inputs = {
                "input_ids": torch.tensor([tokens], device=device),
                "position_ids": target._positions(
                    state, torch.tensor(depths, device=device)
                ).clone(),
                "attention_mask": target._masks.tree(mask, np.asarray(depths), state.length),
                "cache": Cache(layers=layers),
                "use_cache": True,
            }

    def _forward(self) -> torch.Tensor:
        hidden = self.target._language(**self._inputs).last_hidden_state
        return readout.pack(self.target._head(hidden[0]), self.top_k)

    @torch.inference_mode()
    def run(self) -> Predictions:
        """The pass, call by call."""
        return readout.unpack(self._forward())

    @torch.inference_mode()
    def capture(self) -> Callable[[], Predictions]:
        """The pass as one CUDA graph -> what replays it. Raises RuntimeError without CUDA."""
        if self.target.model.device.type != "cuda":
            raise RuntimeError("Only a CUDA device captures graphs.")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # kernels are chosen and workspaces allocated before the capture
                self._forward()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            packed = self._forward()

        def replay() -> Predictions:
            graph.replay()
            return readout.unpack(packed)

        return replay
