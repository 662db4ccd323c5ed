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
from isthmus.sites.flare.executor import ANSWER, CALL, SECONDS, TASK
from isthmus.sites.folders import ServerFolder
from isthmus.sites.transport import SiteAnswer
from isthmus.system.files import write_text

UNFETCHED = 8.0  # seconds after which a site that has not fetched its call is taken for gone
WAIT = 0.05


class JobAbortedError(Exception):
    """The job ends in the middle of a round, which is as if it had not begun."""


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
        self.lost: dict[str, str] = {}  # gone for this job, and why
        self.heard: set[str] = set()
        self.busy: set[str] = set()  # still at a call that nobody waits for any more

    def start_controller(self, fl_ctx: Any) -> None:
        """Does nothing: all is done in the flow."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Does nothing: all is done in the flow."""

    def process_result_of_unknown_task(self, *given: Any, **named: Any) -> None:
        """Drops an answer that came too late."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Conducts the rounds that are left, until the last, or until the job has to end."""
        from isthmus.sites.server import conduct

        self.abort, self.job = abort_signal, str(fl_ctx.get_job_id())
        self.server = ServerFolder(Path(fl_ctx.get_workspace().get_root_dir()).parent)
        self.sites = {client.name for client in fl_ctx.get_engine().get_clients()}
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
        """Tells whether the job ends after this round: a site was lost or is back, or by wish."""
        return bool(self.lost) or is_asked_to_end(self.server)

    def ask(self, messages: Mapping[str, bytes], seconds: float) -> Iterator[SiteAnswer | None]:
        """Sends each site its message; see Transport."""
        answers: SimpleQueue[tuple[str, bytes | None]] = SimpleQueue()
        waiting: dict[str, Waiting] = {}
        absent = {site: self._is_gone(site) for site in messages}
        try:
            for site, message in messages.items():
                if not absent[site]:
                    waiting[site] = self._send(site, message, seconds, answers)
            yield from (SiteAnswer(site, None, why) for site, why in absent.items() if why)
            ends = time.monotonic() + seconds
            while waiting:
                if self.abort.triggered:
                    raise JobAbortedError
                yield from self._give_up(waiting, late=time.monotonic() > ends)
                try:
                    site, answer = answers.get(timeout=WAIT)
                except Empty:
                    yield None
                    continue
                if waiting.pop(site, None):
                    self.heard.add(site)
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

        task = Task(TASK, data, timeout=int(seconds) + 2, result_received_cb=take)
        with self._engine.new_context() as context:
            self.send(task, context, targets=[site])
        return Waiting(task, time.monotonic())

    def _give_up(self, waiting: dict[str, Waiting], *, late: bool) -> Iterator[SiteAnswer]:
        """Answers for sites that are gone, and for all that are left when time is up."""
        for site, call in list(waiting.items()):
            fetched = bool(call.task.client_tasks)
            why = self._is_gone(site)
            unfetched = not fetched and time.monotonic() - call.sent > UNFETCHED
            if not why and unfetched and site not in self.busy:
                why = "did not fetch its call"
                self.lost[site] = why
                self._note("running")
            if why or late:
                self._cancel(site, waiting.pop(site))
                yield SiteAnswer(site, None, why or "late")

    def _cancel(self, site: str, call: Waiting) -> None:
        if call.task.client_tasks:
            self.busy.add(site)
        self.cancel_task(call.task)

    def _is_gone(self, site: str) -> str:
        """Says why a site cannot be asked; nothing if it can."""
        if site not in self.sites:
            return "absent"
        if site not in self.lost and self.get_client_disconnect_time(site) is not None:
            self.lost[site] = "its process ended"
            self._note("running")
        return self.lost.get(site, "")

    def _note(self, state: str, why: str = "") -> None:
        """Writes how the job stands, for who watches over it."""
        facts = {"job": self.job, "state": state, "why": why}
        who = {"sites": sorted(self.sites), "lost": self.lost, "heard": sorted(self.heard)}
        write_text(find_note(self.server), json.dumps({**facts, **who}))


def find_note(server: ServerFolder) -> Path:
    """Finds where a job writes how it stands."""
    return server.kit / "job.json"


def find_wish(server: ServerFolder, wish: str) -> Path:
    """Finds the file whose presence asks a job to end after its round."""
    return server.kit / wish


def is_asked_to_end(server: ServerFolder) -> bool:
    """Tells whether somebody wishes the job to end, for good or to begin again with others."""
    return any(find_wish(server, wish).exists() for wish in ("stop", "regroup"))
