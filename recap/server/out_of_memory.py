"""What may fail in one request without harm to the others: the device's memory runs out."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DeviceFullError(ValueError):
    """The device's memory was full; the message is one sentence for a person."""


@contextmanager
def out_of_memory(undo: Callable[[], None]) -> Iterator[None]:
    """An out-of-memory error inside becomes a DeviceFullError, after `undo` and after freeing what can be.

    undo: lets go of what the request holds on the device. It is called once the error with its tensors is
    gone.
    """
    full = False
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        full = True
    if full:
        undo()
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise DeviceFullError(
            "The device's memory was full and this question was taken back: use a smaller image, ask "
            "for a shorter answer, or try again in a moment."
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch ran out of a device's memory."""
    return type(error).__name__ == "OutOfMemoryError"
