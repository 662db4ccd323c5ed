"""The job at the server: carries the messages of rounds to sites, and says when it has to end."""

import json
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable

from isthmus.errors import IsthmusError
from isthmus.system.files import write_text
from isthmus_sites.flare.executor import ANSWER, CALL, SECONDS, TASK
from isthmus_sites.folders import ServerFolder
from isthmus_sites.protocol import ServePlan, SiteAnswer

UNSEEN = 600.0  # seconds for a site's process to start and to fetch its first call
WAIT = 0.05


class JobAbortedError(Exception):
    """The job ends in the middle of a round, which is as if it had not begun.

    So it ends when a member of it is gone, too: the next job has the site in it again, or continues
    without it, and the round is played as if nothing had happened.
    """


def limit_fetching(sites: int, slowest: float) -> float:
    """Return the seconds after which a site that has not fetched its call counts as gone.

    A server answers its sites one by one, so it grows with their number. A machine or a wire with
    too much to do is slow for all: who takes four times as long as the slowest so far is not just
    slow.

    >>> limit_fetching(3, 0.2), limit_fetching(20, 1.0), limit_fetching(3, 6.0)
    (9.5, 18.0, 24.0)
    """
    return max(8 + 0.5 * sites, 4 * slowest)


class Waiting(NamedTuple):
    """A call that is not answered yet."""

    task: Any
    sent: float


class RoundController(Controller):  # type: ignore[misc]
    """A transport to the sites of the job, and what conducts the rounds over it."""

    def __init__(self) -> None:
        Controller.__init__(self, task_check_period=WAIT)
        self.server = ServerFolder(Path())
        self.abort: Any = None
        self.job = ""
        self.sites: set[str] = set()
        self.members: set[str] = set()  # the clients of the run; other sites are newcomers
        self.lost: dict[str, str] = {}  # gone for this job, and why
        self.rounds = 0  # that this job has done
        self.seen: set[str] = set()
        self.slowest = 0.0  # seconds that a site took to fetch a call, once it was seen
        self.busy: set[str] = set()  # still at a call that is no longer waited for

    def start_controller(self, fl_ctx: Any) -> None:
        """Do nothing: all is done in the flow."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Do nothing: all is done in the flow."""

    def process_result_of_unknown_task(self, *given: Any, **named: Any) -> None:
        """Drop an answer that came too late."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Conduct the rounds that are left, until the last, or until the job has to end."""
        from isthmus_sites.server import conduct

        self.abort, self.job = abort_signal, str(fl_ctx.get_job_id())
        self.server = ServerFolder(Path(fl_ctx.get_workspace().get_root_dir()).parent)
        self.sites = {client.name for client in fl_ctx.get_engine().get_clients()}
        self.members = set(ServePlan.load(self.server).names)
        self._note("running")
        try:
            done = conduct(self.server.root, self, self.has_to_end)
            self._note("done" if done else "ended")
        except JobAbortedError:
            self._note("ended")
        except IsthmusError as error:
            self._note("refused", str(error))
        except Exception as error:
            self._note("failed", f"{type(error).__name__}: {error}")
            self.log_error(fl_ctx, traceback.format_exc())

    def has_to_end(self) -> bool:
        """Whether the job ends after this round, because a site is back or on request."""
        self.rounds += 1
        self._note("running")
        return is_asked_to_end(self.server)

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Send each site its message; see Transport."""
        answers: SimpleQueue[tuple[str, bytes | None]] = SimpleQueue()
        waiting: dict[str, Waiting] = {}
        try:
            for site, message in messages.items():
                if site in self.sites:
                    waiting[site] = self._send(site, message, seconds, answers)
                else:
                    yield SiteAnswer(site, None, "absent")
            ends = time.monotonic() + seconds
            while waiting:
                for site in self._check(waiting):
                    self._cancel(site, waiting.pop(site))
                    yield SiteAnswer(site, None, "absent")
                if time.monotonic() > ends or self._is_idle(waiting):
                    yield from [SiteAnswer(site, None, "late") for site in waiting]
                    return
                try:
                    site, answer = answers.get(timeout=WAIT)
                except Empty:
                    yield None
                    continue
                if waiting.pop(site, None):
                    self.busy.discard(site)
                    yield SiteAnswer(site, answer, "" if answer is not None else "failed")
        finally:
            for site, call in waiting.items():
                self._cancel(site, call)

    def _send(
        self, site: str, message: bytes, seconds: float, answers: SimpleQueue[Any]
    ) -> Waiting:
        data = Shareable()
        data[CALL], data[SECONDS] = message, float(seconds)

        def take(client_task: Any, fl_ctx: Any) -> None:
            reply, client_task.result = client_task.result, None
            right = isinstance(reply, Shareable) and reply.get_return_code() == ReturnCode.OK
            answer = reply.get(ANSWER) if right else None
            answers.put((site, answer if isinstance(answer, bytes) else None))

        def note_fetched(client_task: Any, fl_ctx: Any) -> None:
            if site in self.seen - self.busy and not client_task.task_send_count:
                self.slowest = max(self.slowest, time.monotonic() - sent)
            self.seen.add(site)

        calls = {"before_task_sent_cb": note_fetched, "result_received_cb": take}
        task, sent = Task(TASK, data, timeout=int(seconds) + 2, **calls), time.monotonic()
        with self._engine.new_context() as context:
            self.send(task, context, targets=[site])
        return Waiting(task, sent)

    def _is_idle(self, waiting: Mapping[str, Waiting]) -> bool:
        """Whether a stop was requested and only newcomers keep the job from ending."""
        return not self.members & set(waiting) and control_file(self.server, "stop").exists()

    def _check(self, waiting: Mapping[str, Waiting]) -> list[str]:
        """End the job if it is aborted, or if a site that is waited for is gone.

        Newcomers that are gone are named: no round waits for them.
        """
        gone: dict[str, str] = {}
        now = time.monotonic()
        for site, call in waiting.items():
            limit = limit_fetching(len(self.sites), self.slowest) if site in self.seen else UNSEEN
            unfetched = not call.task.client_tasks and now - call.sent > limit
            if self.get_client_disconnect_time(site) is not None:
                gone[site] = "its process ended"
            elif unfetched and site not in self.busy:
                gone[site] = "it did not fetch its call"
        self.lost |= {site: why for site, why in gone.items() if site in self.members}
        if self.lost or self.abort.triggered:
            raise JobAbortedError
        return list(gone)

    def _cancel(self, site: str, call: Waiting) -> None:
        if call.task.client_tasks:
            self.busy.add(site)
        self.cancel_task(call.task)

    def _note(self, state: str, why: str = "") -> None:
        """Write how the job stands, for the supervisor."""
        facts = {"job": self.job, "state": state, "why": why}
        who = {"sites": sorted(self.sites), "lost": self.lost, "rounds": self.rounds}
        write_text(job_note_file(self.server), json.dumps({**facts, **who}))


def job_note_file(server: ServerFolder) -> Path:
    """Return where a job writes how it stands."""
    return server.kit / "job.json"


def control_file(server: ServerFolder, request: str) -> Path:
    """Return the file whose presence asks a job to end after its round."""
    return server.kit / request


def is_asked_to_end(server: ServerFolder) -> bool:
    """Whether the job was asked to end, for good or to start again with others."""
    return any(control_file(server, request).exists() for request in ("stop", "regroup"))
