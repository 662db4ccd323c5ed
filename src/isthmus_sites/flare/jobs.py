"""A job as it is submitted, and how it stands."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.system.files import write_text
from isthmus_sites.flare import kits
from isthmus_sites.flare.controller import job_note_file
from isthmus_sites.flare.executor import TASK
from isthmus_sites.folders import ServerFolder


class JobNote(NamedTuple):
    """How a job stands, as it says itself."""

    job: str = ""
    state: str = ""
    why: str = ""
    sites: Sequence[str] = ()
    lost: dict[str, str] = {}  # noqa: RUF012
    rounds: int = 0


def write_job(server: ServerFolder, sites: Sequence[str]) -> Path:
    """Write what is submitted: names of classes that are installed everywhere, and no code.

    One site is enough for a job: how many a round needs is for who conducts it to say.
    """
    folder = server.lead / "transfer" / "isthmus"
    shutil.rmtree(folder, ignore_errors=True)
    members = {"app": ["server", *sites]}
    meta = {"name": "isthmus", "deploy_map": members, "min_clients": 1, "resource_spec": {}}
    rounds = {"id": "rounds", "path": kits.CONTROLLER, "args": {}}
    answers = {"tasks": [TASK], "executor": {"path": kits.EXECUTOR, "args": {}}}
    pace = {"task_request_interval": find_pause(len(sites))}
    files: dict[str, dict[str, Any]] = {
        "meta.json": meta,
        "app/config/config_fed_server.json": {"server": pace, "workflows": [rounds]},
        "app/config/config_fed_client.json": {"executors": [answers]},
    }
    for name, value in files.items():
        text = {"format_version": 2, **value} if name != "meta.json" else value
        write_text(folder / name, json.dumps(text))
    return folder


def find_pause(sites: int) -> float:
    """Return the seconds between questions of a site whether there is a call for it.

    A server answers about 100 of them a second, whatever the number of sites: each takes it some
    milliseconds, and what has to wait behind others comes late.
    """
    return max(0.1, sites / 100)


def read_note(server: ServerFolder, job: str = "") -> JobNote:
    """Return how a job stands; an empty note if it did not begin."""
    try:
        note = JobNote(**json.loads(job_note_file(server).read_text()))
    except (OSError, ValueError, TypeError):
        return JobNote()
    return note if not job or note.job == job else JobNote()
