"""A message between server and site: a head of plain values, and tensors. Nothing in it is code.

4 bytes   the length of the head
head      JSON: a flat table of texts, whole numbers, truth values and nothing
tensors   as isthmus.tree packs them
"""

import json
from importlib.metadata import version
from typing import Any, NamedTuple

from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus_sites.forms import fits, measure_form

PROTOCOL = 1
VERSION = version("isthmus")
LONGEST_HEAD = 4096  # bytes
LONGEST_NAME = 32  # hexadecimal digits of calls and states
SLACK = 65536  # bytes that a message may have besides its tensors: head, shapes
LARGEST_NUMBER = 2**53


class MessageError(IsthmusError):
    """Says what is wrong with a message, for the log of the side that got it."""


class CallHead(NamedTuple):
    """What a server asks of a site."""

    run: str  # the digest of what was agreed on
    client: int  # whom it takes the site for
    function: str
    purpose: str
    t: int
    turn: int
    choice: int | None
    call: str  # names this call: the reply repeats it
    committed: str  # the digest of its own state as of the last round that is done; empty: fresh
    accepted: str  # of the one that it begins with: a round may make several calls
    version: str  # of isthmus at the server; another one may compute other bits
    protocol: int = PROTOCOL


class ReplyHead(NamedTuple):
    """What a site answers."""

    call: str
    refused: str = ""  # one of `REFUSALS`; empty: it did as asked
    own: str = ""  # the digest of its own state after this call; empty: it has none
    private: bool = False  # what it measured may be kept in a sum with others' alone
    protocol: int = PROTOCOL


def write(head: CallHead | ReplyHead, tensors: Any = ()) -> bytes:
    """Writes a message."""
    text = json.dumps(head._asdict()).encode()
    return len(text).to_bytes(4, "little") + text + tree.pack(tensors)


def read_head(message: bytes, kind: type[CallHead] | type[ReplyHead], largest: int) -> Any:
    """Reads the head of a message of at most so many bytes of tensors; refuses any other."""
    if len(message) > largest + SLACK:
        raise MessageError(f"a message has {len(message):,} bytes; expected at most {largest:,}")
    length = int.from_bytes(message[:4], "little")
    if not 0 < length <= min(LONGEST_HEAD, len(message) - 4):
        raise MessageError(f"a message's head has {length:,} bytes; expected at most 4096")
    try:
        table = json.loads(message[4 : 4 + length])
    except (ValueError, RecursionError):
        raise MessageError("a message's head is not JSON; expected a table") from None
    wanted = kind.__annotations__
    if not isinstance(table, dict) or table.keys() != wanted.keys():
        raise MessageError(f"a message's head is not that of a {kind.__name__}")
    for name, value in table.items():
        if not _is(value, wanted[name]):
            raise MessageError(f"a message's head has no {name} of the kind that is expected")
    if table["protocol"] != PROTOCOL:
        raise MessageError(f"a message of protocol {table['protocol']}; expected {PROTOCOL}")
    return kind(**table)


def _is(value: Any, kind: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if value is None:
        return bool(kind == (int | None))
    if kind in (int, int | None):
        return type(value) is int and 0 <= value < LARGEST_NUMBER
    return isinstance(value, str)


def read_tensors(message: bytes, form: Any) -> Any:
    """Reads the tensors of a message, if they have this form and are numbers; else refuses."""
    start = 4 + int.from_bytes(message[:4], "little")
    if len(message) - start > measure_form(form) + SLACK:
        raise MessageError("a message has more tensors than its function takes")
    try:
        tensors = tree.unpack(message[start:], like=form)
    except IsthmusError as error:
        raise MessageError(str(error)) from None
    if not fits(tensors, form) or not tree.finite(tensors):
        raise MessageError("a message has tensors of other shapes, or not all of it are numbers")
    return tensors
