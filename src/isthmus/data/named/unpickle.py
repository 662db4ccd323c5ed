"""Reads a pickled table of numbers, text and arrays, and can do nothing else.

A pickle is a program. The library's reader runs it: it calls what the file names with what the file
gives, and sets aside what the file claims to need. Here the standard library only takes the program
apart (`pickletools`), and some harmless instructions are understood. Names are compared, never
looked up; nothing is called, so that there is nothing to trick; an array is a shape, a type of
number and as many bytes as they need, which have to be there. Everything else is refused by name.

This is enough for protocol 2 as Python 2 wrote it (strings are bytes there, and text here), and for
what Python 3 writes of the same things up to protocol 4.
"""

import pickletools
import re
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isthmus.data.file_errors import refuse_broken
from isthmus.errors import IsthmusError

MOST = 2_000_000  # instructions; a byte of a file may ask for a list, which takes 56
NUMBERS = re.compile(r"[|<>=]?[biuf][1248]")  # the types an array may have: no objects
ADMITTED = {
    "numpy.core.multiarray._reconstruct": "reconstruct",
    "numpy._core.multiarray._reconstruct": "reconstruct",  # numpy 2's name for it
    "numpy.ndarray": "ndarray",
    "numpy.dtype": "dtype",
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
CONTAINERS = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
NUMERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
TEXTS = {"SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE"}
BYTES = {"SHORT_BINBYTES", "BINBYTES"}
PUTS, GETS = {"BINPUT", "LONG_BINPUT"}, {"BINGET", "LONG_BINGET"}


class Name(NamedTuple):
    """A name that was admitted; it stands for nothing."""

    meaning: str


class Made:
    """What a name was applied to, and the state that came later."""

    def __init__(self, meaning: str, arguments: tuple[Any, ...]):
        self.meaning = meaning
        self.arguments = arguments
        self.state: Any = None


def read_table(data: bytes, where: str) -> dict[str, Any]:
    """Reads a pickled dictionary whose values are numbers, text, lists of them, or arrays.

    >>> read_table(bytes.fromhex("8002 7d 5506 6c6162656c73 5d 284b034b0465 73 2e"), "batch")
    {'labels': [3, 4]}
    """
    try:
        content = _Machine(where).run(data)
        if not isinstance(content, dict):
            raise IsthmusError(
                f"{where} holds a {type(content).__name__}; expected a table; get the file again"
            )
        return {
            str(key): _array(value, where) if isinstance(value, Made) else value
            for key, value in content.items()
        }
    except IsthmusError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise refuse_broken(where, error) from error


class _Machine:
    """A stack, the marks in it, and what was put aside."""

    def __init__(self, where: str):
        self.where = where
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if count > MOST:
                raise ValueError(f"more than {MOST:,} instructions")
            self._step(opcode.name, argument)
        (result,) = self.stack
        return result

    def _step(self, code: str, argument: Any) -> None:
        stack = self.stack
        if code in CONSTANTS:
            stack.append(CONSTANTS[code])
        elif code in NUMERALS or code in TEXTS:
            stack.append(argument)
        elif code in BYTES:
            stack.append(argument.decode("latin-1"))  # as Python 2's are read
        elif code in CONTAINERS:
            stack.append(CONTAINERS[code]())
        elif code in PUTS:
            self.memo[argument] = stack[-1]
        elif code == "MEMOIZE":
            self.memo[len(self.memo)] = stack[-1]
        elif code in GETS:
            stack.append(self.memo[argument])
        elif code == "MARK":
            self.marks.append(len(stack))
        elif code in TUPLES:
            stack.append(tuple(self._pop(TUPLES[code])))
        elif code == "TUPLE":
            stack.append(tuple(self._pop_marked()))
        elif code in ("APPEND", "APPENDS"):
            items = self._pop(1) if code == "APPEND" else self._pop_marked()
            self._top(list).extend(items)
        elif code in ("SETITEM", "SETITEMS"):
            items = self._pop(2) if code == "SETITEM" else self._pop_marked()
            self._update(items[::2], items[1::2])
        elif code in ("GLOBAL", "STACK_GLOBAL"):
            stack.append(self._admit(argument.split(" ") if argument else self._pop(2)))
        elif code == "REDUCE":
            name, arguments = self._pop(2)
            stack.append(Made(name.meaning, arguments))
        elif code == "BUILD":
            (state,) = self._pop(1)
            self._top(Made).state = state
        elif code not in ("PROTO", "FRAME", "STOP"):
            raise self._refuse(f"{code} {argument}" if isinstance(argument, str) else code)

    def _update(self, keys: list[Any], values: list[Any]) -> None:
        if not all(
            type(key) in (str, int) for key in keys
        ):  # hashing a knot of tuples takes for ever
            raise ValueError("a key that is neither text nor a number")
        self._top(dict).update(zip(keys, values, strict=True))

    def _pop(self, count: int) -> list[Any]:
        if len(self.stack) < count:
            raise ValueError("its stack is empty")
        taken = self.stack[-count:]
        del self.stack[-count:]
        return taken

    def _pop_marked(self) -> list[Any]:
        mark = self.marks.pop()
        taken = self.stack[mark:]
        del self.stack[mark:]
        return taken

    def _top(self, kind: type[Any]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise ValueError(f"a {type(self.stack[-1]).__name__} where a {kind.__name__} belongs")
        return self.stack[-1]

    def _admit(self, words: list[Any]) -> Name:
        name = ".".join(words)
        if name not in ADMITTED:
            raise self._refuse(name)
        return Name(ADMITTED[name])

    def _refuse(self, what: str) -> IsthmusError:
        return IsthmusError(
            f"{self.where} asks for {what[:80]!r}; expected numbers, text and arrays of numbers; "
            "nothing of it was run: get the file again"
        )


def _array(made: Made, where: str) -> NDArray[Any]:
    """Makes an array of its state: a version, shape, type, whether by columns, bytes."""
    _, shape, kind, by_columns, data = made.state
    (code, *_), (_, order, *_) = kind.arguments, kind.state
    if (made.meaning, kind.meaning) != ("reconstruct", "dtype"):
        raise ValueError("an array made of something else")
    if not NUMBERS.fullmatch(code):
        raise IsthmusError(
            f"{where} has an array of type {code[:80]!r}; expected numbers; get the file again"
        )
    if order not in ("<", ">", "|", "="):
        raise ValueError("numbers in no order of bytes")
    if len(shape) > 4 or not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise ValueError("an array of impossible shape")
    number, raw = np.dtype(code).newbyteorder(order), data.encode("latin-1")
    if prod(shape) * number.itemsize != len(raw):
        raise IsthmusError(
            f"{where} has {len(raw):,} bytes for an array of {' x '.join(str(n) for n in shape)}; "
            f"expected {number.itemsize} for each number; get the file again"
        )
    return np.frombuffer(raw, number).reshape(shape, order="F" if by_columns else "C")
