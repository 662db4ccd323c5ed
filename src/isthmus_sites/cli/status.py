"""How a run at real sites stands: read from files, shown once, followed, or served as a page."""

import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isthmus.cli.messages import print_line
from isthmus.errors import IsthmusError

if TYPE_CHECKING:
    from rich.console import Console

    from isthmus_sites.status import ServedRun

LOOPBACK = "127.0.0.1"
PAUSE = 1.0  # seconds between two looks at the files
REQUEST_TIMEOUT_S = 10.0  # seconds for a browser to say what it wants


def read_served(folder: Path) -> "ServedRun":
    """Reads what a server's folder says of its sites and its run."""
    from isthmus_sites.folders import find_server, is_held, read_table
    from isthmus_sites.protocol import read_events
    from isthmus_sites.status import AdmittedSite, ServedRun

    server = find_server(folder)
    admitted = read_table(server.sites)
    if not server.plan.exists():
        who = ", ".join(
            name for name, row in admitted.items() if not row.get("revoked") and "left" not in row
        )
        raise IsthmusError(
            f"{folder} has no run yet, and {who or 'nobody'} is admitted; expected a run; begin "
            "one with `isthmus serve run EXPERIMENT.toml`"
        )
    events, _ = read_events(server.events)
    lost = Counter(event.get("site") for event in events if event.get("event") == "lost")
    failed = {event.get("site") for event in events if event.get("event") == "left-out"}
    try:
        plan = tomllib.loads(server.plan.read_text("utf-8"))
        experiment = tomllib.loads(str(plan["experiment"]))
        return ServedRun(
            folder=str(folder),
            run=server.run,
            method=experiment["method"]["name"],
            rounds=experiment["rounds"],
            eval_every=experiment["eval_every"],
            selection=experiment["selection"],
            terms={key: plan[key] for key in ("quorum", "deadline", "grace", "least")},
            sites=[
                AdmittedSite(
                    name,
                    admitted=name in admitted,
                    revoked=bool(admitted.get(name, {}).get("revoked")),
                    left=admitted.get(name, {}).get("left"),
                    until=admitted.get(name, {}).get("until"),
                    lost=lost[name],
                    left_out=name in failed,
                )
                for name in experiment["data"]["names"]
            ],
            served=is_held(server.lock),
            events=events,
            call=_read_call(server.call),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise IsthmusError(
            f"{server.plan} cannot be used ({reason}); expected what `isthmus serve run` writes; "
            "call it again"
        ) from None


def _read_call(path: Path) -> dict[str, Any]:
    """Reads how the last call stands; nothing where there was none."""
    import json

    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and found.get("outcomes") else {}


def collect_status(folder: Path) -> dict[str, Any]:
    """Collects how the run of a server's folder stands."""
    from isthmus_sites.status import collect

    return collect(read_served(folder))


def list_stamps(folder: Path) -> list[tuple[int, int]]:
    """Lists when the files were changed that a status is made of, and how long they are."""
    from isthmus_sites.folders import ServerFolder

    server = ServerFolder(folder)
    files = [server.plan, server.sites, server.events, server.call, server.root / "serve.lock"]
    files += [*sorted(server.run.glob("*.csv")), server.run / "summary.json"]
    stats = [file.stat() for file in files if file.exists()]
    return [(stat.st_mtime_ns, stat.st_size) for stat in stats]


def watch(folder: Path, console: "Console | None" = None, pause: float = PAUSE) -> None:
    """Shows how a run stands, again whenever a file changes, until its last round or Ctrl-C.

    Where there is no terminal it prints a line for each change of what matters.
    """
    from rich.console import Console
    from rich.live import Live

    from isthmus_sites.views import describe_line, draw

    console = console or Console()
    facts = collect_status(folder)
    lives = console.is_terminal and not console.is_dumb_terminal
    with suppress(KeyboardInterrupt):  # the usual way to end it
        if lives:
            with Live(draw(facts), console=console, auto_refresh=False, screen=True) as live:
                for facts in _follow(folder, pause):
                    live.update(draw(facts), refresh=True)
        else:
            before = ""
            for facts in _follow(folder, pause):
                line = describe_line(facts)
                if line != before:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
                before = line
    if lives:
        console.print(draw(facts))


def _follow(folder: Path, pause: float) -> Iterator[dict[str, Any]]:
    """Yields how a run stands whenever its files changed, and when it is finished for the last."""
    before: list[tuple[int, int]] = []
    while True:
        stamps = list_stamps(folder)
        if stamps != before:
            before, facts = stamps, collect_status(folder)
            yield facts
            if facts["status"] == "finished":
                return
        time.sleep(pause)


class StatusServer(ThreadingHTTPServer):
    """Serves one page to this machine alone; reads the records again when they changed."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int):
        ThreadingHTTPServer.__init__(self, (LOOPBACK, port), StatusRequest)
        self.folder = folder
        self._stamps: list[tuple[int, int]] = []
        self._text = ""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def write_page(self) -> str:
        """Gives the page; one that says what is wrong where records cannot be read just now."""
        from isthmus_sites.views import render

        stamps = list_stamps(self.folder)
        if stamps != self._stamps or not self._text:
            self._text, self._stamps = render(collect_status(self.folder)), stamps
        return self._text


class StatusRequest(BaseHTTPRequestHandler):
    """Answers GET / of a browser on this machine, and nothing else."""

    server: StatusServer
    server_version, sys_version = "isthmus", ""
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        """Sends the page."""
        names = {f"{host}:{self.server.port}" for host in (LOOPBACK, "localhost")}
        if self.headers.get("Host", "") not in names:  # a site that names this machine as its own
            self.send_error(403, "not by this name")
        elif self.path != "/":
            self.send_error(404, "there is one page, /")
        else:
            try:
                self._send(self.server.write_page())
            except IsthmusError as error:
                self.send_error(503, "the records cannot be read", str(error))

    def end_headers(self) -> None:
        """Adds to every answer that nobody keeps it, frames it or runs scripts in it."""
        from isthmus_sites.views import POLICY

        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        BaseHTTPRequestHandler.end_headers(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing on the screen."""

    def _send(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def open_page(folder: Path, port: int = 0) -> StatusServer:
    """Opens a port of the loopback for the page; any that is free if none is named."""
    try:
        return StatusServer(folder, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"port {port} cannot be opened ({reason}); expected one that is free, 1024 to 65535; "
            "name another, or none"
        ) from None


def serve_page(folder: Path, port: int = 0) -> None:
    """Serves the page until Ctrl-C."""
    collect_status(folder)  # a mistake shows here, not in the browser
    with open_page(folder, port) as server:
        print_line(f"http://{LOOPBACK}:{server.port}/ (this machine alone; Ctrl-C ends it)")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
