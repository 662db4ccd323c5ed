"""Expected messages: an absent, unused or different one is a failure, and rewriting mends it."""

import ast
from pathlib import Path

import pytest

import golden
from golden import Messages

PAGE = "<p>Three sites answered.</p><p>One of them was late: <b>3 s</b></p>"


def test_every_entry_belongs_to_a_test() -> None:
    names = set()
    for path in Path(__file__).parent.rglob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            inside = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
            names |= {
                f"{path.stem}::{prefix}{each.name}"
                for each in inside
                if isinstance(each, ast.FunctionDef)
            }
    assert {key.partition("[")[0] for key in golden.read()} <= names


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("lr must be a number", "lr must be a number"),
        ("lr must <...>", "lr must be a number"),
        ("Three sites answered.", PAGE),
        ("Three sites answered.\nOne of them was late:", PAGE),
    ],
)
def test_an_entry_is_a_line_or_several(entry: str, text: str) -> None:
    messages = Messages("", [entry])
    messages.check(text)
    messages.end()


@pytest.mark.parametrize("entries", [[], ["lr must be"], ["lr must be a <...>!"]])
def test_an_absent_or_another_entry_fails(entries: list[str]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        Messages("", entries).check("lr must be a number")


def test_an_entry_that_is_not_checked_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="does not check"):
        Messages("test_it", ["lr must be a number"]).end()


def test_what_differs_from_run_to_run_does_not_count() -> None:
    text = "in use by process 123 since 2026-11-19T21:30:01, port 8002, for 3.5 s"
    expected = "in use by process <pid> since <date>, port <port>, for <n> s"
    assert golden.normalize(text) == expected


def test_writing_keeps_what_matches_and_takes_the_nearest_line() -> None:
    lines = ["rounds: 3 of 4", "lr must be a number, not a boolean", "seed: 1"]
    rewrite = Messages("", [], writes=True).rewrite
    assert rewrite("rounds: <...>", lines) == "rounds: <...>"
    assert rewrite("lr is a number, not a word", lines) == lines[1]
    assert rewrite("rounds are <...> of 4", lines) == "rounds: <...> of 4"
    assert rewrite("lr is a number, not a word\nseed: 2", lines) == "\n".join(lines[1:])
    assert rewrite(None, lines[:1]) == lines[0]
    for odd in (None, "nothing like it at all"):
        with pytest.raises(AssertionError, match="by hand"):
            rewrite(odd, lines)
