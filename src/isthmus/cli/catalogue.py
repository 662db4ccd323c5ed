"""What can be named, for people to read."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

Entry = Mapping[str, Any]


def show(what: str, entries: Sequence[Entry]) -> None:
    """Prints methods family by family, anything else as a table."""
    if what == "methods":
        print("\n".join(_describe_methods(entries)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "what it is", "options", box=None, header_style="bold", pad_edge=False)
    for entry in entries:
        table.add_row(entry["name"], entry["summary"], _describe_options(entry))
    Console().print(table)


def _describe_methods(entries: Sequence[Entry]) -> Iterator[str]:
    """Describes each method by its paper, its wire, what a user should know, its options."""
    width = max(len(entry["name"]) for entry in entries) + 2
    for family in dict.fromkeys(entry["family"] for entry in entries):
        yield family.upper()
        for entry in [entry for entry in entries if entry["family"] == family]:
            facts = [f"down: {entry['down']}", f"up: {entry['up']}", f"at home: {entry['home']}"]
            facts += [f"newcomer: {entry['newcomer']}"]
            facts += [f"DISCLOSES {entry['discloses']}"] if entry["discloses"] else []
            facts += [f"needs everybody {entry['everybody']}"] if entry["everybody"] else []
            name = entry["name"]
            for text in (entry["summary"], "; ".join(facts), _describe_options(entry)):
                yield from wrap_text(text, f"  {name:<{width}}")
                name = ""
        yield ""


def wrap_text(text: str, first: str) -> list[str]:
    """Breaks text where the terminal ends, under a first column; a file's lines are not broken."""
    columns = get_terminal_size().columns if sys.stdout.isatty() else 1000
    room = max(columns, len(first) + 30)
    return wrap(text, room, initial_indent=first, subsequent_indent=" " * len(first))


def _describe_options(entry: Entry) -> str:
    return ", ".join(
        f"{key}={list(value) if isinstance(value, tuple) else value}"
        for key, value in entry["options"].items()
    )
