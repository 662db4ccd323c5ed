"""The commands below `isthmus join`: a site of a federation."""

from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli.options import require_sites

app = typer.Typer(
    rich_markup_mode="markdown",
    help="Takes part in a federation: data, own states and personal models stay here.\n\n"
    "Begin with `isthmus join request --name hospital-a` in an empty folder.",
)
Folder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", help="The folder of the site; this one if left out."),
]


@app.command()
def request(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Small letters, digits, hyphens: hospital-a.")
    ],
    folder: Folder = Path(),
    again: Annotated[
        bool, typer.Option("--again", help="Make a new key; the one before works until then.")
    ] = False,
) -> None:
    """Asks to be admitted: makes a key that stays here, and a request that travels.

    Examples, one per line:

    `isthmus join request --name hospital-a`

    `isthmus join request --name hospital-a --again` before the certificate ends.

    Send NAME.request.zip to the server's people; there is nothing secret in it.
    """
    require_sites("join")
    from isthmus.sites.flare.admission import request_admission

    path = request_admission(folder, name, again=again)
    print(f"request: {path}")
    print("next: send it to the server's people; what they send back is for `isthmus join accept`")


@app.command()
def accept(
    package: Annotated[
        Path, typer.Argument(metavar="PACKAGE.zip", help="What `isthmus serve admit` made.")
    ],
    fingerprint: Annotated[
        str, typer.Option(metavar="TEXT", help="As the server's people tell it by telephone.")
    ],
    folder: Folder = Path(),
) -> None:
    """Accepts a server: compares its fingerprint, checks the package, writes what this site allows.

    Example: `isthmus join accept hospital-a.package.zip --fingerprint "ABCD-EFGH-..."`

    A package that is not for this site's key and name, or that anybody changed, is refused. Case,
    spaces and hyphens of the fingerprint do not matter.
    """
    require_sites("join")
    from isthmus.sites.flare.admission import accept_admission
    from isthmus.sites.folders import read_table

    site = accept_admission(folder, package, fingerprint)
    settings = read_table(site.settings)
    print(f"{settings['name']} is accepted by {settings['host']}:{settings['port']}")
    print(f"certificate: until {settings['until']:%Y-%m-%d}")
