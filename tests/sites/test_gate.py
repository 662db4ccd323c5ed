"""What is taken out of NVFlare's processes, by its private names: this fails if one moves."""

from typing import Any

import pytest
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from isthmus.sites.flare import gate


def message(origin: object, **headers: str) -> Message:
    return Message({MessageHeaderKey.ORIGIN: origin, **headers}, b"")


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


def test_a_closed_gate_drops_a_message_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[Any] = []
    monkeypatch.setattr(CoreCell, "process_message", lambda *given: passed.append(given[-1]))
    gate.close_gate()
    cell = CoreCell.__new__(CoreCell)
    cell.my_info = type("Info", (), {"fqcn": "hospital-a"})()
    cell.logger = type("Log", (), {"warning": lambda *_: None})()
    for origin in ("server", "hospital-b", "hospital-a.job"):
        cell.process_message(None, None, 1, message(origin))
    origins = [one.get_header(MessageHeaderKey.ORIGIN) for one in passed]
    assert origins == ["server", "hospital-a.job"]


def test_the_names_of_handlers_that_are_kept_are_names_of_handlers() -> None:
    names = {type(handler).__name__ for handler in ClientRequestProcessors.request_processors}
    assert names >= gate.HANDLERS
    dangerous = {"ShellCommandProcessor", "ConfigureSiteLogProcessor", "RestartClientProcessor"}
    assert names >= dangerous
    assert not gate.HANDLERS & dangerous
