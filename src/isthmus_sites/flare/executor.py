"""The one thing that a job can do at a site: hand a call to the site, and its answer back."""

import shutil
import time
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.shareable import make_reply

from isthmus_sites.flare.worker import LARGEST, SiteWorker, start_worker
from isthmus_sites.folders import SiteFolder, read_table
from isthmus_sites.protocol import write_event

TASK, CALL, ANSWER, SECONDS = "call", "call", "answer", "seconds"
LONGEST_CALL_S = 7 * 86400.0  # seconds of a call


class SiteExecutor(Executor):  # type: ignore[misc]
    """Takes bytes and gives bytes; whatever goes wrong, no words of it leave the site."""

    def __init__(self) -> None:
        Executor.__init__(self)
        self.site: SiteFolder | None = None
        self.worker: SiteWorker | None = None
        self.ready = False

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Open the site while the job starts, and close it with the job."""
        if event_type == EventType.START_RUN:
            self.site = find_folder(fl_ctx)
            remove_jobs(self.site, but=str(fl_ctx.get_job_id()))
            self.worker = start_worker(self.site)
        elif event_type == EventType.END_RUN:
            self._close()

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        """Answer a call."""
        call, seconds = shareable.get(CALL), shareable.get(SECONDS)
        if task_name != TASK:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if not isinstance(call, bytes) or len(call) > LARGEST or not isinstance(seconds, float):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        answer, ends = None, time.monotonic() + min(seconds, LONGEST_CALL_S)
        for _ in range(2):  # a worker that was killed may have been the wrong one to kill
            if answer is None and time.monotonic() < ends and not abort_signal.triggered:
                answer = self._ask(call, ends - time.monotonic(), abort_signal)
        if answer is None:
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        reply = make_reply(ReturnCode.OK)
        reply[ANSWER] = answer
        return reply

    def _ask(self, call: bytes, seconds: float, abort_signal: Any) -> bytes | None:
        """Ask the worker, or a new one if the last one died."""

        def is_aborted() -> bool:
            return bool(abort_signal.triggered)

        if self.site is None or "left" in read_table(self.site.settings):
            return None
        if self.worker is None or not self.worker.is_alive():
            self._close()
            self.worker = start_worker(self.site)
        if not self.ready:
            self.ready = self.worker.wait_until_ready(is_aborted)
        answer = self.worker.ask(call, seconds, is_aborted) if self.ready else None
        if answer is None:  # it may be in the middle of something
            if self.ready and not is_aborted():
                code = self.worker.process.poll()
                how = "took too long" if code is None else f"ended with code {code}"
                write_event(self.site.events, "lost", why=f"the process that computes {how}")
            self._close()
        return answer

    def _close(self) -> None:
        if self.worker:
            self.worker.close()
        self.worker, self.ready = None, False


class ConnectionEventWriter(FLComponent):  # type: ignore[misc]
    """Writes down when a site's process is connected, for the people there."""

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Write an event when the server has taken the site's certificate."""
        taken = event_type == EventType.AFTER_CLIENT_REGISTER
        if taken and fl_ctx.get_prop(FLContextKey.CLIENT_TOKEN):
            write_event(find_folder(fl_ctx).events, "connected")


def remove_jobs(site: SiteFolder, but: str = "") -> None:
    """Remove what earlier jobs left in the kit: logs, and names of classes."""
    for meta in site.kit.glob("*/meta.json"):
        if meta.parent.name != but:
            shutil.rmtree(meta.parent, ignore_errors=True)


def find_folder(fl_ctx: Any) -> SiteFolder:
    """Return the site's folder: the kit, which NVFlare knows, is in it."""
    workspace = fl_ctx.get_prop(FLContextKey.WORKSPACE_OBJECT)
    return SiteFolder(Path(workspace.get_root_dir()).parent)
