"""What is taken out of NVFlare's processes, by its private names: this fails if one moves."""

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
from nvflare.fuel.f3.message import Message
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from nvflare.private.fed.server.client_manager import ClientManager
from nvflare.private.fed.server.fed_server import FederatedServer

from isthmus_sites.flare import gate
from isthmus_sites.flare.admission import read_sites
from isthmus_sites.folders import ServerFolder, SiteFolder, write_table
from isthmus_sites.protocol import read_events


def message(origin: object, payload: bytes = b"", **headers: object) -> Message:
    kind = {MessageHeaderKey.MSG_TYPE: MessageType.REPLY}
    return Message({MessageHeaderKey.ORIGIN: origin, **kind, **headers}, payload)


def request(channel: str, topic: str, **headers: object) -> Message:
    named = {MessageHeaderKey.CHANNEL: channel, MessageHeaderKey.TOPIC: topic}
    kind = {MessageHeaderKey.MSG_TYPE: MessageType.REQ}
    return message("server", **{**kind, **named, **headers})


def stream(channel: str, topic: str, size: object = 100, part: object = 0) -> Message:
    sizes = {StreamHeaderKey.SIZE: size, StreamHeaderKey.SEQUENCE: part}
    inner = {StreamHeaderKey.CHANNEL: channel, StreamHeaderKey.TOPIC: topic}
    return request(STREAM_CHANNEL, STREAM_DATA_TOPIC, **{**inner, **sizes})


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("server", True),
        ("server.job-1", True),
        ("hospital-a", True),
        ("hospital-a.job-1", True),
        ("hospital-b", False),
        ("hospital-b.job-1", False),
        ("serverx", False),
        ("_admin_1", False),
        ("", False),
        (None, False),
        (["server"], False),
    ],
)
def test_a_site_listens_to_its_server_and_itself(origin: object, expected: bool) -> None:
    assert gate.is_expected("hospital-a.job-1", message(origin)) is expected


MESSAGES = {
    "an order to a site": (request("admin", "admin"), True),
    "a goodbye": (request("cellnet.channel", "bye"), True),
    "an answer": (stream("return_only", "server_command:get_task"), True),
    "the end of a job": (stream("aux_communication", "__end_run__"), True),
    "a task that nobody fetched": (stream("aux_communication", "__do_task__"), False),
    "an event": (stream("aux_communication", "fed.event"), False),
    "objects in a stream": (stream("aux_communication", "ObjectStreamer.Request"), False),
    "a command to a job": (request("client_command", "show_stats"), False),
    "other settings of logs": (request("client_command", "configure_job_log"), False),
    "several at once": (request("cellnet.channel", "bulk"), False),
    "the end of a process": (request("_net_manager", "stop_cell"), False),
    "another server": (request("_net_manager", "change_root"), False),
    "settings of a process": (request("_net_manager", "config_vars"), False),
    "ten gigabytes": (stream("return_only", "a", size=10**10), False),
    "ten gigabytes bit by bit": (stream("return_only", "a", size=0, part=10**4), False),
    "a size that is none": (stream("return_only", "a", size="9"), False),
    "a large part": (message("server", bytes(2**26 + 1)), False),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_site_takes_what_jobs_need_and_no_more(name: str) -> None:
    """Whoever it is from: a server, or somebody who says so."""
    given, expected = MESSAGES[name]
    assert gate.is_expected("hospital-a.job-1", given) is expected


def test_a_closed_gate_drops_a_message_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(CoreCell, "process_message", lambda *given: passed.append(given[-1]))
    gate.close_gate(lambda mine, peer, message: gate.is_expected(mine, message))
    cell = CoreCell.__new__(CoreCell)
    cell.my_info = type("Info", (), {"fqcn": "hospital-a"})()
    cell.logger = type("Log", (), {"warning": lambda *_: None})()
    for origin in ("server", "hospital-b", "hospital-a.job"):
        cell.process_message(None, None, 1, message(origin))
    origins = [one.get_header(MessageHeaderKey.ORIGIN) for one in passed]
    assert origins == ["server", "hospital-a.job"]


def to_server(origin: str, given: Message, target: str = "server.job-1") -> Message:
    given.set_header(MessageHeaderKey.ORIGIN, origin)
    given.set_header(MessageHeaderKey.DESTINATION, target)
    return given


AT_SERVER = {
    "a site that asks for a call": ("hospital-a", stream("server_command", "get_task"), True),
    "its answer": ("hospital-a", stream("server_command", "submit_update"), True),
    "a sign of life": ("hospital-a", request("task", "heart_beat"), True),
    "the end of the server": ("hospital-a", request("_net_manager", "stop"), False),
    "who else is there": ("hospital-a", request("_net_manager", "peers"), False),
    "a command of the lead": ("hospital-a", stream("hci_channel", "command"), False),
    "a command to the job": ("hospital-a", request("server_command", "app_command"), False),
    "a command in a stream": ("hospital-a", stream("server_command", "handle_dead_job"), False),
    "another site's name": ("hospital-b", stream("server_command", "submit_update"), False),
    "the server's name": ("server", stream("server_command", "submit_update"), False),
    "ten gigabytes": ("hospital-a", stream("server_command", "submit_update", 10**10), False),
}


@pytest.mark.parametrize("name", AT_SERVER)
def test_a_server_takes_from_a_site_what_is_from_it_and_jobs_need(name: str) -> None:
    """The site is who its certificate says, whatever the message says."""
    origin, given, expected = AT_SERVER[name]
    assert gate.is_expected_at_server("hospital-a", to_server(origin, given)) is expected


def test_a_server_carries_nothing_from_site_to_site() -> None:
    for given in (request("admin", "admin"), message("hospital-a")):
        passed = to_server("hospital-a", given, target="hospital-b")
        assert not gate.is_expected_at_server("hospital-a", passed)


def test_the_names_of_handlers_that_are_kept_are_names_of_handlers() -> None:
    names = {type(handler).__name__ for handler in ClientRequestProcessors.request_processors}
    assert names >= gate.HANDLERS
    dangerous = {"ShellCommandProcessor", "ConfigureSiteLogProcessor", "RestartClientProcessor"}
    assert names >= dangerous
    assert not gate.HANDLERS & dangerous


def test_a_site_that_leaves_says_so_and_the_server_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next sign of life, for the name of its certificate; it is back when it registers."""
    site, server = SiteFolder(tmp_path / "site"), ServerFolder(tmp_path / "server")
    write_table(site.settings, {"name": "ulm"})
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    row = {"certificate": "", "admitted": now, "until": now.replace(year=2099)}
    write_table(server.sites, {"ulm": row, "bonn": row})
    beats: list[Any] = []

    def carry(cell: Any, channel: str, topic: str, target: str, request: Any) -> Message:
        request.set_header(MessageHeaderKey.ORIGIN, "ulm")
        FederatedServer.client_heartbeat(None, request)
        return message("server", **{MessageHeaderKey.RETURN_CODE: "ok"})

    monkeypatch.setattr(CoreCell, "send_request", carry)
    monkeypatch.setattr(FederatedServer, "client_heartbeat", lambda _, given: beats.append(given))
    monkeypatch.setattr(FederatedServer, "process_job_failure", None)
    engine = type("Engine", (), {"run_processes": {}})
    context = type("Context", (), {"get_engine": lambda _: engine})()
    monkeypatch.setattr(ClientManager, "authenticated_client", lambda *given: "a client")
    monkeypatch.setattr(gate, "is_admitted", lambda *given: True)
    gate.tell_leaving(site)
    gate.guard_registration(server)

    def beat() -> None:
        CoreCell.send_request(None, "task", "heart_beat", "server", request("task", "heart_beat"))

    beat()
    assert [known.left for known in read_sites(server).values()] == [None, None]
    write_table(site.settings, {"name": "ulm", "left": now})
    beat()
    assert read_sites(server)["ulm"].left is not None
    assert read_sites(server)["bonn"].left is None
    assert [event["event"] for event in read_events(site.events)[0]] == ["left"]
    assert len(beats) == 2
    asked = request("task", "register", client_name="ulm")
    ClientManager.authenticated_client(None, asked, context, "regular")
    assert read_sites(server)["ulm"].left is None
