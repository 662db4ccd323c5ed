"""Messages between the processes of one run: a small head, and tensors in memory both can see.

These processes are one program; nothing here is ever written to a file. To another machine it goes
as Ray's own messages do, between nodes that trust each other. A head holds names, plain values and
where tensors lie; a function that has no name that others could find is refused.
"""

import io
import mmap
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT_BYTES = 64  # tensors begin where torch would have put them
SHARED_BYTES = 1 << 30  # of addresses; memory is taken only where something is written


class CannotSend(Exception):  # noqa: N818 - the caller computes here instead
    """Something in a message, such as a function, cannot be named to another process."""


class Message(NamedTuple):
    """A pickled head, and where each of its tensors lies, or the memory of the tensor itself."""

    head: bytes
    parts: list[tuple[int, int] | NDArray[np.uint8]]  # (offset, bytes) in shared memory


def allocate_shared() -> mmap.mmap:
    """Allocate memory that processes forked from this one share."""
    return mmap.mmap(-1, SHARED_BYTES)


def write(
    value: Any, known: Mapping[int, str], memory: mmap.mmap | None = None, by_file: bool = False
) -> Message:
    """Write a value as a message; objects that both sides have are named only, by id.

    A tensor for which the shared memory has no room travels in the message itself. With `by_file`,
    an array that is mapped from a file is named by it, for others on this machine.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = io.BytesIO()
    try:
        _Writer(head, known, buffers, by_file).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CannotSend(str(error)) from None
    parts: list[tuple[int, int] | NDArray[np.uint8]] = []
    end = 0
    for raw in (buffer.raw() for buffer in buffers):
        if memory is not None and end + raw.nbytes <= len(memory):
            memory[end : end + raw.nbytes] = raw
            parts.append((end, raw.nbytes))
            end += -(-raw.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        else:
            parts.append(np.frombuffer(raw, np.uint8))
    return Message(head.getvalue(), parts)


def read(
    message: Message, known: Mapping[str, Any], memory: mmap.mmap | None = None, keep: bool = True
) -> Any:
    """Read a message's value.

    Without `keep`, its tensors lie where the message does: they are valid until the next one in
    shared memory, and cannot be written in memory of Ray's.
    """
    buffers = []
    for part in message.parts:
        if isinstance(part, tuple):
            assert memory is not None
            part = np.frombuffer(memory, np.uint8, part[1], part[0])
        buffers.append(_copy(part) if keep else part)
    return _Reader(io.BytesIO(message.head), known, buffers).load()


def _copy(part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    own: NDArray[np.uint8] = torch.empty(part.nbytes, dtype=torch.uint8).numpy()  # aligned
    own[:] = part
    return own


class _Writer(pickle.Pickler):
    def __init__(
        self,
        file: io.BytesIO,
        known: Mapping[int, str],
        buffers: list[pickle.PickleBuffer],
        by_file: bool,
    ):
        pickle.Pickler.__init__(self, file, protocol=5, buffer_callback=buffers.append)
        self._known = known
        self._by_file = by_file

    def persistent_id(self, thing: Any) -> str | None:
        return self._known.get(id(thing))

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return make_tensor, (np.ascontiguousarray(thing.detach().numpy()), thing.shape)
        if isinstance(thing, np.memmap):
            whole = isinstance(thing.base, mmap.mmap) and thing.filename is not None
            if self._by_file and whole:
                place = str(thing.filename), thing.dtype, "r", thing.offset, thing.shape
                return np.memmap, place
            return np.asarray, (np.asarray(thing),)
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: Mapping[str, Any], buffers: Iterable[Any]):
        pickle.Unpickler.__init__(self, file, buffers=buffers)
        self._known = known

    def persistent_load(self, name: Any) -> Any:
        return self._known[name]


def make_tensor(array: NDArray[Any], shape: tuple[int, ...]) -> Tensor:
    """Make a tensor of an array, without copying."""
    tensor = torch.from_numpy(array)
    return tensor if array.shape == shape else tensor.view(shape)  # a number was given an axis
