"""Values that nobody should have given, and ways to damage files."""

import random
import string
from pathlib import Path

NUMBERS = [
    "0",
    "-1",
    "-0",
    "1e400",
    "-1e400",
    "1e300",
    "1e-320",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "0.5",
    "1.0",
    "1_000",
    "0x10",
    "0o7",
    "0b1",
    "9" * 20,
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 5000,
    "1e5",
    "10**9",
    "2147483648",
    "9223372036854775808",
    "18446744073709551616",
    "1000000000",
    "٣",
    "１２",
    "+1",
    " 1 ",
]
WORDS = [
    "",
    " ",
    "\t",
    "\n",
    "\u0001",
    "\u0007\u001b[31m",
    "\u2028",
    "é",
    "日本",
    "🜁",
    "\ud7ff",
    "a" * 300,
    "a" * 5000,
    "..",
    ".",
    "/",
    "/dev/zero",
    "/dev/null",
    "/proc",
    "/nowhere/at/all",
    "~",
    "$HOME",
    "*",
    "true",
    "false",
    "none",
    "null",
    "None",
    "self",
    "name",
    "[]",
    "{}",
    "[1, 2]",
    "{a = 1}",
    "''",
    '""',
    '"\\u0001"',
    "'a",
    '"',
    "=",
    "==",
    ",",
    ",,",
    ";",
    "#",
    "1,2",
    "1;2",
    "a=b",
    "[[1]]",
    "[" * 2000,
    "[" * 2000 + "]" * 2000,
    "{a=" * 500 + "1" + "}" * 500,
    "1979-05-27",
    "07:32:00",
    "-",
    "--",
    "--help",
    "%s",
    "%n",
    "\\",
    "\\x00",
    "=1+1",
    "+1",
    "@a",
    "<script>",
    "&amp;",
    "0" * 1000,
]


def pick_value(rng: random.Random) -> str:
    """Pick a value: mostly a known nuisance, sometimes noise."""
    if rng.random() < 0.15:
        letters = string.printable + "éß日🜁\u200b\u202e\u0301"
        return "".join(rng.choices(letters, k=rng.choice([1, 3, 10, 80])))
    return rng.choice(NUMBERS if rng.random() < 0.5 else WORDS).replace("\0", "")


def damage(data: bytes, rng: random.Random) -> bytes:
    """Damage some bytes: flip, cut, double, zero or replace a piece of them."""
    if not data:
        return rng.randbytes(rng.choice([1, 10, 1000]))
    kind = rng.choice(["flip", "flips", "cut", "head", "double", "zero", "noise", "empty", "grow"])
    at = rng.randrange(len(data))
    size = min(len(data) - at, rng.choice([1, 4, 64, 1024]))
    piece = data[at : at + size]
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == "flips":
        changed = bytearray(data)
        for _ in range(max(1, len(data) // 200)):
            changed[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(changed)
    return {
        "cut": data[:at],
        "head": data[at:],
        "double": data[:at] + piece + piece + data[at + size :],
        "zero": data[:at] + bytes(size) + data[at + size :],
        "noise": data[:at] + rng.randbytes(size) + data[at + size :],
        "empty": b"",
        "grow": data + rng.randbytes(64),
    }[kind]


def damage_file(path: Path, rng: random.Random) -> None:
    """Damage a file where it lies, as `damage` does."""
    path.write_bytes(damage(path.read_bytes(), rng))


def swap_word(text: str, rng: random.Random) -> str:
    """Put a hostile value where a word, a number or a line of some text stood."""
    lines = text.split("\n")
    line = rng.randrange(len(lines))
    words = [word for word in lines[line].replace(",", " ").replace('"', " ").split() if word]
    if words and rng.random() < 0.8:
        lines[line] = lines[line].replace(rng.choice(words), pick_value(rng), 1)
    else:
        lines[line] = pick_value(rng)
    return "\n".join(lines)
