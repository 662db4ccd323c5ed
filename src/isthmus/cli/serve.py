"""The commands below `isthmus serve`: the server of a federation of real sites."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import require_sites

app = typer.Typer(
    rich_markup_mode="markdown",
    help="Leads a federation of real sites: who is in it, and its runs.\n\n"
    "Begin with `isthmus serve init FOLDER --host fl.example.org --port 8002`; sites begin with "
    "`isthmus join request`.",
)
Folder = Annotated[
    Path,
    typer.Option(
        "--folder", metavar="DIR", help="The folder of the federation; this one if left out."
    ),
]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for all of it.")],
    host: Annotated[
        str, typer.Option(metavar="NAME", help="By which name or address sites reach this machine.")
    ],
    port: Annotated[
        int, typer.Option(metavar="NUMBER", help="Where it listens; open this one to sites.")
    ] = 8002,
) -> None:
    """Begins a federation: an authority that signs, the server's kit, the lead's key.

    Example: `isthmus serve init trial --host fl.example.org --port 8002`

    The folder decides who takes part: keep it, and a backup of it, where nobody else can read.
    A host of 127.0.0.1 is for trials on one machine.
    """
    require_sites("serve")
    from isthmus.sites.flare.admission import begin_federation

    finger = begin_federation(folder, host, port)
    print(f"federation: {folder}, to be reached at {host}:{port}")
    print(f"fingerprint: {finger}")
    print(f"next: isthmus serve admit NAME.request.zip --folder {folder}")


@app.command()
def admit(
    request: Annotated[
        Path, typer.Argument(metavar="REQUEST.zip", help="What `isthmus join request` made.")
    ],
    folder: Folder = Path(),
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the package goes; here if left out.")
    ] = Path(),
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="The site is known: its certificate ended, or it has a new key."
        ),
    ] = False,
) -> None:
    """Admits a site: signs what it asks for, and makes the package that goes back to it.

    Examples, one per line:

    `isthmus serve admit hospital-a.request.zip`

    `isthmus serve admit hospital-a.request.zip --again` renews it; the key before counts no more.

    Send the package any way you like: without the site's key it is worth nothing. Tell the
    fingerprint by telephone, so that the site knows whose package it is.
    """
    require_sites("serve")
    from isthmus.sites.flare.admission import admit_site

    package, finger = admit_site(folder, request, out, again=again)
    print(f"package: {package}")
    print(f"fingerprint, to be told by telephone: {finger}")


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A site that was admitted.")],
    folder: Folder = Path(),
) -> None:
    """Takes a site's right to take part, at once and for good.

    Example: `isthmus serve revoke hospital-a`

    A run goes on without it after the round in hand. Let it in again with
    `isthmus serve admit REQUEST.zip --again`.
    """
    require_sites("serve")
    from isthmus.sites.flare.admission import revoke_site

    revoke_site(folder, name)
    print(f"{name} is revoked")
