"""Keeps a site's process going: starts it again when it ends, and tells its people what happens."""

import datetime as dt
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from subprocess import Popen
from typing import Any

from isthmus.errors import IsthmusError
from isthmus_sites.consent import find_consent
from isthmus_sites.flare.admission import SOON
from isthmus_sites.flare.executor import remove_jobs
from isthmus_sites.flare.kits import BEAT, write_site_rules
from isthmus_sites.flare.processes import end_process, start_process
from isthmus_sites.folders import SiteFolder, find_site, hold, is_held, read_table, write_table
from isthmus_sites.protocol import read_events

LONGEST_PAUSE_S = 60.0  # seconds between attempts
TELLING = 3 * BEAT  # seconds for a site that leaves to tell its server
DAY = 86400.0  # seconds
STEADY = 60.0  # seconds after which a process is taken to have started well


def keep_site(
    folder: Path, say: Callable[[str], None] = print, ended: Callable[[], bool] = lambda: False
) -> None:
    """Take part until it is interrupted, whatever happens to the server or to the wire."""
    site = find_site(folder.resolve(), accepted=True)
    settings = read_table(site.settings)
    if "left" in settings:
        raise IsthmusError(f"{settings['name']} has left; come back with `isthmus join accept`")
    name, server = settings["name"], f"{settings['host']}:{settings['port']}"
    reminded = _remind(settings, say, -math.inf)
    _check_data(site)
    # As Ctrl-C: a service is ended so.
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)) if main else None
    busy = f"{folder} is in use by another process; end it, or wait until it ends"
    try:
        with hold(site.root / "join.lock", 5, busy):
            write_site_rules(site)
            remove_jobs(site)
            say(f"{name} takes part at {server}; Ctrl-C ends it")
            _, place = read_events(site.events)
            process: Popen[bytes] | None = None
            began, pause, connected = 0.0, 1.0, False
            leaving = math.inf  # when it was seen that the site has left
            try:
                while not ended():
                    known, settings = settings, read_table(site.settings)
                    reminded = _remind(settings, say, reminded)
                    if process and settings["until"] != known["until"]:
                        server = f"{settings['host']}:{settings['port']}"
                        say(f"a new package was accepted; it is valid until {settings['until']:%F}")
                        end_process(process)
                    if "left" in settings:
                        leaving = min(leaving, time.monotonic())
                    if time.monotonic() - leaving > (TELLING if connected else 0):
                        break
                    if process is None or process.poll() is not None:
                        if process is not None:
                            pause = 1.0 if time.monotonic() - began > STEADY else 2 * pause
                            wait = min(pause, LONGEST_PAUSE_S)
                            what = "ended" if connected else f"was refused; see {site.kit}/log.txt"
                            say(f"the connection to {server} {what}; again in {wait:g} s")
                            _sleep(wait, ended)
                        beat = f"heart_beat_interval={BEAT}"
                        process = start_process("site", site.kit, f"uid={name}", beat)
                        began, connected = time.monotonic(), False
                    rows, place = read_events(site.events, place)
                    connected |= any(row.get("event") == "connected" for row in rows)
                    for row in rows:
                        say(f"{row.get('event')}: {row.get('why', server)}")
                    if any(row.get("event") == "left" for row in rows):
                        break
                    _sleep(0.3, ended)
            finally:
                if process is not None:
                    end_process(process)
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _check_data(site: SiteFolder) -> None:
    """Refuse to take part without the data that the people of a site agreed with."""
    if any(site.agreements.glob("*.toml")) and not Path(find_consent(site).data).exists():
        raise IsthmusError(
            f"{find_consent(site).data} is not there; call `isthmus join check --data FILE` with "
            "their new place, then `isthmus join agree` again"
        )


def _remind(settings: Mapping[str, Any], say: Callable[[str], None], last: float) -> float:
    """Remind once a day that a certificate ends soon, refuse one that has ended; return when."""
    name, until = settings["name"], settings["until"]
    left, renewal = until - dt.datetime.now(dt.UTC), f"`isthmus join request --name {name} --renew`"
    if left < dt.timedelta():
        raise IsthmusError(
            f"the certificate of {name} ended on {until:%Y-%m-%d}; renew it: {renewal}"
        )
    if left > SOON or time.monotonic() - last < DAY:
        return last
    say(f"the certificate of {name} ends on {until:%Y-%m-%d}; renew it: {renewal}")
    return time.monotonic()


def leave_federation(folder: Path, seconds: float = TELLING) -> tuple[str, bool]:
    """Leave the federation; return the site's name, and whether the server was told.

    The process that keeps the connection tells the server, and ends.
    """
    site = find_site(folder, accepted=True)
    settings = read_table(site.settings)
    _, place = read_events(site.events)
    write_table(site.settings, {**settings, "left": dt.datetime.now(dt.UTC).replace(microsecond=0)})
    told, ends = False, time.monotonic() + seconds
    while not told and time.monotonic() < ends and is_held(site.root / "join.lock"):
        time.sleep(0.1)
        told = _was_told(site, place)
    return str(settings["name"]), told


def _was_told(site: SiteFolder, place: int) -> bool:
    rows, _ = read_events(site.events, place)
    return any(row.get("event") == "left" for row in rows)


def describe_unit(folder: Path) -> str:
    """Return the systemd unit that takes part from boot on."""
    site = find_site(folder.resolve(), accepted=True)
    name = read_table(site.settings)["name"]
    unit = Template((files("isthmus_sites.flare") / "files" / "site.service").read_text("utf-8"))
    return unit.substitute(name=name, python=sys.executable, folder=site.root).rstrip()


def _sleep(seconds: float, ended: Callable[[], bool]) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not ended():
        time.sleep(0.1)
