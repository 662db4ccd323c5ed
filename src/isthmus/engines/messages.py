"""Messages between the processes of one run: a small head, and tensors in memory both can see.

These processes are one program; nothing here is ever written to a file or sent to another machine.
"""

import io
import mmap
import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNED = 64  # bytes: tensors begin where torch would have put them
ROOM = 1 << 30  # bytes of addresses; memory is taken only where something is written


class CannotSend(Exception):  # noqa: N818 - it is no error
    """Says that something in a message, a function say, cannot be named to another process."""


class Letter(NamedTuple):
    """A message: its head, and where each of its tensors lies, or the tensor itself."""

    head: bytes
    parts: list[tuple[int, int] | bytes]  # (offset, bytes) in the arena


def arena() -> mmap.mmap:
    """Makes room that processes forked from this one share."""
    return mmap.mmap(-1, ROOM)


def write(message: Any, known: Mapping[int, str], room: mmap.mmap | None) -> Letter:
    """Writes a message; what both sides know, by the object's id, is only named.

    A tensor for which there is no room travels in the letter itself.
    """
    buffers: list[pickle.PickleBuffer] = []
    head = io.BytesIO()
    try:
        _Writer(head, known, buffers).dump(message)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise CannotSend(str(error)) from None
    parts: list[tuple[int, int] | bytes] = []
    end = 0
    for buffer in buffers:
        raw = buffer.raw()
        if room is not None and end + raw.nbytes <= len(room):
            room[end : end + raw.nbytes] = raw
            parts.append((end, raw.nbytes))
            end += -(-raw.nbytes // ALIGNED) * ALIGNED
        else:
            parts.append(raw.tobytes())
    return Letter(head.getvalue(), parts)


def read(letter: Letter, known: Mapping[str, Any], room: mmap.mmap | None, keep: bool) -> Any:
    """Reads a message; unless they are to be kept, its tensors live until the next one comes."""
    buffers = []
    for part in letter.parts:
        if isinstance(part, bytes):
            buffers.append(memoryview(bytearray(part)))
        else:
            assert room is not None
            offset, size = part
            view = memoryview(room)[offset : offset + size]
            buffers.append(memoryview(bytearray(view)) if keep else view)
    return _Reader(io.BytesIO(letter.head), known, buffers).load()


class _Writer(pickle.Pickler):
    def __init__(
        self, file: io.BytesIO, known: Mapping[int, str], buffers: list[pickle.PickleBuffer]
    ):
        pickle.Pickler.__init__(self, file, protocol=5, buffer_callback=buffers.append)
        self._known = known

    def persistent_id(self, thing: Any) -> str | None:
        return self._known.get(id(thing))

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return tensor, (np.ascontiguousarray(thing.detach().numpy()), thing.shape)
        return NotImplemented


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, known: Mapping[str, Any], buffers: list[memoryview]):
        pickle.Unpickler.__init__(self, file, buffers=buffers)
        self._known = known

    def persistent_load(self, name: Any) -> Any:
        return self._known[name]


def tensor(array: NDArray[Any], shape: tuple[int, ...]) -> Tensor:
    """Makes a tensor of an array, without copying."""
    made = torch.from_numpy(array)
    return made if array.shape == shape else made.view(shape)  # a number was given an axis
