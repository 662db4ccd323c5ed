"""Expected messages: what the program says is kept in messages.toml, not in the tests.

`check(text)` compares with the entry of the running test. An entry is one line of the text, or
several; `<...>` in it stands for anything. `pytest --write-messages` rewrites the entries of the
tests that it ran.
"""

import platform
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from importlib.metadata import version
from itertools import product
from pathlib import Path

import pytest
import tomli_w

FILE = Path(__file__).parent / "messages.toml"
ANYTHING = "<...>"
LONG = 300
SENTENCE = re.compile(r"(?<=\.) (?=[^a-z])")
VARYING = [
    (re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]"), ""),
    (re.compile(rf"\b{re.escape(version('torch'))}(?![\w.])"), "<torch>"),
    (re.compile(rf"\b{re.escape(platform.python_version())}(?![\w.])"), "<python>"),
    (re.compile(rf"\bisthmus {re.escape(version('isthmus'))}\b"), "isthmus <version>"),
    (re.compile(re.escape(str(Path.cwd()))), "<cwd>"),
    (re.compile(r"\bnode \S+ \([0-9a-f]{6}\)"), "node <node>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<digest>"),
    (re.compile(r"\b(process|PID) \d+"), r"\1 <pid>"),
    (re.compile(r"\b(127\.0\.0\.1|localhost|port)([: ])\d+"), r"\1\2<port>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ][\d:.]+([+-]\d\d:\d\d)?)?"), "<date>"),
    (re.compile(r"\b\d+:\d\d(:\d\d)?\b"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? (s|seconds)\b"), r"<n> \2"),
    (re.compile(r"(<tmps>/\w+?)\d+\b"), r"\1"),
    (re.compile(r"\bknown: ([^,;]+, ){7,}[^,;]+"), "known: <names>"),
]


def normalize(text: str) -> str:
    """Return the text without what differs between two runs."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return text


def split(text: str) -> list[str]:
    """Return the lines of a text or page that hold anything, long ones by sentences."""
    parts = re.split(r"<[^>]*>|\n", text) if "</" in text else text.split("\n")
    lines = (" ".join(part.split()) for part in parts)
    sentences = (SENTENCE.split(line) if len(line) > LONG else [line] for line in lines if line)
    return [each for line in sentences for each in line]


def matches(expected: str, line: str) -> bool:
    return bool(re.fullmatch(re.escape(expected).replace(re.escape(ANYTHING), ".*"), line))


def count_shared(expected: str, line: str) -> int:
    words = SequenceMatcher(None, expected.split(), line.split(), autojunk=False)
    return sum(block.size for block in words.get_matching_blocks())


def find_nearest(expected: str, lines: list[str]) -> str:
    """Return the line that shares most words with what was expected."""
    best = max(lines, key=lambda line: (count_shared(expected, line), -len(line)))
    assert len(lines) == 1 or 3 * count_shared(expected, best) >= len(expected.split()), (
        f"no line resembles {expected!r}; write some of its words into {FILE.name} by hand"
    )
    return best


def keep_wildcards(expected: str, line: str) -> str:
    """Return a line with what was expected of words that may be anything, beside a known one."""
    old, new = ["", *expected.split(), ""], ["", *line.split(), ""]
    for (before, word, after), j in product(
        zip(old, old[1:], old[2:], strict=False), range(1, len(new) - 1)
    ):
        beside = before == new[j - 1] or after == new[j + 1]
        if ANYTHING in word and beside and matches(word, new[j]):
            new[j] = word
    return " ".join(new[1:-1])


class Messages:
    """The expected messages of one test, and those that it has checked."""

    def __init__(self, key: str, entries: list[str], *, writes: bool = False) -> None:
        self.key = key
        self.entries = entries
        self.writes = writes
        self.checked: list[str] = []
        self.paths: dict[str, str] = {}  # temporary ones, and what stands for them

    def check(self, text: str) -> None:
        """Compare a text with the next entry, or rewrite the entry."""
        for path, name in self.paths.items():
            text = text.replace(path, name)
        lines = split(normalize(text))
        number = len(self.checked)
        expected = self.entries[number] if number < len(self.entries) else None
        self.checked.append(self.rewrite(expected, lines) if self.writes else expected or "")
        if not self.writes:
            assert expected is not None, f"{FILE.name} has no entry {number + 1} of {self.key}"
            for each in expected.split("\n"):
                if not any(matches(each, line) for line in lines):
                    likely = sorted(lines, key=lambda line: -count_shared(each, line))[:3]
                    pytest.fail("\n     got: ".join([f"expected: {each}", *likely]))

    def rewrite(self, expected: str | None, lines: list[str]) -> str:
        """Return the lines that stand for those expected before."""
        if expected is None:
            assert len(lines) == 1, (
                f"{self.key} checks a text of {len(lines)} lines for the first time; write some "
                f"words of those that count into {FILE.name} by hand"
            )
            return lines[0]
        found = []
        for each in expected.split("\n"):
            kept = any(matches(each, line) for line in lines)
            found.append(each if kept else keep_wildcards(each, find_nearest(each, lines)))
        return "\n".join(found)

    def end(self) -> None:
        """Refuse entries that the test does not check."""
        unused = self.entries[len(self.checked) :]
        if unused and not self.writes:
            pytest.fail(f"{self.key} does not check {unused} of {FILE.name}", pytrace=False)


running = Messages("", [])


def check(*texts: str) -> None:
    """Compare each text with the next entry of the running test."""
    for text in texts:
        running.check(text)


@contextmanager
def raises(
    error: type[BaseException] | tuple[type[BaseException], ...],
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Expect an error whose message is one line, the next entry of the running test."""
    with pytest.raises(error) as caught:
        yield caught
    assert "\n" not in str(caught.value)
    check(str(caught.value))


def read() -> dict[str, list[str]]:
    return tomllib.loads(FILE.read_text())


def write(written: dict[str, list[str]], gone: Iterable[str]) -> None:
    """Replace the entries of the tests that ran, and drop those of tests that are gone."""
    entries = {key: lines for key, lines in read().items() if key not in gone} | written
    kept = {key: entries[key] for key in sorted(entries) if entries[key]}
    FILE.write_text(tomli_w.dumps(kept, multiline_strings=True))


def name_test(nodeid: str) -> str:
    """Return a test's name without the folder of its file."""
    path, _, name = nodeid.partition("::")
    return f"{Path(path).stem}::{name}"
