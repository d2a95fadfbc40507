"""What may fail in one request without harm to the others: the device's memory runs out."""

from __future__ import annotations

import gc
import sys

MARKS = (
    "out of memory",
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # what cuBLAS reports where its handle found no memory
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)


class DeviceFullError(ValueError):
    """The device's memory was full; the message is one sentence for a person."""

    def __init__(self) -> None:
        super().__init__(
            "The device's memory was full: use a smaller image, ask for a shorter answer, or try again "
            "in a moment."
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or the host ran out of memory.

    >>> is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling ..."))
    True
    >>> is_out_of_memory(RuntimeError("shapes do not match")), is_out_of_memory(MemoryError())
    (False, True)
    """
    if isinstance(error, (MemoryError, DeviceFullError)) or (
        type(error).__name__ == "OutOfMemoryError"
    ):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in MARKS)


def release() -> None:
    """Give memory that nothing uses back to the device. Call it once the error is gone: its traceback
    holds the tensors of the pass that failed."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
