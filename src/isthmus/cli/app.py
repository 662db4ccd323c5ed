"""The command line. Nothing heavy is imported before a command needs it."""

import sys
from typing import Annotated, Any

import typer

from isthmus.cli import (
    adapt,
    compare,
    data,
    demo,
    export,
    figure,
    landscape,
    list,
    messages,
    report,
    resume,
    run,
    show,
)
from isthmus.errors import IsthmusError

app = typer.Typer(
    name="isthmus",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Personalized federated learning over connected modes.\n\n"
    "Start with `isthmus demo`. Then `isthmus run --method superfed-mm --data digits --rounds 40`.",
)
for command in (
    demo.demo,
    run.run,
    compare.compare,
    resume.resume,
    show.show,
    export.export,
    adapt.adapt,
    report.report,
):
    app.command()(command)
app.command(cls=figure.FigureCommand)(figure.figure)
app.command()(landscape.landscape)
app.command(name="list")(list.list_)
app.add_typer(data.app, name="data")

UsageError: Any = typer.BadParameter.__base__  # click's own, or the one that typer brings


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"isthmus {version('isthmus')}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Does what comes before any command."""


def main() -> None:
    """Runs the program; a user's mistake is one line and exit code 2."""
    try:
        # Some versions of typer turn Ctrl-C into its exit code.
        if app(sys.argv[1:] or ["--help"], standalone_mode=False) == 130:
            raise KeyboardInterrupt
    except IsthmusError as error:
        _fail(str(error))
    except UsageError as error:
        _fail(" ".join(error.format_message().split()) + " See --help.")
    except (KeyboardInterrupt, typer.Abort):
        messages.exit_stopped("stopped")


def _fail(message: str) -> None:
    messages.print_line(f"isthmus: {message}")
    sys.exit(2)
