"""The commands below `isthmus join`: a site of a federation."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import AsJson, ReadingSettings, read_reading, require_sites
from isthmus.errors import IsthmusError

app = typer.Typer(
    rich_markup_mode="markdown",
    help="Take part in a federation: data, own states and personal models stay here.\n\n"
    "Begin with `isthmus join request --name hospital-a` in an empty folder.",
)
Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of the site.")]


@app.command()
def request(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Small letters, digits, hyphens: hospital-a.")
    ],
    folder: Folder = Path(),
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Create a new key; the old one stays valid until the new package is accepted.",
        ),
    ] = False,
) -> None:
    """Request admission: create a key that stays here, and a request that travels.

    Examples, one per line:

    `isthmus join request --name hospital-a`

    `isthmus join request --name hospital-a --renew` before the certificate ends.

    Send NAME.request.zip to the server's people; there is nothing secret in it.
    """
    require_sites("join")
    from isthmus_sites.flare.admission import request_admission

    path = request_admission(folder, name, again=renew)
    print(f"request: {path}")
    print("next: send it to the server's people; what they send back is for `isthmus join accept`")


@app.command()
def accept(
    package: Annotated[Path, typer.Argument(metavar="PACKAGE.zip", help="From the server.")],
    fingerprint: Annotated[
        str, typer.Option(metavar="TEXT", help="Fingerprint that the server's people gave you.")
    ],
    folder: Folder = Path(),
) -> None:
    """Accept a server: compare its fingerprint, check the package, write what this site allows.

    Example: `isthmus join accept hospital-a.package.zip --fingerprint "ABCD-EFGH-..."`

    A package that is not for this site's key and name, or that was changed, is refused. Case,
    spaces and hyphens of the fingerprint do not matter.
    """
    require_sites("join")
    from isthmus_sites.flare.admission import accept_admission
    from isthmus_sites.folders import read_table

    settings = read_table(accept_admission(folder, package, fingerprint).settings)
    print(f"{settings['name']} is accepted by {settings['host']}:{settings['port']}")
    print(f"certificate: until {settings['until']:%Y-%m-%d}")


@app.command()
def start(
    folder: Folder = Path(),
    unit: Annotated[bool, typer.Option("--unit", help="Print a systemd unit for this.")] = False,
) -> None:
    """Take part until Ctrl-C: connect to the server, and reconnect whenever the connection ends.

    Examples, one per line:

    `isthmus join start`

    `isthmus join start --unit > ~/.config/systemd/user/isthmus.service`

    All connections go out from here; no port is opened. The server may ask for what
    `isthmus join agree` allowed, and for nothing else.
    """
    require_sites("join")
    from isthmus_sites.flare.keeper import describe_unit, keep_site

    if unit:
        print(describe_unit(folder))
    else:
        keep_site(folder, lambda text: messages.print_line(f"{time.strftime('%H:%M:%S')} {text}"))


@app.command()
def leave(folder: Folder = Path()) -> None:
    """Leave the federation: nothing is answered any more, and nothing here is deleted.

    Example: `isthmus join leave`

    Own states, personal models, figures and the log stay. The server is told if `isthmus join
    start` is connected; if not, what to send to its people is printed. What the server has learned
    from models that were sent cannot be taken back. `isthmus join accept` comes back.
    """
    require_sites("join")
    from isthmus_sites.flare.keeper import leave_federation

    name, told = leave_federation(folder)
    print(f"{name} has left; nothing here was deleted")
    told_or_not = "it was told" if told else "it could not be told: tell its people"
    print(f"the server: {told_or_not}; what they do now:")
    print(f"  isthmus serve revoke {name}   so that no one else can use this name")
    print(f"  isthmus serve forget {name}   once the run has ended: deletes its figures")


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="EXPERIMENT.toml", help="Proposed experiment.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File or directory to register [default: the latest]."),
    ] = None,
    settings: ReadingSettings = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="Name to register it by.")] = "",
    alone: Annotated[bool, typer.Option("--alone", help="Train here alone, to compare.")] = False,
    folder: Folder = Path(),
) -> None:
    """Register data, and print what taking part with them would mean. Nothing is sent.

    Examples, one per line:

    `isthmus join check --data patients.csv`

    `isthmus join check study.toml --data patients.csv --read label=outcome`

    `isthmus join check study.toml --alone`
    """
    from isthmus_sites import preparation
    from isthmus_sites.folders import find_site, read_table
    from isthmus_sites.views import describe_alone

    site = find_site(folder)
    if file is None and (data is None or alone):
        raise IsthmusError("nothing to check; name data with --data, an experiment, or both")
    if data is not None:
        name = preparation.register(site, data, read_reading(data, settings), name)
    found = preparation.find_data(site, name)
    print(f"registered: {found.name}, {found.options['name']} {found.path}")
    if file is not None:
        study, me = preparation.read_deployable(file), str(read_table(site.settings)["name"])
        part = preparation.propose(study, me, found)
        print("\n".join(preparation.preview(part)))
        if alone:
            print(describe_alone(preparation.train_alone(site, part)))


@app.command()
def agree(
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="Proposed experiment.")],
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Registered data [default: the latest].")
    ] = None,
    disclose: Annotated[
        list[str] | None,
        typer.Option(metavar="FUNCTION", help="Allow a function that discloses more (repeatable)."),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option("--figures/--no-figures", help="Let the server keep this site's own figures."),
    ] = True,
    minimum_examples: Annotated[
        int,
        typer.Option(
            min=0, metavar="NUMBER", help="Do not take part with fewer training examples."
        ),
    ] = 20,
    minimum_label_count: Annotated[
        int,
        typer.Option(min=0, help="Do not disclose label counts with fewer of a class."),
    ] = 5,
    newcomer: Annotated[
        bool,
        typer.Option("--newcomer", help="Receive a model from a run of other sites; do not train."),
    ] = False,
    reset: Annotated[
        bool,
        typer.Option(
            "--reset", help="Archive this site's state from an earlier run of the same experiment."
        ),
    ] = False,
    folder: Folder = Path(),
) -> None:
    """Consent to exactly this experiment; the site then answers calls of no other.

    Examples, one per line:

    `isthmus join agree study.toml`

    `isthmus join agree study.toml --disclose census --minimum-label-count 10`

    `isthmus join agree study.toml --newcomer` where the experiment does not name this site.

    A newcomer gets what the rounds so far made when it connects, after evaluations and after the
    last round, and builds a model from it here. Nothing of it enters a round.
    """
    from isthmus_sites import preparation
    from isthmus_sites.folders import find_site
    from isthmus_sites.status import list_terms
    from isthmus_sites.views import describe_terms

    site = find_site(folder)
    agreed = preparation.consent(
        site,
        preparation.read_deployable(file),
        preparation.find_data(site, data or ""),
        disclose=disclose or (),
        figures=figures,
        minimum_examples=minimum_examples,
        minimum_label_count=minimum_label_count,
        newcomer=newcomer,
    )
    if reset:
        print(f"archived: {preparation.reset_state(site, agreed.digest)}")
    print("\n".join(describe_terms(list_terms(agreed))))
    print("next: isthmus join start")


@app.command()
def status(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Show what this site received and sent, what it refused, and how its model does.

    Examples, one per line:

    `isthmus join status`

    `isthmus join status --json`

    The model is shown beside the shared one, and beside training alone if `isthmus join check
    EXPERIMENT.toml --alone` was called. It only reads files here; nothing is sent.
    """
    from rich.console import Console

    from isthmus_sites.folders import find_site
    from isthmus_sites.status import collect_site_status
    from isthmus_sites.views import draw_site

    facts = collect_site_status(find_site(folder))
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        Console().print(draw_site(facts))
