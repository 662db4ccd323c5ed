"""Engines for tests: one that sends everything as bytes, one that loses replies."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from isthmus import tree
from isthmus.context import Call, Engine, Request, RunContext
from isthmus.engines.loop import Loop


def through_bytes(message: Any) -> Any:
    return tree.unpack(tree.pack(message), like=message)


class Wire(Engine):
    """Runs clients one by one; every message and every state goes through bytes and back."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        sent = call._replace(shared=through_bytes(call.shared))
        arrived = (
            Request(each.i, through_bytes(each.find_own(setting)), through_bytes(each.each))
            for each in requests
        )
        for i, result in Loop().run(setting, sent, arrived):
            yield i, through_bytes(result)

    def describe(self, why: str = "") -> str:
        return "one process, and everything as bytes"

    def watch(self) -> Callable[[], Mapping[str, float]]:
        return dict


class Flaky(Engine):
    """Loses the replies for which `lost(t, i)` holds; evaluation is not disturbed."""

    def __init__(self, lost: Callable[[int, int], bool]):
        self.lost = lost
        self.notes: list[str] = []

    def run(
        self, setting: RunContext, call: Call, requests: Iterator[Request]
    ) -> Iterator[tuple[int, Any]]:
        for i, result in Loop().run(setting, call, requests):
            if call.purpose in ("evaluate", "join") or not self.lost(call.t, i):
                yield i, result

    def describe(self, why: str = "") -> str:
        return "one process, and some replies lost"

    def watch(self) -> Callable[[], Mapping[str, float]]:
        return dict
