"""The commands below `isthmus serve`: the server of a federation of real sites."""

import os
import re
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from isthmus.cli import messages
from isthmus.cli.options import AsJson, Settings, read_experiment, require_sites
from isthmus.errors import IsthmusError, quote

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
    from isthmus_sites.flare.admission import begin_federation

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
    renew: Annotated[
        bool,
        typer.Option(
            "--renew", help="The site is known: its certificate ended, or it has a new key."
        ),
    ] = False,
) -> None:
    """Admits a site: signs what it asks for, and makes the package that goes back to it.

    Examples, one per line:

    `isthmus serve admit hospital-a.request.zip`

    `isthmus serve admit hospital-a.request.zip --renew` renews it; the key before counts no more.

    Send the package any way you like: without the site's key it is worth nothing. Tell the
    fingerprint by telephone, so that the site knows whose package it is.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import admit_site

    package, finger = admit_site(folder, request, out, again=renew)
    print(f"package: {package}")
    print(f"fingerprint, to be told by telephone: {finger}")


@app.command()
def move(
    folder: Folder = Path(),
    host: Annotated[
        str, typer.Option(metavar="NAME", help="By which name or address sites reach it from now.")
    ] = "",
    port: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Where it listens from now on.")
    ] = None,
) -> None:
    """Has sites reach the server by another name, address or port: each needs a new package.

    Example: `isthmus serve move --host fl2.example.org --folder trial`

    Stop the run first. What is left out stays. The authority is the same, and so are the
    fingerprint, the sites' keys and the run.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import move_server

    if not host and port is None:
        raise IsthmusError("nothing to move; expected --host, --port or both; name one")
    where, sites = move_server(folder, host, -1 if port == 0 else port or 0)
    print(f"to be reached at {where}")
    for name in sites:
        print(f"  isthmus serve admit {name}.request.zip --renew --folder {folder}")
    print(
        "next: the above, with the requests that sites made or new ones; they accept the packages"
    )


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A site that was admitted.")],
    folder: Folder = Path(),
) -> None:
    """Takes a site's right to take part, at once and for good.

    Example: `isthmus serve revoke hospital-a`

    A run goes on without it after the round in hand. Let it in again with
    `isthmus serve admit REQUEST.zip --renew`.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import revoke_site

    revoke_site(folder, name)
    print(f"{name} is revoked")


@app.command()
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A site of the run.")],
    folder: Folder = Path(),
) -> None:
    """Deletes what the records of a run that has ended say of a site: all its figures.

    Example: `isthmus serve forget hospital-a`

    What cannot be deleted is said: what models have learned from it, and copies elsewhere.
    """
    from isthmus_sites.server import forget_site

    gone = forget_site(folder, name)
    print(f"deleted: {gone:,} rows of figures of {name}")
    print(
        "kept: what the shared model, and what the method holds for each client, learned from it; "
        "when it answered, which a replay needs; figures over all sites; backups and copies"
    )


@app.command()
def run(
    file: Annotated[
        Path, typer.Argument(metavar="EXPERIMENT.toml", help="It names the sites and a schema.")
    ],
    folder: Folder = Path(),
    quorum: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Of the sites that are asked, how many have to answer."),
    ] = 1.0,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Of a call: 90s, 30m, 2h, 1d.")
    ] = "2h",
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="For the others, once a quorum has answered.")
    ] = "30s",
    min_sites: Annotated[
        int,
        typer.Option(min=2, metavar="NUMBER", help="Sites whose figures may be told in a sum."),
    ] = 3,
    newcomers: Annotated[
        bool,
        typer.Option(
            "--newcomers/--no-newcomers",
            help="Whether other sites that are admitted may join, to receive a model.",
        ),
    ] = True,
    settings: Settings = None,
) -> None:
    """Runs an experiment at the sites, and keeps it going until its last round.

    Examples, one per line:

    `isthmus serve run experiment.toml --quorum 0.7 --deadline 2h`

    `isthmus serve run experiment.toml --set rounds=50`

    Every site has to agree to exactly this experiment. Sites may fail and come back meanwhile, and
    so may this machine: `isthmus serve resume` goes on. Ctrl-C ends it within the round,
    `isthmus serve stop` after it.
    """
    require_sites("serve")
    from isthmus_sites.consent import finalize_experiment
    from isthmus_sites.folders import find_server
    from isthmus_sites.protocol import ServePlan

    server = find_server(folder)
    if not 0 < quorum <= 1:
        raise IsthmusError(
            f"--quorum {quorum:g}; expected a share above 0, at most 1; for example 0.7"
        )
    experiment = finalize_experiment(read_experiment(file, {}, settings))
    plan = ServePlan(
        experiment=experiment.toml(),
        quorum=quorum,
        deadline=_read_seconds("deadline", deadline),
        grace=_read_seconds("grace", grace),
        least=min_sites,
        newcomers=newcomers,
    )
    if server.run.exists() and ServePlan.load(server).experiment != plan.experiment:
        raise IsthmusError(
            f"{server.run} holds the run of another experiment; expected to begin one; move it "
            "elsewhere, or go on with `isthmus serve resume`"
        )
    _check_admitted(folder, list(experiment.data["names"]), quorum)
    plan.save(server)
    # What read the experiment takes memory that is of no use while others compute.
    sys.stdout.flush()
    words = ["-m", "isthmus", "serve", "resume", "--folder", str(folder)]
    os.execv(sys.executable, [sys.executable, *words])


@app.command()
def resume(folder: Folder = Path()) -> None:
    """Goes on with a run at the sites that was stopped, or whose server died.

    Example: `isthmus serve resume --folder trial`

    Of a run that is over, newcomers that are there get a model of the last round.
    """
    require_sites("serve")
    _supervise(folder)


@app.command()
def stop(folder: Folder = Path()) -> None:
    """Asks the run that goes on to stop after the round in hand.

    Example: `isthmus serve stop --folder trial`
    """
    require_sites("serve")
    from isthmus_sites.flare.supervisor import stop_serving

    stop_serving(folder)
    print("the run stops after the round in hand; `isthmus serve resume` goes on")


@app.command()
def status(
    port: Annotated[
        int | None, typer.Argument(metavar="[PORT]", help="Of the page; any free one if left out.")
    ] = None,
    folder: Folder = Path(),
    follow: Annotated[
        bool, typer.Option("--watch", help="Go on until the last round, or Ctrl-C.")
    ] = False,
    page: Annotated[
        bool, typer.Option("--page", help="Serve it as a web page to this machine alone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Shows how the run at the sites stands: who answered, how far it is, how models do.

    Examples, one per line:

    `isthmus serve status --folder trial --watch`

    `isthmus serve status --folder trial --page 8080`

    It reads files alone, so it works while the run goes on, after it, and where it was killed.
    """
    import json

    from isthmus_sites.cli.status import collect_status, serve_page, watch

    if sum((follow, page, as_json)) > 1 or (port is not None and not page):
        raise IsthmusError(
            "--watch, --page and --json, or a port without --page; expected one of them, and a "
            "port after --page; leave the others out"
        )
    if page:
        serve_page(folder, port or 0)
    elif follow:
        watch(folder)
    elif as_json:
        print(json.dumps(collect_status(folder), indent=2))
    else:
        from rich.console import Console

        from isthmus_sites.views import draw

        Console().print(draw(collect_status(folder)))


def _supervise(folder: Path) -> None:
    """Keeps the run of a folder going, and says what happens."""
    from isthmus.run.record import read_summary
    from isthmus_sites.flare.supervisor import supervise
    from isthmus_sites.folders import find_server
    from isthmus_sites.protocol import ServePlan

    server = find_server(folder)
    plan = ServePlan.load(server)

    def say(text: str) -> None:
        messages.print_line(f"{time.strftime('%H:%M:%S')} {text}")

    if supervise(folder, plan.names, plan.quorum, say, newcomers=plan.newcomers):
        print(f"records: {server.run}")
        print(f"digest: {read_summary(server.run).digest}")


def _check_admitted(folder: Path, names: list[str], quorum: float) -> None:
    """Refuses a run that too few of its sites may take part in; places may be kept for others."""
    from isthmus_sites.flare.admission import read_sites
    from isthmus_sites.folders import find_server

    admitted = read_sites(find_server(folder))
    missing = [name for name in names if name not in admitted or admitted[name].revoked]
    if len(names) - len(missing) < quorum * len(names):
        raise IsthmusError(
            f"the experiment names {', '.join(missing)}; expected sites that are admitted here; "
            "admit them with `isthmus serve admit` first, or lower --quorum to keep their places"
        )
    if missing:
        print(f"not admitted yet: {', '.join(missing)}; their places are kept")


def _read_seconds(name: str, text: str) -> float:
    """Reads a duration such as 90s, 30m, 2h or 1d."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    seconds = (
        float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]] if found else 0
    )
    if not 0 < seconds <= 30 * 86400:
        raise IsthmusError(
            f"--{name} {quote(text)}; expected a time of at most 30 days; for example 30m or 2h"
        )
    return seconds
