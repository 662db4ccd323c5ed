"""The commands below `isthmus join`: a site of a federation."""

import time
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import AsJson, ReadingSettings, read_reading, require_sites
from isthmus.errors import IsthmusError

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
    renew: Annotated[
        bool, typer.Option("--renew", help="Make a new key; the one before works until then.")
    ] = False,
) -> None:
    """Asks to be admitted: makes a key that stays here, and a request that travels.

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
    from isthmus_sites.flare.admission import accept_admission
    from isthmus_sites.folders import read_table

    site = accept_admission(folder, package, fingerprint)
    settings = read_table(site.settings)
    print(f"{settings['name']} is accepted by {settings['host']}:{settings['port']}")
    print(f"certificate: until {settings['until']:%Y-%m-%d}")


@app.command()
def start(
    folder: Folder = Path(),
    unit: Annotated[
        bool,
        typer.Option("--unit", help="Print a systemd unit that does this from boot on, and end."),
    ] = False,
) -> None:
    """Takes part, until Ctrl-C: connects to the server, and again whenever the connection ends.

    Examples, one per line:

    `isthmus join start`

    `isthmus join start --unit > ~/.config/systemd/user/isthmus.service`

    All connections go out from here; no port is opened to anybody. What the server may ask is what
    `isthmus join agree` was told, and nothing else.
    """
    require_sites("join")
    from isthmus_sites.flare.keeper import describe_unit, keep_site

    if unit:
        print(describe_unit(folder))
        return
    keep_site(folder, lambda text: messages.print_line(f"{time.strftime('%H:%M:%S')} {text}"))


@app.command()
def leave(folder: Folder = Path()) -> None:
    """Leaves the federation: nothing is answered any more, and nothing here is deleted.

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
    print(f"  isthmus serve revoke {name}   so that nobody else can use this name")
    print(f"  isthmus serve forget {name}   once the run has ended: deletes its figures")


Study = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT.toml", help="What the server's people propose.")
]
Registered = Annotated[
    str | None, typer.Option("--data", metavar="NAME", help="Registered data; else the latest.")
]


@app.command()
def check(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="EXPERIMENT.toml", help="What is proposed, if there is any yet."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file or directory of this site; else the latest."),
    ] = None,
    settings: ReadingSettings = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="To register it by.")] = "",
    alone: Annotated[
        bool,
        typer.Option("--alone", help="Train here alone, for `isthmus join status` to compare."),
    ] = False,
    folder: Folder = Path(),
) -> None:
    """Registers data, and says what taking part with them would mean. Nothing is sent.

    Examples, one per line:

    `isthmus join check --data patients.csv`

    `isthmus join check study.toml --data patients.csv --set label=outcome`

    `isthmus join check study.toml --alone`
    """
    from isthmus_sites.cli.consent import describe_preview
    from isthmus_sites.folders import find_site, read_table
    from isthmus_sites.preparation import find_data, preview, propose, read_deployable, register

    site = find_site(folder)
    if file is None and (data is None or alone):
        raise IsthmusError(
            "nothing to check; expected data, or an experiment; name them: "
            "`isthmus join check EXPERIMENT.toml --data FILE`"
        )
    known = name if data is None else register(site, data, read_reading(data, settings), name)
    found = find_data(site, known)
    print(f"registered: {found.name}, {found.options['name']} {found.path}")
    if file is not None:
        experiment, me = read_deployable(file), str(read_table(site.settings)["name"])
        part = propose(experiment, me, found)
        print("\n".join(describe_preview(preview(part))))
        if alone:
            from isthmus_sites.preparation import train_alone
            from isthmus_sites.views import describe_alone

            print(describe_alone(train_alone(site, part)))


@app.command()
def agree(
    file: Study,
    data: Registered = None,
    disclose: Annotated[
        list[str] | None,
        typer.Option(metavar="FUNCTION", help="A function that discloses more; may be repeated."),
    ] = None,
    figures: Annotated[
        bool,
        typer.Option("--figures/--no-figures", help="Whether the server may keep this site's own."),
    ] = True,
    minimum_examples: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="To train on; with fewer nothing is sent.")
    ] = 20,
    minimum_label_count: Annotated[
        int, typer.Option(min=0, metavar="NUMBER", help="Of each class, where counts are told.")
    ] = 5,
    newcomer: Annotated[
        bool,
        typer.Option(
            "--newcomer", help="This site is no client of it: receive a model, train in no round."
        ),
    ] = False,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="The server begins anew: set aside what is here of before."),
    ] = False,
    folder: Folder = Path(),
) -> None:
    """Consents to exactly this experiment; the site then answers calls of no other.

    Examples, one per line:

    `isthmus join agree study.toml`

    `isthmus join agree study.toml --disclose census --minimum-label-count 10`

    `isthmus join agree study.toml --newcomer` where the experiment does not name this site.

    A newcomer gets what the rounds so far made, when it comes, after evaluations and after the last
    round, and builds a model from it here. No round has anything of it.
    """
    from isthmus_sites.cli.consent import describe_consent
    from isthmus_sites.folders import find_site
    from isthmus_sites.preparation import consent, find_data, read_deployable, reset_state

    site = find_site(folder)
    agreed = consent(
        site,
        read_deployable(file),
        find_data(site, data or ""),
        disclose=disclose or (),
        figures=figures,
        minimum_examples=minimum_examples,
        minimum_label_count=minimum_label_count,
        newcomer=newcomer,
    )
    if reset:
        print(f"set aside: {reset_state(site, agreed.digest)}")
    print("\n".join(describe_consent(agreed)))


@app.command()
def status(folder: Folder = Path(), as_json: AsJson = False) -> None:
    """Shows what this site got and sent, what it refused, and how its model does.

    Examples, one per line:

    `isthmus join status`

    `isthmus join status --json`

    Beside the shared model, and beside training alone if `isthmus join check EXPERIMENT.toml
    --alone` was called. All of it is read here, and nothing is sent.
    """
    import json

    from rich.console import Console

    from isthmus_sites.folders import find_site
    from isthmus_sites.status import collect_standing
    from isthmus_sites.views import draw_standing

    facts = collect_standing(find_site(folder))
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        Console().print(draw_standing(facts))
