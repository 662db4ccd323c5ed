"""The command line. Nothing heavy is imported before a command needs it."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import typer

from isthmus.cli import messages
from isthmus.errors import IsthmusError, quote
from isthmus.system.plugins import Registry

COMMANDS = Registry(
    "isthmus.commands",
    {
        "demo": "isthmus.cli.demo:demo",
        "run": "isthmus.cli.run:run",
        "compare": "isthmus.cli.compare:compare",
        "resume": "isthmus.cli.resume:resume",
        "show": "isthmus.cli.show:show",
        "export": "isthmus.cli.export:export",
        "predict": "isthmus.cli.predict:predict",
        "adapt": "isthmus.cli.adapt:adapt",
        "report": "isthmus.cli.report:report",
        "figure": "isthmus.cli.figure:figure",
        "landscape": "isthmus.cli.landscape:landscape",
        "cross": "isthmus.cli.cross:cross",
        "list": "isthmus.cli.list:list_",
        "data": "isthmus.cli.data:app",
    },
)
UsageError: Any = typer.BadParameter.__base__  # click's own, or the one that typer brings


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"isthmus {version('isthmus')}")
        raise typer.Exit


def program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Run what comes before any command."""


def build_app(command: str = "") -> typer.Typer:
    """Return the program with this command, or with all if none has this name.

    Commands are those of this package and of installed plug-ins.
    """
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        help="Personalized federated learning over connected modes.\n\nStart with `isthmus demo`. "
        "Then `isthmus run --method superfed-mm --data digits --rounds 40`.",
    )
    app.callback()(program)
    for name in [command] if command in COMMANDS else COMMANDS:
        try:
            found = COMMANDS[name]
        except IsthmusError as error:  # of a plug-in; the others still work
            messages.print_note(str(error))
            continue
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)
    return app


def main() -> None:
    """Run the program; a user's mistake is one line and exit code 2."""
    messages.prepare_output()
    try:
        try:
            arguments = sys.argv[1:] or ["--help"]
            _refuse_empty(arguments)
            # Some versions of typer turn Ctrl-C into its exit code.
            if build_app(arguments[0])(arguments, standalone_mode=False) == 130:
                raise KeyboardInterrupt
        finally:
            sys.stdout.flush()
    except IsthmusError as error:
        _fail(str(error))
    except UsageError as error:
        _fail(f"{error.format_message()} See --help.")
    except (KeyboardInterrupt, typer.Abort):
        messages.exit_stopped("stopped")
    except BrokenPipeError:  # as by `head`, which has read enough
        messages.discard_output()
        sys.exit(1)  # as click ends then
    except MemoryError:
        _fail("there is not enough memory; lower sizes or counts")
    except OSError as error:
        messages.discard_output()
        where = quote(str(error.filename)) if error.filename else "a file, or standard output,"
        _fail(f"{where} failed: {error.strerror or error}; name another")


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse empty values, such as those of unset shell variables."""
    for before, argument in pairwise(["isthmus", *arguments]):
        if not argument.strip() or (argument.startswith("--") and argument.endswith("=")):
            where = argument if argument.strip() else before
            raise IsthmusError(f"{quote(where)} has no value; is a shell variable unset?")


def _fail(message: str) -> None:
    messages.print_line(f"isthmus: {messages.to_one_line(message)}")
    sys.exit(2)
