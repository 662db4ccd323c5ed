"""A message between server and site: a head of plain values, and tensors. Nothing in it is code.

4 bytes   the length of the head
head      JSON: a flat table of strings, integers, booleans and nulls
tensors   as isthmus.tree packs them
"""

import json
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from isthmus import tree
from isthmus.errors import IsthmusError
from isthmus_sites.forms import fits, measure_form

PROTOCOL = 1
VERSION = version("isthmus")
LONGEST_HEAD = 4096  # bytes
SLACK = 65536  # bytes that a message may have besides its tensors: head, shapes

Number = Annotated[int, Field(ge=0, lt=2**53)]
Name = Annotated[str, Field(pattern="^[0-9a-f]{0,32}$")]  # of a call or of a state
Version = Annotated[int, Field(ge=PROTOCOL, le=PROTOCOL)]


class MessageError(IsthmusError):
    """What is wrong with a message, for the log of the side that received it."""

    code = "message"  # of `REFUSALS`


class CallHead(NamedTuple):
    """What a server asks of a site."""

    run: str  # the digest of the experiment that was agreed to
    client: Number  # the site's number in the run, as the server has it
    function: str
    purpose: str
    t: Number
    turn: Number
    choice: Number | None
    call: Name  # names this call: the reply repeats it
    committed: Name  # the digest of its own state after the last completed round; empty: initial
    accepted: Name  # the digest of the state it starts from: a round may make several calls
    version: str  # of isthmus at the server; another version may compute other bits
    protocol: Version = PROTOCOL


class ReplyHead(NamedTuple):
    """What a site answers."""

    call: Name
    refused: str = ""  # a code of `REFUSALS`; empty: it did what was asked
    own: Name = ""  # the digest of its own state after this call; empty: it has none
    private: bool = False  # its figures may only be kept in sums with those of others
    protocol: Version = PROTOCOL


STRICT = ConfigDict(strict=True)
READERS: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind, config=STRICT) for kind in (CallHead, ReplyHead)
}


def write(head: CallHead | ReplyHead, tensors: Any = ()) -> bytes:
    """Return a message."""
    text = json.dumps(head._asdict()).encode()
    return len(text).to_bytes(4, "little") + text + tree.pack(tensors)


def read_head(message: bytes, kind: type[CallHead] | type[ReplyHead], largest: int) -> Any:
    """Return the head of a message with at most `largest` bytes of tensors."""
    if len(message) > largest + SLACK:
        raise MessageError(f"a message has {len(message):,} bytes; at most {largest:,} are allowed")
    length = int.from_bytes(message[:4], "little")
    if not 0 < length <= min(LONGEST_HEAD, len(message) - 4):
        raise MessageError(f"a message's head has {length:,} bytes, more than allowed or sent")
    try:
        return READERS[kind].validate_json(message[4 : 4 + length])
    except ValidationError as error:
        raise MessageError(f"a message has an invalid head: {error.errors()[0]['msg']}") from None


def read_tensors(message: bytes, form: Any) -> Any:
    """Return the tensors of a message that must have this form and finite numbers."""
    start = 4 + int.from_bytes(message[:4], "little")
    if len(message) - start > measure_form(form) + SLACK:
        raise MessageError("a message has more tensors than its function takes")
    try:
        tensors = tree.unpack(message[start:], like=form)
    except IsthmusError as error:
        raise MessageError(str(error)) from None
    if not fits(tensors, form) or not tree.finite(tensors):
        raise MessageError("a message has tensors of other shapes, or numbers that are not finite")
    return tensors
