"""The personal models of a site, used by its people."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from deployed import Deployment, experiment_at_sites, simulate
from isthmus.cohort import Clients, Round
from isthmus.run.open import deploy
from isthmus_sites.folders import SiteFolder
from isthmus_sites.site import open_model
from small import advance, federation, played


@pytest.mark.parametrize("method", [{"name": "superfed-mm", "start": 0.0}, "per-fedavg"])
def test_a_site_predicts_while_its_run_goes_on(method: Any, tmp_path: Path) -> None:
    """The store is held by the site's process, and data are not looked at; models lie beside it.

    What this client would choose, or tune, on other data is another model than its own.
    """
    data = federation()
    experiment = experiment_at_sites(method, data, clients_per_round=6)
    with Deployment(tmp_path, experiment, data) as deployed:
        before = played(deployed.setting, 1)
        advance(deployed.setting, before, evaluate=True)
        alone = simulate(experiment, data)
        there, _ = advance(alone, played(alone, 1), evaluate=False)
    clients = Clients([1], Round(alone, 1, there.own))
    (expected,) = clients.visit(deploy, alone.method.deliver(there.server, clients))
    consent = deployed.agreements["site-1"]
    place = SiteFolder(tmp_path / "folder")
    consent.save(place.agreements)
    place.state.mkdir()
    for file in (tmp_path / "site-1").glob("state.*"):
        if file.suffix in (".model", ".json"):
            shutil.copy(file, place.state / file.name.replace("state.", f"{consent.digest}."))
    model, like, _ = open_model(place.root, "last")
    assert torch.equal(model.w, expected[1].w)
    assert like.x.shape == (0, 6)
