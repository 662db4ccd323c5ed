"""Pickles: what is understood, and that nothing in one is ever run."""

import builtins
import os
import pickle
import struct
import subprocess
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written import batch, python2

from isthmus.data.named import unpickle
from isthmus.data.named.unpickle import read_table
from isthmus.errors import IsthmusError

NUMBERS = np.arange(12, dtype=np.uint8).reshape(3, 4)


@pytest.mark.parametrize("protocol", [0, 3, 4], ids=["python 2", "3", "4"])
def test_a_table_comes_back_as_it_was(protocol: int) -> None:
    given = batch(3) | {"mixed": [1, -2, 70_000, 2**40, 0.5, None, True, ("a", ())], "none": []}
    data = pickle.dumps(given, protocol) if protocol else python2(given)
    found = read_table(data, "here")
    assert np.array_equal(found.pop("data"), given.pop("data"))
    assert found == given


@pytest.mark.parametrize("protocol", [3, 4])
def test_bytes_are_text_as_in_python_2(protocol: int) -> None:
    found = read_table(pickle.dumps({b"names": [b"cat", "dog"]}, protocol), "here")
    assert found == {"names": ["cat", "dog"]}


@pytest.mark.parametrize("kind", ["u1", "<i8", ">i4", "<f4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_keep_their_type_and_order(kind: str, order: Any) -> None:
    array = np.asarray(NUMBERS.astype(kind), order=order)
    found = read_table(pickle.dumps({"a": array}, 4), "here")["a"]
    assert np.array_equal(found, array)
    assert found.dtype == array.dtype


class Calls:
    """Is pickled as a call: what a hostile file is made of."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


MARKER = "it-ran"
DANGEROUS: dict[str, Calls] = {
    "system": Calls(os.system, f"touch {MARKER}"),
    "eval": Calls(eval, f"open({MARKER!r}, 'w')"),
    "exec": Calls(exec, f"open({MARKER!r}, 'w')"),
    "open": Calls(open, MARKER, "w"),
    "getattr": Calls(getattr, "", "join"),
    "import": Calls(builtins.__import__, "antigravity"),
    "Popen": Calls(subprocess.Popen, ["touch", MARKER]),
    "numpy.load": Calls(np.load, "pickle.npy", None, True),
    "numpy.memmap": Calls(np.memmap, MARKER, "u1", "w+", 0, (4,)),
    "numpy.frompyfunc": Calls(np.frompyfunc, len, 1, 1),
    "numpy.genfromtxt": Calls(np.genfromtxt, "/etc/passwd"),
    "numpy.save": Calls(np.save, MARKER, NUMBERS),
    "bytearray": Calls(bytearray, 2**40),
    "complex": Calls(complex, 1.0, 2.0),
}


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", DANGEROUS)
def test_whatever_a_file_asks_for_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"data": DANGEROUS[name]}, protocol)
    with pytest.raises(IsthmusError, match=r"batch asks for '.*'; expected numbers.*") as error:
        read_table(data, "batch")
    asked = str(error.value).split("'")[1]
    assert asked.split(".")[-1] == DANGEROUS[name].call[0].__name__
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def raw(*pieces: bytes) -> bytes:
    return b"\x80\x02" + b"".join(pieces) + b"."


RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
NDARRAY, DTYPE = b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"
KEY = b"}U\x01d"  # {"d": ...
BLANK = RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01b\x87R"
U1 = DTYPE + b"U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def with_array(state: bytes, blank: bytes = BLANK) -> bytes:
    return raw(KEY, blank, state, b"bs")


def test_the_hand_written_array_is_one() -> None:
    found = read_table(with_array(b"(K\x01K\x02K\x02\x86" + U1 + b"\x89U\x04abcdt"), "here")
    assert found["d"].tolist() == [[97, 98], [99, 100]]


OBJECTS = U1.replace(b"U\x02u1", b"U\x02O8")
TRICKS = {
    "objects": (with_array(b"(K\x01K\x01\x85" + OBJECTS + b"\x89](K\x01et"), "array of type 'O8'"),
    "records": (
        with_array(b"(K\x01K\x01\x85" + U1.replace(b"U\x02u1", b"U\x06u1, O8") + b"\x89U\x01at"),
        "array of type 'u1, O8'",
    ),
    "huge shape": (
        with_array(b"(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86" + U1 + b"\x89U\x01at"),
        "has 1 bytes for an array of 2147483647 x 2147483647",
    ),
    "negative shape": (
        with_array(b"(K\x01J\xff\xff\xff\xff\x85" + U1 + b"\x89U\x01at"),
        "impossible shape",
    ),
    "huge blank": (
        raw(KEY, RECONSTRUCT, NDARRAY, b"J\xff\xff\xff\x7f\x85U\x01b\x87Rs"),
        "cannot be read",
    ),
    "no state": (raw(KEY, BLANK, b"s"), "cannot be read"),
    "a type as an array": (raw(KEY, U1, b"s"), "cannot be read"),
    "a state for a name": (raw(KEY, NDARRAY, b"}U\x08__init__K\x01sbs"), "a Name where a Made"),
    "a state for a list": (raw(KEY, b"]}b", b"s"), "a list where a Made"),
    "a list called": (raw(KEY, b"])Rs"), "cannot be read"),
    "new object": (raw(KEY, NDARRAY, b")\x81s"), "asks for 'NEWOBJ'"),
    "instance": (raw(KEY, b"(U\x02lsios\nsystem\ns"), "asks for 'INST os system'"),
    "object": (raw(KEY, b"(", NDARRAY, b"os"), "asks for 'OBJ'"),
    "extension": (raw(KEY, b"\x82\x01s"), "asks for 'EXT1'"),
    "persistent": (raw(KEY, b"Pelsewhere\ns"), "asks for 'PERSID elsewhere'"),
    "a name in two lines": (raw(KEY, b"U\x04os\nxU\x06system\x93s"), r"'os\\nx.system'"),
    "a key that is a knot": (raw(b"}", b")" + b"2\x86" * 3, b"K\x01s"), "asks for 'DUP'"),
    "a key that is a tuple": (raw(b"})K\x01s"), "neither text nor a number"),
    "two values": (raw(b"}}"), "cannot be read"),
    "a list": (raw(b"]"), "holds a list; expected a table"),
    "an empty stack": (raw(b"s"), "its stack is empty"),
    "no mark": (raw(b"}u"), "cannot be read"),
    "an unknown place": (raw(b"h\x07"), "cannot be read"),
    "an unknown instruction": (raw(b"\xff"), "cannot be read"),
    "nothing": (b"", "cannot be read"),
    "text": (b"<html>not found</html>", "cannot be read"),
}


@pytest.mark.parametrize("name", TRICKS)
def test_tricks_with_what_is_admitted_are_refused(name: str) -> None:
    data, message = TRICKS[name]
    with pytest.raises(IsthmusError, match=message) as error:
        read_table(data, "batch")
    assert str(error.value).startswith("batch ")
    assert "\n" not in str(error.value)


def test_every_truncation_is_refused() -> None:
    """The array has 3 x 4 bytes, so that cuts fall into every kind of instruction."""
    for whole in (python2({"data": NUMBERS, "n": [1, 2]}), pickle.dumps({"d": NUMBERS}, 4)):
        for length in range(len(whole)):
            with pytest.raises(IsthmusError, match="batch cannot be read"):
                read_table(whole[:length], "batch")


def test_every_flipped_byte_is_refused_or_harmless() -> None:
    """Nothing but an IsthmusError comes out, and what comes back is numbers, text and arrays."""
    whole = bytearray(python2({"data": NUMBERS, "n": [1, 2]}))
    for place in range(len(whole)):
        for bit in range(8):
            whole[place] ^= 1 << bit
            try:
                found = read_table(bytes(whole), "batch")
            except IsthmusError:
                pass
            else:
                assert all(isinstance(v, np.ndarray | list | str | int) for v in found.values())
            whole[place] ^= 1 << bit


CLAIMS = {
    "a place far away": raw(b"}r\xff\xff\xff\x7f"),
    "text of 2 GiB": raw(b"}T\xff\xff\xff\x7f"),
    "bytes of 2^60": raw(b"}\x8e" + struct.pack("<Q", 2**60)),
    "an array of 2^31": TRICKS["huge blank"][0],
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_take_no_memory(name: str) -> None:
    tracemalloc.start()
    try:
        with suppress(IsthmusError):
            read_table(CLAIMS[name], "batch")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_knot_of_lists_costs_no_more_than_its_text() -> None:
    """Each list holds the one before it twice: 2^60 paths lead to the innermost."""
    knot: list[Any] = []
    for _ in range(60):
        knot = [knot, knot]
    assert list(read_table(pickle.dumps({"knot": knot}, 4), "batch")) == ["knot"]


def test_knots_in_every_place_are_refused_at_once() -> None:
    """Each of these would be written out, compared or hashed along its 2^60 paths."""
    knot = b"]" + b"".join(b"q\x01]h\x01ah\x01a" for _ in range(60))
    for data in (
        raw(KEY, knot, knot, b"\x93s"),
        raw(b"}", knot, b"\x85K\x01s"),
        with_array(b"(K\x01" + knot + U1 + b"\x89U\x01at"),
        with_array(b"(K\x01K\x01\x85" + U1 + b"\x89" + knot + b"t"),
        with_array(b"(K\x01K\x01\x85" + U1.replace(b"U\x02u1", knot) + b"\x89U\x01at"),
        with_array(b"(K\x01K\x01\x85" + U1.replace(b"U\x01|", knot) + b"\x89U\x01at"),
        with_array(b"(" + knot * 5 + b"t"),
    ):
        with pytest.raises(IsthmusError, match="batch cannot be read"):
            read_table(data, "batch")


def test_a_file_has_no_more_instructions_than_a_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dictionary, 101 empty lists and a stop are more than a hundred."""
    monkeypatch.setattr(unpickle, "MOST", 100)
    with pytest.raises(IsthmusError, match="more than 100 instructions"):
        read_table(raw(b"}", b"]" * 101), "batch")


def test_the_reference_reads_the_same() -> None:
    """What the standard library makes of a file of trusted origin is what is read here."""
    data = python2(batch(5))
    assert b"cnumpy.core.multiarray" in data
    reference = pickle.loads(data, encoding="latin-1")  # noqa: S301
    found = read_table(data, "batch")
    assert np.array_equal(found.pop("data"), reference.pop("data"))
    assert found == reference
