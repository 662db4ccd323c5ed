"""What a person sees while data are read that take long."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

SILENT_SECONDS = 2.0  # seconds before anything is shown

Item = TypeVar("Item")


def show_progress(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yield items; show on stderr how far it is, once it has taken longer than SILENT_SECONDS.

    On a terminal that is a bar, which goes away in the end; elsewhere it is a single line.
    """
    rest, end = iter(items), time.monotonic() + SILENT_SECONDS
    for done, item in enumerate(rest, start=1):
        yield item
        if time.monotonic() > end and done < len(items):
            yield from _with_a_bar(rest, done, len(items), what)


def _with_a_bar(rest: Iterator[Item], done: int, total: int, what: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        line = f"{what}: {done:,} of {total:,} done in {SILENT_SECONDS:g} s"
        print(line, file=sys.stderr, flush=True)
        yield from rest
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done)
        for item in rest:
            yield item
            bar.advance(task)
