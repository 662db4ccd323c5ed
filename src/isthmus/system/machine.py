"""What the machine offers: cores and memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from isthmus.errors import IsthmusError

TOO_LARGE = ("allocate memory", "Storage size calculation overflowed")  # as torch says it


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int:
    """Return the bytes of memory that are free."""
    return int(psutil.virtual_memory().available)


def refuse_lack_of_memory(what: str, wanted: int, advice: str) -> None:
    """Refuse what needs more bytes than are free."""
    free = free_memory()
    if wanted > free:
        raise IsthmusError(
            f"{what} about {wanted / 1e9:,.4g} GB of memory, {free / 1e9:,.4g} GB are free; "
            f"{advice}"
        )


@contextmanager
def explain_lack_of_memory() -> Iterator[None]:
    """Turn an error about memory, of numpy or torch, into one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in TOO_LARGE):
            raise
        raise IsthmusError("there is not enough memory; lower sizes or counts") from None
