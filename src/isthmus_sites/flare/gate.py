"""NVFlare's processes, started with less in them: the one file that uses its private names.

A site answers its server and its own processes, and what jobs need: anything else is dropped before
it is even decoded, from a process' first instant on. A server takes from a site what jobs need and
what is from itself; it admits the certificates that it keeps in its list, and no site can end what
the others do. Each process ends when the one that started it
is gone, so that there are no orphans.
"""

import datetime as dt
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import (
    AdminCommandNames,
    FLContextKey,
    ReservedTopic,
    ServerCommandNames,
)
from nvflare.apis.job_launcher_spec import JobProcessArgs
from nvflare.app_common.job_launcher.process_launcher import ProcessJobLauncher
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.core_cell import make_reply as make_cell_reply
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    IdentityChallengeKey,
    MessageHeaderKey,
    MessageType,
)
from nvflare.fuel.f3.cellnet.defs import ReturnCode as CellReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.mpm import MainProcessMonitor
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_ACK_TOPIC,
    STREAM_CHANNEL,
    STREAM_CHUNK_SIZE,
    STREAM_DATA_TOPIC,
    STREAM_ERROR_TOPIC,
    StreamHeaderKey,
)
from nvflare.private.defs import (
    CellMessageHeaderKeys,
    ClientType,
    JobFailureMsgKey,
    TrainingTopic,
)
from nvflare.private.fed.app.client import client_train, worker_process
from nvflare.private.fed.app.server import runner_process, server_train
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer
from nvflare.utils.job_launcher_utils import get_client_job_args, get_server_job_args

from isthmus_sites.flare import keys
from isthmus_sites.flare.admission import note_leaving, read_sites
from isthmus_sites.flare.kits import find_startup
from isthmus_sites.flare.worker import LARGEST
from isthmus_sites.folders import ServerFolder, SiteFolder, read_table
from isthmus_sites.protocol import write_event

MODULE = "isthmus_sites.flare"
HANDLERS = {  # of the 20 requests that a server may make of a site outside of jobs
    *("DeployProcessor", "StartJobProcessor", "CheckResourceProcessor", "CancelResourceProcessor"),
    *("AbortAppProcessor", "ClientStatusProcessor", "NotifyJobStatusProcessor"),
    *("DeleteRunNumberProcessor", "ScopeInfoProcessor"),
}
REQUESTS = {  # that a site's processes take from anybody at all: (channel, topic)
    (CellChannel.CLIENT_MAIN, "admin"),  # one of the handlers above
    (CellChannel.CLIENT_MAIN, TrainingTopic.NOTIFY_JOB_STATUS),  # from a job to its parent
    (CellChannel.CLIENT_COMMAND, AdminCommandNames.ABORT),  # and back
    (CellChannel.CELLNET, CellChannelTopic.Bye),
    (STREAM_CHANNEL, STREAM_ACK_TOPIC),
    (STREAM_CHANNEL, STREAM_ERROR_TOPIC),
}
SITE_REQUESTS = {  # that a server's process takes from a site
    (CellChannel.SERVER_MAIN, CellChannelTopic.Challenge),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Register),
    (CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT),
    (CellChannel.SERVER_MAIN, CellChannelTopic.Quit),
    (CellChannel.SERVER_MAIN, CellChannelTopic.REPORT_JOB_FAILURE),
    (CellChannel.CELLNET, CellChannelTopic.Bye),
    (STREAM_CHANNEL, STREAM_ACK_TOPIC),
    (STREAM_CHANNEL, STREAM_ERROR_TOPIC),
}
# What longer messages are about, beside answers.
FROM_SERVERS = {(CellChannel.AUX_COMMUNICATION, ReservedTopic.END_RUN)}
FROM_SITES = {
    (CellChannel.SERVER_COMMAND, ServerCommandNames.GET_TASK),
    (CellChannel.SERVER_COMMAND, ServerCommandNames.SUBMIT_UPDATE),
    (CellChannel.AUX_COMMUNICATION, ReservedTopic.SYNC_RUNNER),
    (CellChannel.AUX_COMMUNICATION, ReservedTopic.TASK_CHECK),
    (CellChannel.AUX_COMMUNICATION, ReservedTopic.JOB_HEART_BEAT),
}
LEFT = "isthmus_left"  # of a sign of life: the site takes part no more
LARGEST_PART = 2**26  # bytes of what a message travels in
QUICK = {  # how soon a job sees that a site's process is gone, and how long its end may take
    "NVFLARE_DEAD_CLIENT_GRACE_PERIOD": "0.2",
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "1",
}


def run_process(kind: str, arguments: list[str]) -> int:
    """Run one of NVFlare's four processes to its end."""
    threading.Thread(target=_end_as_orphan, args=(os.getppid(),), daemon=True).start()
    sys.argv = [MODULE, *arguments]
    modules = {
        "site": client_train,
        "site-job": worker_process,
        "server": server_train,
        "server-job": runner_process,
    }
    module = modules[kind]
    read: Any = module.parse_arguments
    given = read()
    place = Path(given.workspace)
    if kind == "site":
        _keep_handlers()
        tell_leaving(SiteFolder(place.parent))
    if kind.startswith("site"):
        close_gate(lambda mine, peer, message: is_expected(mine, message))
    if kind == "server":
        close_gate(lambda mine, peer, message: is_expected_at_server(peer, message))
        guard_registration(ServerFolder(place.parent))
    if kind.startswith("server"):
        os.environ.update(QUICK)
    run_folder = place / given.job_id if kind.endswith("-job") else place
    quick = {"shutdown_grace_time": 0.3, "cleanup_grace_time": 0.5}
    run: Any = MainProcessMonitor.run
    return int(run(main_func=module.main, run_dir=str(run_folder), args=given, **quick) or 0)


def tell_leaving(site: SiteFolder) -> None:
    """Make a site's heartbeats say, in this process, that it has left."""
    send: Callable[..., Any] = CoreCell.send_request

    def send_request(
        cell: Any, channel: str, topic: str, target: str, request: Any, *rest: Any, **how: Any
    ) -> Any:
        left = topic == CellChannelTopic.HEART_BEAT and "left" in read_table(site.settings)
        if left:
            request.set_header(LEFT, True)
        reply = send(cell, channel, topic, target, request, *rest, **how)
        if left and reply.get_header(MessageHeaderKey.RETURN_CODE) == CellReturnCode.OK:
            write_event(site.events, "left", why="the server knows")
        return reply

    CoreCell.send_request = send_request


def close_gate(expects: Callable[[str, str, Any], bool]) -> None:
    """Drop, in this process, messages that are not expected, by target, sender and topic."""
    open_gate: Callable[..., None] = CoreCell.process_message

    def process_message(
        cell: Any, endpoint: Any, connection: Any, app_id: int, message: Any
    ) -> None:
        known = connection.get_conn_properties() if connection else {}
        peer = str(known.get(DriverParams.PEER_CN.value) or "")
        if expects(cell.my_info.fqcn, peer, message):
            open_gate(cell, endpoint, connection, app_id, message)
        else:
            topic = message.get_header(MessageHeaderKey.TOPIC)
            origin = message.get_header(MessageHeaderKey.ORIGIN)
            cell.logger.warning(f"dropped {topic!r} from {origin!r}")

    CoreCell.process_message = process_message


def is_expected_at_server(peer: str, message: Any) -> bool:
    """Whether a server's process accepts a message, by the certificate of its sender.

    A site speaks for itself, to the server and to no other site, of what jobs need.
    """
    origin = message.get_header(MessageHeaderKey.ORIGIN)
    root = FQCN.get_root(origin) if isinstance(origin, str) else ""
    if not peer or peer == keys.LEAD:  # the server's own job, and its lead, on this machine
        return root == "server" if not peer else root not in ("", "server")
    target = message.get_header(MessageHeaderKey.DESTINATION)
    if root != peer or not isinstance(target, str) or FQCN.get_root(target) != "server":
        return False
    if len(message.payload or b"") > LARGEST_PART:
        return False
    if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return True
    place = (MessageHeaderKey.CHANNEL, MessageHeaderKey.TOPIC)
    channel, topic = (message.get_header(key) for key in place)
    if (channel, topic) == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        return _is_expected_stream(message, FROM_SITES)
    return (channel, topic) in SITE_REQUESTS


def is_expected(mine: str, message: Any) -> bool:
    """Whether a site's process accepts a message."""
    origin = message.get_header(MessageHeaderKey.ORIGIN)
    if not isinstance(origin, str) or FQCN.get_root(origin) not in ("server", FQCN.get_root(mine)):
        return False
    if len(message.payload or b"") > LARGEST_PART:
        return False
    if message.get_header(MessageHeaderKey.MSG_TYPE) != MessageType.REQ:
        return True  # an answer to what was asked here
    channel = message.get_header(MessageHeaderKey.CHANNEL)
    topic = message.get_header(MessageHeaderKey.TOPIC)
    if (channel, topic) == (STREAM_CHANNEL, STREAM_DATA_TOPIC):
        return _is_expected_stream(message, FROM_SERVERS)
    return (channel, topic) in REQUESTS


def _is_expected_stream(message: Any, expected: set[tuple[str, str]]) -> bool:
    """Whether a part of a longer message belongs to an answer, or to what jobs need."""
    channel = message.get_header(StreamHeaderKey.CHANNEL)
    topic = message.get_header(StreamHeaderKey.TOPIC)
    size = message.get_header(StreamHeaderKey.SIZE) or 0
    part = message.get_header(StreamHeaderKey.SEQUENCE) or 0
    if not isinstance(size, int) or not isinstance(part, int) or size > LARGEST + 2**20:
        return False
    if part * STREAM_CHUNK_SIZE > LARGEST + 2**20:  # whatever was said of its size
        return False
    return channel == CellChannel.RETURN_ONLY or (channel, topic) in expected


def guard_registration(server: ServerFolder) -> None:
    """Admit, in this process, the certificates of the server's list; no site ends a job."""
    verify: Callable[..., Any] = ClientManager.authenticated_client
    fail: Callable[..., Any] = FederatedServer.process_job_failure
    beat: Callable[..., Any] = FederatedServer.client_heartbeat

    def authenticated_client(manager: Any, request: Any, context: Any, kind: Any) -> Any:
        name = request.get_header(CellMessageHeaderKeys.CLIENT_NAME)
        payload = request.payload
        data = payload.get(IdentityChallengeKey.CERT) if isinstance(payload, dict) else None
        if not is_admitted(server, kind, name, data):
            manager.logger.warning(f"refused {name!r}: its certificate is not in the list")
            return None
        client = verify(manager, request, context, kind)
        if client and kind == ClientType.REGULAR:  # it restarted: its process in a job is gone
            note_leaving(server, name, left=False)
            engine = context.get_engine()
            for job in list(engine.run_processes):
                engine.notify_dead_job(job, name, "it restarted")
        return client

    def process_job_failure(federated: Any, request: Any) -> Any:
        if not isinstance(request.payload, dict):
            return make_cell_reply(CellReturnCode.INVALID_REQUEST)
        token = request.get_header(CellMessageHeaderKeys.TOKEN)
        client = federated.client_manager.clients.get(token)
        job = request.payload.get(JobFailureMsgKey.JOB_ID)
        if client and job in federated.engine.run_processes:
            federated.engine.notify_dead_job(job, client.name, "its process ended")
        request.payload = {**request.payload, JobFailureMsgKey.CODE: 0}
        return fail(federated, request)

    def client_heartbeat(federated: Any, request: Any) -> Any:
        if request.get_header(LEFT) is True:  # its name is that of its certificate: see the gate
            name = FQCN.get_root(request.get_header(MessageHeaderKey.ORIGIN))
            note_leaving(server, name, left=True)
        return beat(federated, request)

    FederatedServer.client_heartbeat = client_heartbeat
    ClientManager.authenticated_client = authenticated_client
    FederatedServer.process_job_failure = process_job_failure


def is_admitted(server: ServerFolder, kind: object, name: object, data: object) -> bool:
    """Whether a certificate counts: a site's last one if it is not revoked, or the lead's."""
    hashed = keys.hash_text(data) if isinstance(data, bytes) else ""
    if kind == ClientType.ADMIN:
        return hashed == keys.hash_text((find_startup(server.lead) / "client.crt").read_bytes())
    site = read_sites(server).get(name) if isinstance(name, str) else None
    if kind != ClientType.REGULAR or site is None or site.revoked:
        return False
    return hashed == site.certificate and dt.datetime.now(dt.UTC) < site.until


class GatedLauncher(ProcessJobLauncher):  # type: ignore[misc]
    """Starts the job's process at a site behind the same gate."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """Return the command line; NVFlare's own is broken by spaces in a path."""
        return _build_command("site-job", get_client_job_args(include_exe_module=False), fl_ctx)


class ServerLauncher(ProcessJobLauncher):  # type: ignore[misc]
    """Starts the job's process at the server."""

    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        """Return the command line; NVFlare's own is broken by spaces in a path."""
        return _build_command("server-job", get_server_job_args(include_exe_module=False), fl_ctx)


def _build_command(kind: str, names: list[str], context: Any) -> str:
    given = context.get_prop(FLContextKey.JOB_PROCESS_ARGS)
    words = [sys.executable, "-m", MODULE, kind]
    for name in names:
        if given.get(name):
            option, value = given[name]
            several = name == JobProcessArgs.OPTIONS
            words += [option, *(str(value).split() if several else [str(value)])]
    return shlex.join(words)


def _keep_handlers() -> None:
    kept = [p for p in ClientRequestProcessors.request_processors if type(p).__name__ in HANDLERS]
    ClientRequestProcessors.request_processors = kept


def _end_as_orphan(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
