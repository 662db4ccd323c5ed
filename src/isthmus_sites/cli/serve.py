"""The commands below `isthmus serve`: the server of a federation of real sites."""

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isthmus.cli import messages
from isthmus.cli.options import AsJson, Settings, read_experiment, require_sites
from isthmus.errors import IsthmusError, quote

if TYPE_CHECKING:
    from rich.console import Console

LOOPBACK = "127.0.0.1"
WATCH_PAUSE_S = 1.0
REQUEST_TIMEOUT_S = 10.0
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

app = typer.Typer(
    rich_markup_mode="markdown",
    help="Run a federation of real sites: who is in it, and its runs.\n\n"
    "Begin with `isthmus serve init FOLDER --host fl.example.org --port 8002`; sites begin with "
    "`isthmus join request`.",
)
Folder = Annotated[
    Path,
    typer.Option("--folder", metavar="DIR", help="Folder of the federation."),
]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for all of it.")],
    host: Annotated[str, typer.Option(metavar="NAME", help="Name or address that sites use.")],
    port: Annotated[int, typer.Option(metavar="NUMBER", help="Port; open it to sites.")] = 8002,
) -> None:
    """Create a federation: an authority that signs, the server's kit, the lead's key.

    Example: `isthmus serve init trial --host fl.example.org --port 8002`

    The folder decides who takes part: keep it, and a backup of it, where no one else can read.
    A host of 127.0.0.1 is for trials on one machine.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import begin_federation

    fingerprint = begin_federation(folder, host, port)
    print(f"federation: {folder}, to be reached at {host}:{port}")
    print(f"fingerprint: {fingerprint}")
    print(f"next: isthmus serve admit NAME.request.zip --folder {folder}")


@app.command()
def admit(
    request: Annotated[Path, typer.Argument(metavar="REQUEST.zip", help="Request of a site.")],
    folder: Folder = Path(),
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the package.")] = Path(),
    renew: Annotated[bool, typer.Option("--renew", help="Replace a site's certificate.")] = False,
) -> None:
    """Admit a site: sign its request, and make the package that goes back to it.

    Examples, one per line:

    `isthmus serve admit hospital-a.request.zip`

    `isthmus serve admit hospital-a.request.zip --renew` replaces the certificate of before.

    Send the package any way you like: without the site's key it is worth nothing. Give the
    fingerprint by telephone, so that the site knows whose package it is.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import admit_site

    package, fingerprint = admit_site(folder, request, out, again=renew)
    print(f"package: {package}")
    print(f"fingerprint, to be given by telephone: {fingerprint}")


@app.command()
def move(
    folder: Folder = Path(),
    host: Annotated[str, typer.Option(metavar="NAME", help="New name or address.")] = "",
    port: Annotated[int | None, typer.Option(metavar="NUMBER", help="New port.")] = None,
) -> None:
    """Change the server's name, address or port; each site then needs a new package.

    Example: `isthmus serve move --host fl2.example.org --folder trial`

    Stop the run first. What is left out stays. The authority is the same, and so are the
    fingerprint, the sites' keys and the run.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import move_server

    if not host and port is None:
        raise IsthmusError("nothing to move; give --host, --port or both")
    where, sites = move_server(folder, host, -1 if port == 0 else port or 0)
    print(f"to be reached at {where}")
    for name in sites:
        print(f"  isthmus serve admit {name}.request.zip --renew --folder {folder}")
    print(
        "next: the above, with the requests that sites made or new ones; they accept the packages"
    )


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Site that was admitted.")],
    folder: Folder = Path(),
) -> None:
    """Revoke a site's certificate, at once and for good.

    Example: `isthmus serve revoke hospital-a`

    A run continues without it after the current round. Admit it again with
    `isthmus serve admit REQUEST.zip --renew`.
    """
    require_sites("serve")
    from isthmus_sites.flare.admission import revoke_site

    revoke_site(folder, name)
    print(f"{name} is revoked")


@app.command()
def forget(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Site of the run.")],
    folder: Folder = Path(),
) -> None:
    """Delete all figures of a site from the records of a run that has ended.

    Example: `isthmus serve forget hospital-a`

    It prints what cannot be deleted: what models have learned from the site, and copies elsewhere.
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
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT.toml", help="Experiment of sites.")],
    folder: Folder = Path(),
    quorum: Annotated[
        float, typer.Option(metavar="SHARE", help="Fraction of sites that must answer (0-1].")
    ] = 1.0,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Longest time for a call: 90s, 30m, 2h, 1d.")
    ] = "2h",
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Time for the other sites after a quorum answered.")
    ] = "30s",
    min_sites: Annotated[
        int,
        typer.Option(min=2, help="Smallest number of sites whose figures may be aggregated."),
    ] = 3,
    newcomers: Annotated[
        bool,
        typer.Option(
            "--newcomers/--no-newcomers", help="Let other admitted sites join to receive a model."
        ),
    ] = True,
    settings: Settings = None,
) -> None:
    """Run an experiment at the sites, and keep it running until its last round.

    Examples, one per line:

    `isthmus serve run experiment.toml --quorum 0.7 --deadline 2h`

    `isthmus serve run experiment.toml --set rounds=50`

    Every site has to agree to exactly this experiment. Sites may fail and come back meanwhile, and
    so may this machine: `isthmus serve resume` continues the run. Ctrl-C ends it within the round,
    `isthmus serve stop` after it.
    """
    require_sites("serve")
    from isthmus_sites.consent import finalize_experiment
    from isthmus_sites.folders import find_server
    from isthmus_sites.protocol import ServePlan

    server = find_server(folder)
    if not 0 < quorum <= 1:
        raise IsthmusError(f"--quorum must be above 0 and at most 1, not {quorum:g}")
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
            f"{server.run} holds the run of another experiment; move it elsewhere, or continue it "
            "with `isthmus serve resume`"
        )
    _check_admitted(folder, list(experiment.data["names"]), quorum)
    plan.save(server)
    # A new process, since what read the experiment would hold memory during the whole run.
    sys.stdout.flush()
    words = ["-m", "isthmus", "serve", "resume", "--folder", str(folder)]
    os.execv(sys.executable, [sys.executable, *words])


@app.command()
def resume(folder: Folder = Path()) -> None:
    """Continue a run at the sites that was stopped, or whose server died.

    Example: `isthmus serve resume --folder trial`

    Newcomers to a run that is over get a model of the last round.
    """
    require_sites("serve")
    from isthmus.run.record import read_summary
    from isthmus_sites.flare.supervisor import supervise
    from isthmus_sites.folders import find_server
    from isthmus_sites.protocol import ServePlan

    server = find_server(folder)
    plan = ServePlan.load(server)
    if supervise(folder, plan.names, plan.quorum, _print_timed, newcomers=plan.newcomers):
        print(f"records: {server.run}")
        print(f"digest: {read_summary(server.run).digest}")


@app.command()
def stop(folder: Folder = Path()) -> None:
    """Stop the run after the current round.

    Example: `isthmus serve stop --folder trial`
    """
    require_sites("serve")
    from isthmus_sites.flare.supervisor import stop_serving

    stop_serving(folder)
    print("the run stops after the current round; continue it with `isthmus serve resume`")


@app.command()
def status(
    port: Annotated[
        int | None, typer.Argument(metavar="[PORT]", help="Port of the page [default: a free one].")
    ] = None,
    folder: Folder = Path(),
    follow: Annotated[bool, typer.Option("--watch", help="Update until the last round.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Serve a page to this machine.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how the run at the sites stands: who answered, how far it is, how models do.

    Examples, one per line:

    `isthmus serve status --folder trial --watch`

    `isthmus serve status --folder trial --page 8080`

    It only reads files, so it works during the run, after it, and where it was killed.
    """
    from isthmus_sites.status import collect_status

    if sum((follow, page, as_json)) > 1 or (port is not None and not page):
        raise IsthmusError("use one of --watch, --page and --json, and a port only with --page")
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


def watch(folder: Path, console: "Console | None" = None, pause: float = WATCH_PAUSE_S) -> None:
    """Show how a run stands again and again, until its last round or Ctrl-C.

    Without a terminal it prints a line whenever something changed that matters.
    """
    from rich.console import Console
    from rich.live import Live

    from isthmus_sites.status import collect_status
    from isthmus_sites.views import describe_line, draw

    console = console or Console()
    facts = collect_status(folder)
    lives = console.is_terminal and not console.is_dumb_terminal

    def follow() -> Iterator[dict[str, Any]]:
        nonlocal facts
        yield facts
        while facts["status"] != "finished":
            time.sleep(pause)
            facts = collect_status(folder)
            yield facts

    with suppress(KeyboardInterrupt):  # the usual way to end it
        if lives:
            with Live(console=console, auto_refresh=False, screen=True) as live:
                for each in follow():
                    live.update(draw(each), refresh=True)
        else:
            before = ""
            for each in follow():
                line = describe_line(each)
                if line != before:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
                before = line
    if lives:
        console.print(draw(facts))


class StatusRequest(BaseHTTPRequestHandler):
    """Answers GET / of a browser on this machine, and nothing else."""

    server: "StatusServer"
    server_version, sys_version = "isthmus", ""
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        """Send the page."""
        from isthmus_sites.status import collect_status
        from isthmus_sites.views import render

        names = {f"{host}:{self.server.server_address[1]}" for host in (LOOPBACK, "localhost")}
        if self.headers.get("Host", "") not in names:  # another site's name for this machine
            self.send_error(403, "not by this name")
        elif self.path != "/":
            self.send_error(404, "there is one page, /")
        else:
            try:
                self._send(render(collect_status(self.server.folder)).encode())
            except IsthmusError as error:
                self.send_error(503, "the records cannot be read", str(error))

    def end_headers(self) -> None:
        """Forbid caching, frames and scripts in every answer."""
        from isthmus_sites.views import POLICY

        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        BaseHTTPRequestHandler.end_headers(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _send(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class StatusServer(ThreadingHTTPServer):
    """Serves one page to this machine only."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int):
        ThreadingHTTPServer.__init__(self, (LOOPBACK, port), StatusRequest)
        self.folder = folder


def open_page(folder: Path, port: int = 0) -> StatusServer:
    """Open a port of the loopback for the page; a free one if it is 0."""
    try:
        return StatusServer(folder, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"port {port} cannot be opened ({reason}); name another, or none"
        ) from None


def serve_page(folder: Path, port: int = 0) -> None:
    """Serve the page until Ctrl-C."""
    from isthmus_sites.status import collect_status

    collect_status(folder)  # a mistake shows here, not in the browser
    with open_page(folder, port) as server, suppress(KeyboardInterrupt):
        where = f"http://{LOOPBACK}:{server.server_address[1]}/"
        messages.print_line(f"{where} (for this machine only; Ctrl-C ends it)")
        server.serve_forever()


def _print_timed(text: str) -> None:
    messages.print_line(f"{time.strftime('%H:%M:%S')} {text}")


def _check_admitted(folder: Path, names: list[str], quorum: float) -> None:
    """Refuse a run that too few of its sites may take part in; places may be kept for others."""
    from isthmus_sites.flare.admission import read_sites
    from isthmus_sites.folders import find_server

    admitted = read_sites(find_server(folder))
    missing = [name for name in names if name not in admitted or admitted[name].revoked]
    if len(names) - len(missing) < quorum * len(names):
        raise IsthmusError(
            f"{', '.join(missing)}: not admitted; call `isthmus serve admit`, or lower --quorum to "
            "keep their places"
        )
    if missing:
        print(f"not admitted yet: {', '.join(missing)}; their places are kept")


def _read_seconds(name: str, text: str) -> float:
    """Return a duration such as 90s, 30m, 2h or 1d in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    seconds = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 0 < seconds <= 30 * UNITS["d"]:
        raise IsthmusError(
            f"--{name} must be a time of at most 30 days, such as 30m or 2h, not {quote(text)}"
        )
    return seconds
