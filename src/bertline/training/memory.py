"""Memory that runs out, a GPU's or the machine's: one line that says what to lower."""

from __future__ import annotations

from typing import Literal

import torch

from bertline.console import BertlineError

ERRORS = (MemoryError, OSError, RuntimeError)  # by which Python, the system and PyTorch report it
# What PyTorch, and the libraries below it, say when an allocation fails without an error of its own type.
OF_GPU = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
OF_MACHINE = ("can't allocate memory", "std::bad_alloc", "Cannot allocate memory")


def which_memory_ran_out(error: Exception) -> Literal["GPU", "machine"] | None:
    """Return whose memory an error says to be too small; None for another error."""
    if isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in OF_GPU):
        return "GPU"
    if isinstance(error, MemoryError) or any(words in str(error) for words in OF_MACHINE):
        return "machine"
    return None


def raise_if_memory_ran_out(error: Exception, micro_batch_tokens: int | str, advice: str) -> None:
    """Raise BertlineError if `error`, one of `ERRORS`, says that memory ran out; otherwise return.

    Args:
        error: what was caught.
        micro_batch_tokens: a number, or auto.
        advice: what else to change if a GPU's memory is too small.
    """
    whose = which_memory_ran_out(error)
    lower = f"lower micro_batch_tokens (now {micro_batch_tokens}), give --activation-checkpointing"
    if whose == "GPU":
        raise BertlineError(f"the GPU's memory is too small: {lower}, or {advice}") from None
    if whose == "machine":
        where = "the memory of this machine, or of the job,"
        raise BertlineError(f"{where} is too small: {lower}, or raise mem_mb") from None
