"""Fixtures for several test files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from . import tiny


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Callable[..., Path]:
    """A tiny checkpoint's directory by `tiny.build`'s arguments, written once per session. Do not change it."""
    built: dict[tuple, Path] = {}

    def find(kind: str, *, seed: int = 0, **changes) -> Path:
        key = (kind, seed, *sorted(changes.items()))
        if key not in built:
            place = tmp_path_factory.mktemp(kind.replace(" ", "-"))
            built[key] = tiny.build(kind, place, seed=seed, **changes)
        return built[key]

    return find


@pytest.fixture(params=["cpu", "cuda"])
def device(request) -> str:
    """Each device that computes here."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    return request.param
