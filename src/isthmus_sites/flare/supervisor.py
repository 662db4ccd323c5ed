"""Keeps a server and its job going until the last round, whichever process fails.

NVFlare's jobs have fixed members, and none outlives its server. So a job is submitted with the
sites that are there, ends after a round when a site is lost or comes back, and is submitted
again; the rounds continue from their store. Other sites that were admitted are in it as newcomers,
and their number decides nothing.
"""

import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from subprocess import Popen
from typing import Any, NamedTuple

from isthmus.errors import IsthmusError
from isthmus.run.record import read_summary
from isthmus.system.files import write_text
from isthmus_sites.flare import keys, kits
from isthmus_sites.flare.admission import read_sites, renew_server
from isthmus_sites.flare.controller import control_file, job_note_file
from isthmus_sites.flare.jobs import JobNote, read_note, write_job
from isthmus_sites.flare.processes import (
    LOG,
    end_process,
    find_port,
    start_process,
    wait_for_port,
    write_logs,
)
from isthmus_sites.folders import ServerFolder, find_server, hold, is_held, read_table
from isthmus_sites.protocol import JOINED, read_events, write_event

FRESH = 3 * kits.BEAT  # a site that was heard of since then is there
LOOK = 1.0  # seconds between questions to the server's process; files are read more often
FAILURES = 3  # jobs in a row that a site may fail, and jobs that end because a newcomer came
TROUBLES = 100  # in a row, until there is no hope
REVOKED, LEFT = "revoked", "left"
DEPARTED = {REVOKED: "is revoked", LEFT: "has left"}
GONE = ("FINISHED", "FAILED", "ABANDON")  # how the status of a job begins that is over
OVER = ("done", "ended", "refused", "failed")


class Waits(NamedTuple):
    """How long to wait for what, in seconds."""

    settle: float = 5.0  # for more sites, once there are enough
    back: float = 45.0  # for a site that was there a moment ago
    login: float = 120.0  # for the server's process to listen
    launch: float = 300.0  # for a job that was submitted to begin
    ending: float = 30.0  # for a job that is over to be gone
    quorum: float = 7 * 86400.0  # for enough sites


def supervise(
    folder: Path,
    names: Sequence[str],
    quorum: float,
    say: Callable[[str], None] = print,
    waits: Waits = Waits(),  # noqa: B008
    newcomers: bool = True,
) -> bool:
    """Run the rounds that are left with these sites; False if it was asked to stop before.

    Where none is left, no site is needed: those connected hear of it, and newcomers join.
    Ctrl-C ends it at once: the current round is lost, and none before it.
    """
    server = find_server(folder.resolve())
    busy = f"{folder} is served by another process; stop it with `isthmus serve stop` first"
    with hold(server.lock, 5, busy), write_logs(server):
        return Supervisor(server, names, quorum, say, waits, newcomers).run()


def stop_serving(folder: Path) -> None:
    """Stop the run that is served here after the current round."""
    server = find_server(folder.resolve())
    if not is_held(server.lock):
        raise IsthmusError(
            f"nobody serves {folder}; begin a run with `isthmus serve run`, or continue it with "
            "`isthmus serve resume`"
        )
    write_text(control_file(server, "stop"), "", sync=True)


class Supervisor:
    """What is known of the server's process, its job and its sites."""

    def __init__(
        self,
        server: ServerFolder,
        names: Sequence[str],
        quorum: float,
        say: Callable[[str], None],
        waits: Waits,
        newcomers: bool,
    ) -> None:
        self.server, self.names, self.say, self.waits = server, tuple(names), say, waits
        finished = read_summary(server.run).finished
        self.needed = 0 if finished else max(1, math.ceil(quorum * len(self.names)))
        self.newcomers = newcomers
        self.came: Counter[str] = Counter()  # newcomers for whom a job ended
        _, self.place = read_events(server.events)
        self.process: Popen[bytes] | None = None
        self.session: Any = None
        self.job = ""
        self.submitted = 0.0
        self.looked = 0.0  # when the server's process was asked last
        self.failures: Counter[str] = Counter()
        self.missed: dict[str, float] = {}  # when a site was lost
        self.left_out: set[str] = set()
        self.departed: dict[str, str] = {}  # sites that are revoked, or have left
        self.troubles = 0  # in a row: what the pause before another attempt grows with

    def run(self) -> bool:
        """Watch until all is done."""
        for stale in (control_file(self.server, "regroup"), job_note_file(self.server)):
            stale.unlink(missing_ok=True)
        renewed = renew_server(self.server)
        if renewed:
            self._tell("renewed", renewed)
        try:
            while True:
                try:
                    ended = self._advance()
                except IsthmusError:
                    raise
                except Exception as error:  # whatever NVFlare raises when a server is gone, or slow
                    LOG.exception("in the session of the lead")
                    self._back_off(f"the server does not answer ({type(error).__name__})")
                else:
                    if ended is not None:
                        return ended
                    time.sleep(0.2)
        finally:  # one that was killed leaves the wish to stop to the next
            self._close()
            control_file(self.server, "stop").unlink(missing_ok=True)

    def _advance(self) -> bool | None:
        """Do the next step; return True after the last round, False if it was asked to stop."""
        if not self.job and control_file(self.server, "stop").exists():
            self._tell("stopped", "stopped, as asked for; continue it with `isthmus serve resume`")
            return False
        self._keep_server()
        self._apply_departures()
        if not self.job:
            self._gather()
            return None
        return self._watch()

    def _keep_server(self) -> None:
        """Start the server's process if it is not there, and log in."""
        if self.process is not None and self.process.poll() is None and self.session is not None:
            return
        if self.process is None or self.process.poll() is not None:
            if self.process is not None:
                self._tell("server-lost", "the server's process ended; starting it again")
                end_process(self.process)
            self._drop_session()
            self.job = ""
            settings = read_table(self.server.settings)
            wait_for_port(settings["port"])
            lead_port = find_port()
            kits.write_server_kit(self.server, settings["host"], settings["port"], lead_port)
            self._forget_jobs()
            self.process = start_process("server", self.server.kit)
            self._log_in()
            if self.session is not None:
                self._tell("server", "the server is up")
        else:
            self._log_in()

    def _log_in(self) -> None:
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        assert self.process is not None
        ends = time.monotonic() + self.waits.login
        while self.session is None:
            if self.process.poll() is not None or time.monotonic() > ends:
                where = self.server.kit / "output.log"
                self._back_off(f"the server's process does not start; see {where}")
                end_process(self.process)
                return
            try:
                with redirect_stdout(StringIO()):
                    self.session = new_secure_session(keys.LEAD, str(self.server.lead), timeout=2.0)
                self.session.set_timeout(10.0)
            except Exception:  # it does not listen yet
                LOG.info("no session", exc_info=True)
                time.sleep(0.3)

    def _gather(self) -> None:
        """Wait for enough sites, a little longer for the rest, and submit a job with them."""
        began, enough, said = time.monotonic(), 0.0, -math.inf
        while True:
            if control_file(self.server, "stop").exists():
                return
            assert self.process is not None
            if self.process.poll() is not None:
                return
            self._apply_departures()
            there, now = self._find_present(), time.monotonic()
            others = self._find_newcomers()
            wanted = set(self.names) - self.left_out - set(self.departed)
            if len(there) < self.needed or not there | others:
                enough = 0.0
                if now - said > 60:
                    said = now
                    missing = ", ".join(sorted(wanted - there)) or "no site that is allowed"
                    text = f"{len(there)} of {self.needed} sites that are needed; waiting for "
                    text = text if self.needed else "all rounds are done; waiting for newcomers or "
                    gone = [f"; {name} {DEPARTED[how]}" for name, how in self.departed.items()]
                    self._tell("waiting", "".join([text, missing, *gone]), there=sorted(there))
                if now - began > self.waits.quorum:
                    raise IsthmusError(
                        f"{len(there)} of {self.needed} sites came within {self.waits.quorum:g} s; "
                        "call `isthmus serve resume` when they are there"
                    )
            else:
                enough = enough or now
                awaited = {name: now - self.missed.get(name, -math.inf) for name in wanted}
                soon = {name for name, since in awaited.items() if since < self.waits.back} - there
                if there >= wanted or (now - enough > self.waits.settle and not soon):
                    self._submit(sorted(there | others))
                    return
            time.sleep(0.3)

    def _submit(self, sites: list[str]) -> None:
        control_file(self.server, "regroup").unlink(missing_ok=True)
        job_note_file(self.server).unlink(missing_ok=True)
        self.job = str(self.session.submit_job(str(write_job(self.server, sites))))
        self.submitted = time.monotonic()
        self._tell("job", f"a job with {', '.join(sites)}", job=self.job, sites=sites)

    def _watch(self) -> bool | None:
        """Look at a job: whether it began, whether a site is back, whether it is over."""
        note = read_note(self.server, self.job)
        self._say_who_joined()
        status = ""
        if note.state not in OVER:
            if time.monotonic() - self.looked < LOOK:
                return None
            self.looked = time.monotonic()
            if note.state == "running":
                self.troubles = 0
                self._regroup(set(note.sites))
            elif not note.state and self.looked - self.submitted > self.waits.launch:
                self._end_job()
                self._back_off("the job did not begin")
                return None
            status = self._read_status()
            if not status.startswith(GONE):
                return None
            note = read_note(self.server, self.job)  # it may have ended in between
        self._judge(note)
        self._end_job()
        if note.state == "done":
            self.needed = 0
            others = self._find_newcomers() - set(note.sites)
            if self._count_newcomers(others):
                self._tell("back", f"{', '.join(sorted(others))} came after the last round")
                return None
            self._tell("done", "the last round is done")
            return True
        if note.state == "refused":
            write_event(self.server.events, "refused", text=note.why)
            raise IsthmusError(note.why)
        if note.state != "ended":
            self._back_off(f"the job failed ({note.why or status})")
        return None

    def _regroup(self, members: set[str]) -> None:
        """End a job after its round when a site is connected that is not in it."""
        if control_file(self.server, "regroup").exists():
            return
        back = self._find_present() - members
        back |= self._count_newcomers(self._find_newcomers() - members)
        if back:
            self._tell("back", f"{', '.join(sorted(back))} came: the job begins again with it")
            write_text(control_file(self.server, "regroup"), "")

    def _count_newcomers(self, names: set[str]) -> set[str]:
        """Return the newcomers for which a job may start again: each a few times at most."""
        few = {name for name in names if self.came[name] < FAILURES}
        self.came.update(few)
        return few

    def _say_who_joined(self) -> None:
        """Print which newcomers joined, according to the job."""
        rows, self.place = read_events(self.server.events, self.place)
        for row in rows:
            if row.get("event") == JOINED:
                self.say(str(row.get("text")))

    def _judge(self, note: JobNote) -> None:
        """Count the sites that failed the job, and leave out those that failed too often."""
        self._say_who_joined()
        for site, why in note.lost.items():
            self._tell("lost", f"{site} was lost ({why}): the round is played again", site=site)
        if note.rounds:
            self.failures.clear()
        for site in note.lost:
            self.failures[site] += 1
            self.missed[site] = time.monotonic()
            if self.failures[site] >= FAILURES:
                self.left_out.add(site)
                text = f"{site} failed {FAILURES} jobs in a row: it is left out from now on"
                self._tell("left-out", text, site=site)

    def _end_job(self) -> None:
        """End a job before another one begins."""
        ends, job = time.monotonic() + self.waits.ending, self.job
        self.job, aborted = "", False
        while time.monotonic() < ends:
            if self._read_status(job).startswith(GONE):
                break
            if not aborted and time.monotonic() > ends - self.waits.ending / 2:
                self.session.abort_job(job)
                aborted = True
            time.sleep(0.2)
        else:
            self._tell("stuck", "the job does not end: the server is started again")
            if self.process:
                end_process(self.process)
            return
        self.session.delete_job(job)

    def _read_status(self, job: str = "") -> str:
        from nvflare.fuel.flare_api.api_spec import JobNotFound

        try:
            return str(self.session.get_job_meta(job or self.job)["status"])
        except JobNotFound:
            return "FAILED: unknown"

    def _find_present(self) -> set[str]:
        """Return the sites of the run that were heard of just now, and may take part."""
        return (self._find_fresh() & set(self.names)) - self.left_out - set(self.departed)

    def _find_newcomers(self) -> set[str]:
        """Return the other sites that were heard of just now, and may take part."""
        if not self.newcomers:
            return set()
        admitted = set(read_sites(self.server)) - set(self.departed)
        return (self._find_fresh() & admitted) - set(self.names)

    def _find_fresh(self) -> set[str]:
        clients = self.session.get_system_info().client_info
        now = time.time()
        return {client.name for client in clients if now - client.last_connect_time < FRESH}

    def _apply_departures(self) -> None:
        """Continue without sites that were revoked or have left; a revoked token is void."""
        if self.session is None:
            return
        before, self.departed = self.departed, _list_departures(self.server)
        for name, how in self.departed.items():
            if before.get(name) != how:
                if how == REVOKED:
                    self.session.disable_client(name)
                text = f"{name} {DEPARTED[how]}: the run continues without it"
                self._tell(how, text, site=name)
                write_text(control_file(self.server, "regroup"), "")
        for name, how in before.items():
            if how == REVOKED and self.departed.get(name) != REVOKED:
                self.session.enable_client(name)

    def _back_off(self, why: str) -> None:
        self.troubles += 1
        if self.troubles > TROUBLES:
            raise IsthmusError(
                f"{why}, for the {TROUBLES}th time; see {self.server.kit / 'log.txt'}, then call "
                "`isthmus serve resume`"
            )
        pause = min(60.0, 0.5 * 2**self.troubles)
        self._tell("trouble", f"{why}; trying again in {pause:g} s")
        self._drop_session()
        time.sleep(pause)

    def _tell(self, event: str, text: str, **facts: Any) -> None:
        write_event(self.server.events, event, text=text, **facts)
        self.say(text)

    def _drop_session(self) -> None:
        if self.session is not None:
            with suppress(Exception), redirect_stdout(StringIO()):
                self.session.close()
        self.session = None

    def _forget_jobs(self) -> None:
        """Remove what jobs of an earlier process left: none of them is ever taken up again."""
        for name in ("jobs", "snapshots", "transfer"):
            shutil.rmtree(self.server.kit / name, ignore_errors=True)
        note = read_note(self.server)
        if note.job:
            shutil.rmtree(self.server.kit / note.job, ignore_errors=True)

    def _close(self) -> None:
        self._drop_session()
        if self.process is not None:
            end_process(self.process)


def _list_departures(server: ServerFolder) -> dict[str, str]:
    """Return the sites that no longer take part, and why."""
    sites = read_sites(server).items()
    left = {name: LEFT for name, site in sites if site.left is not None}
    return left | {name: REVOKED for name, site in sites if site.revoked}
