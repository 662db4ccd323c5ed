"""The command list."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import Annotated, Any

import typer

from isthmus.cli.options import AsJson
from isthmus.errors import IsthmusError, nearest

Entry = Mapping[str, Any]


def list_(
    what: Annotated[
        str, typer.Argument(help="One of methods, data, partitions, models, noise, figures.")
    ] = "methods",
    as_json: AsJson = False,
) -> None:
    """List what can be named: methods, data, partitions, models, noise, figures.

    Example: `isthmus list methods --json`
    """
    from isthmus.experiment.registry import COMPONENTS, describe_choices

    kinds = {part if part in ("data", "noise") else f"{part}s": part for part in COMPONENTS}
    if what == "figures":
        from isthmus.report.contents import PRINT_FIGURES

        known = PRINT_FIGURES.values()
        entries = [{"name": each.name, "summary": each.about, "options": {}} for each in known]
    elif what in kinds:
        entries = describe_choices(kinds[what])
    else:
        known_lists = [*kinds, "figures"]
        raise IsthmusError(f"there is no list of {what!r}; {nearest(what, known_lists)}")
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    _show(what, entries)


def _show(what: str, entries: Sequence[Entry]) -> None:
    """Print methods family by family, anything else as a table."""
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
    """Describe each method by its paper, its messages, what a user should know, its options."""
    width = max(len(entry["name"]) for entry in entries) + 2
    for family in dict.fromkeys(entry["family"] for entry in entries):
        yield family.upper()
        for entry in [entry for entry in entries if entry["family"] == family]:
            facts = [f"down: {entry['down']}", f"up: {entry['up']}", f"at home: {entry['home']}"]
            facts += [f"newcomer: {entry['newcomer']}"]
            facts += [f"DISCLOSES {entry['discloses']}"] if entry["discloses"] else []
            facts += [f"needs everybody {entry['everybody']}"] if entry["everybody"] else []
            facts += [] if entry["federated"] else ["NOT FEDERATED: data leave their owners"]
            name = entry["name"]
            for text in (entry["summary"], "; ".join(facts), _describe_options(entry)):
                yield from wrap_text(text, f"  {name:<{width}}")
                name = ""
        yield ""


def wrap_text(text: str, first: str) -> list[str]:
    """Wrap text at the width of the terminal, under a first column; do not wrap in a file."""
    columns = get_terminal_size().columns if sys.stdout.isatty() else 1000
    room = max(columns, len(first) + 30)
    return wrap(text, room, initial_indent=first, subsequent_indent=" " * len(first))


def _describe_options(entry: Entry) -> str:
    return ", ".join(
        f"{key}={list(value) if isinstance(value, tuple) else value}"
        for key, value in entry["options"].items()
    )
