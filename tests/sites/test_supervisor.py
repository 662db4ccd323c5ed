"""Who supervises a run has newcomers in its jobs, and none of them decides whether there is one."""

import datetime as dt
import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from golden import check, raises
from isthmus.errors import IsthmusError
from isthmus.system.files import write_text
from isthmus_sites.flare import supervisor
from isthmus_sites.flare.controller import (
    JobAbortedError,
    RoundController,
    control_file,
    job_note_file,
)
from isthmus_sites.flare.supervisor import Supervisor, Waits
from isthmus_sites.folders import ServerFolder, write_table
from isthmus_sites.protocol import JOINED, SiteAnswer, write_event

MEMBERS = ("ulm", "bonn")


class Session:
    """A server's process that runs a job at once: until somebody wishes it to end, or to the end.

    `comes` are sites that come while a job runs, by its number.
    """

    def __init__(self, server: ServerFolder, there: set[str], comes: dict[int, set[str]]):
        self.server, self.there, self.comes = server, there, comes
        self.jobs: list[list[str]] = []

    def get_system_info(self) -> Any:
        now = time.time()
        clients = [SimpleNamespace(name=name, last_connect_time=now) for name in self.there]
        return SimpleNamespace(client_info=clients)

    def submit_job(self, folder: str) -> str:
        meta = json.loads((Path(folder) / "meta.json").read_text())
        self.jobs.append(meta["deploy_map"]["app"][1:])
        self.note("running")
        self.there |= self.comes.get(len(self.jobs), set())
        return str(len(self.jobs))

    def get_job_meta(self, job: str) -> dict[str, str]:
        regroups = control_file(self.server, "regroup").exists()
        for site in set(self.jobs[-1]) - set(MEMBERS):
            write_event(self.server.events, JOINED, text=f"{site} joined", site=site)
        self.note("ended" if regroups else "done")
        return {"status": "FINISHED:COMPLETED"}

    def note(self, state: str) -> None:
        facts = {"job": str(len(self.jobs)), "state": state, "sites": self.jobs[-1], "rounds": 1}
        job_note_file(self.server).write_text(json.dumps(facts))

    def delete_job(self, job: str) -> None:
        """Has nothing to delete."""

    def close(self) -> None:
        """Has nothing to close."""


Watch = Callable[..., tuple[list[list[str]], list[str]]]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Supervises a run of two members to its end; gives the sites of its jobs, and what it said."""
    monkeypatch.setattr(supervisor, "LOOK", 0.0)
    monkeypatch.setattr(supervisor, "renew_server", lambda server: "")
    monkeypatch.setattr(supervisor, "end_process", lambda process: None)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    server = ServerFolder(tmp_path)
    until = dt.datetime(2099, 5, 1, tzinfo=dt.UTC)
    row = {"certificate": "", "admitted": until, "until": until, "revoked": False}
    admitted = dict.fromkeys((*MEMBERS, "later", "last"), row)
    write_table(server.sites, {**admitted, "expelled": row | {"revoked": True}})
    server.kit.mkdir()

    def watch(
        there: Sequence[str], newcomers: bool = True, **comes: Sequence[str]
    ) -> tuple[list[list[str]], list[str]]:
        said: list[str] = []
        waits = Waits(settle=0.0, quorum=0.0)
        keeper = Supervisor(server, MEMBERS, 1.0, said.append, waits, newcomers)
        keeper.process = SimpleNamespace(poll=lambda: None)  # type: ignore[assignment]
        arrivals = {int(name[-1]): set(sites) for name, sites in comes.items()}
        session = keeper.session = Session(server, set(there), arrivals)
        session.disable_client = lambda name: None
        assert keeper.run()
        return session.jobs, said

    return watch


def test_newcomers_come_to_the_jobs_of_members(watch: Watch) -> None:
    """One while the first job runs; one when the last round is done: a third job is for it."""
    jobs, said = watch([*MEMBERS, "expelled"], job1=["later"], job2=["stranger", "last"])
    assert jobs[0] == ["bonn", "ulm"]
    assert jobs[1] == ["bonn", "later", "ulm"]
    assert jobs[2] == ["bonn", "last", "later", "ulm"]
    check("\n".join(said))
    assert "later joined" in said
    assert said.count("the last round is done") == 1


def test_no_newcomer_is_in_a_job_where_none_is_wanted(watch: Watch) -> None:
    jobs, _ = watch([*MEMBERS, "later"], newcomers=False)
    assert jobs == [["bonn", "ulm"]]


def test_a_newcomer_is_none_of_those_that_are_needed(watch: Watch, tmp_path: Path) -> None:
    with raises(IsthmusError):
        watch(["later", "last", "ulm"])
    assert '"event": "job"' not in (tmp_path / "serve.jsonl").read_text()


def test_a_run_that_is_over_needs_nobody_and_waits_for_anybody(
    watch: Watch, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text('{"status": "finished"}')
    jobs, said = watch(["later"])
    assert jobs == [["later"]]
    assert "later joined" in said


def test_a_newcomer_that_comes_and_goes_has_jobs_begin_again_three_times_at_most(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Session.submit_job

    def submit_and_lose(self: Session, folder: str) -> str:
        number = submit(self, folder)
        self.jobs[-1] = [name for name in self.jobs[-1] if name in MEMBERS]
        self.note("running")
        self.there.add("later")  # it is never in the job, and there at once when it runs
        return number

    monkeypatch.setattr(Session, "submit_job", submit_and_lose)
    jobs, said = watch(MEMBERS)
    assert len(jobs) == 4
    assert said.count("later came: the job begins again with it") == 3


class Carrier(RoundController):
    """A job whose calls nobody fetches; `gone` are sites whose processes ended."""

    gone: tuple[str, ...] = ()
    _engine = SimpleNamespace(new_context=nullcontext)

    def send(self, task: Any, fl_ctx: Any, targets: Sequence[str]) -> None:
        """Leaves the call where it is."""

    def cancel_task(self, task: Any) -> None:
        """Has nothing to cancel."""

    def get_client_disconnect_time(self, name: str) -> float | None:
        return 1.0 if name in self.gone else None


def ask(carrier: Carrier, site: str) -> list[SiteAnswer]:
    return [answer for answer in carrier.ask({site: b""}, 60) if answer is not None]


def test_a_newcomer_that_is_gone_ends_no_round_and_no_stop_waits_for_one(tmp_path: Path) -> None:
    carrier = Carrier()
    carrier.server, carrier.abort = ServerFolder(tmp_path), SimpleNamespace(triggered=False)
    carrier.sites, carrier.members = {"ulm", "later"}, {"ulm"}
    carrier.gone = ("later",)
    assert ask(carrier, "later") == [SiteAnswer("later", None, "absent")]
    assert not carrier.lost
    carrier.gone = ("ulm",)
    with pytest.raises(JobAbortedError):
        ask(carrier, "ulm")
    carrier.lost, carrier.gone = {}, ()
    write_text(control_file(carrier.server, "stop"), "")
    assert ask(carrier, "later") == [SiteAnswer("later", None, "late")]
