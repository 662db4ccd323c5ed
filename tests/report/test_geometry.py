"""What the explorers draw, before anything is drawn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from golden import check
from isthmus import Experiment, federate
from isthmus.formulas.vector import cosines
from isthmus.report import page, read
from isthmus.report.figures import path, similarity, simplex
from isthmus.run.record import RecordedRun


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    place = tmp_path_factory.mktemp("runs") / "fedsimsup"
    settings = {"clients": 8, "clients_per_round": 5, "rounds": 2, "epochs": 1}
    data = {"name": "synthetic", "samples": 400}
    federate(Experiment(method="fedsimsup", data=data, **settings), out=place)
    return read(place)


def test_a_path_holds_what_was_recorded_of_owners(five: list[RecordedRun]) -> None:
    paths = five[3].along()
    assert paths is not None
    assert paths.client.tolist() == list(range(2, 20))  # the first two have no own end
    assert paths.lam == pytest.approx(np.linspace(0, 1, 11))
    rows = (five[3].clients.client == 7) & (five[3].clients.model == "path")
    rows &= (five[3].clients.split == "test") & (five[3].clients.round == 50)
    place = paths.client.tolist().index(7)
    for metric in path.METRICS:
        assert (
            paths.values[metric][place].tolist() == getattr(five[3].clients, metric)[rows].tolist()
        )
        at = int(np.argmin(np.abs(paths.lam - paths.chosen[place])))
        assert paths.personal[metric][place] == paths.values[metric][place, at]


def test_similarity_is_the_cosine_of_label_counts(similar: RecordedRun) -> None:
    found = similarity.compute_similarity(similar)
    labels = torch.tensor(np.array(similar.federation.labels))[found.client.tolist()]
    assert found.matrix == pytest.approx(cosines(labels, labels).numpy(), abs=1e-12)
    assert sorted(found.client.tolist()) == list(range(8))


def test_what_a_network_adds_is_the_sum_less_the_other(similar: RecordedRun) -> None:
    """Clients that have not taken part yet have no own network: nothing is known of them."""
    found = similarity.compute_similarity(similar)
    rows = (similar.clients.model == "path") & (similar.clients.split == "test")
    rows &= similar.clients.round == similar.last
    known = {
        (int(client), str(at)): top1
        for client, at, top1 in zip(
            similar.clients.client[rows],
            similar.clients.at[rows],
            similar.clients.top1[rows],
            strict=True,
        )
    }
    for i, own, shared in zip(found.client, found.own_adds, found.shared_adds, strict=True):
        if (int(i), "1 1") in known:
            assert own == pytest.approx(known[i, "1 1"] - known[i, "1 0"])
            assert shared == pytest.approx(known[i, "1 1"] - known[i, "0 1"])
        else:
            assert np.isnan([own, shared]).all()


def test_blocks_of_similar_rows_stay_together() -> None:
    """Rows 0, 3, 4 are alike, and so are 1, 2, 5: whatever the order, no block is torn."""
    block = np.array([0, 1, 1, 0, 0, 1])
    matrix = np.where(block[:, None] == block, 0.8, 0.1) + 0.2 * np.eye(6)
    order = similarity.order_by_similarity(matrix)
    assert sorted(order) == list(range(6))
    assert sum(a != b for a, b in zip(block[order], block[order][1:], strict=False)) == 1


def test_a_chain_is_laid_out_as_a_chain() -> None:
    """Row i is like i - 1 and i + 1 only; joined end to end they come in order, or reversed."""
    place = np.array([3, 0, 2, 4, 1])
    matrix = np.where(np.abs(place[:, None] - place) <= 1, 0.5, 0.0) + 0.5 * np.eye(5)
    ordered = place[similarity.order_by_similarity(matrix)].tolist()
    assert ordered in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0])


def test_many_vertices_are_seen_from_where_the_clients_differ_most() -> None:
    """Points that differ in the first two of five coordinates only: all of their variance is seen,
    and lengths among them shrink by one common factor."""
    rng = np.random.default_rng(0)
    at = np.full((7, 5), 0.2)
    at[:, :3] = rng.dirichlet(np.ones(3), size=7) * 0.6
    drawing = simplex.choose_projection(at)
    check(drawing.about)
    seen = drawing(at)
    apart = np.linalg.norm(at[:, None] - at, axis=2)[np.triu_indices(7, 1)]
    drawn = np.linalg.norm(seen[:, None] - seen, axis=2)[np.triu_indices(7, 1)]
    assert drawn / apart == pytest.approx(np.full(21, drawn[0] / apart[0]))
    assert np.linalg.norm(drawing.corners, axis=1).max() == pytest.approx(1)


def test_clients_in_one_place_are_drawn_on_a_polygon() -> None:
    drawing = simplex.choose_projection(np.full((4, 5), 0.2))
    assert "regular polygon" in drawing.about
    assert drawing(np.full(5, 0.2)) == pytest.approx([0, 0], abs=1e-12)


def test_the_page_shows_who_is_like_whom_but_not_without_labels(
    similar: RecordedRun, tmp_path: Path
) -> None:
    assert "figure-similarity-0" in page.render([similar])
    method = {"name": "fedsimsup", "similarity": "none"}
    settings = {"clients": 8, "clients_per_round": 5, "rounds": 1, "epochs": 1}
    data = {"name": "synthetic", "samples": 400}
    federate(Experiment(method=method, data=data, **settings), out=tmp_path / "run")
    text = page.render([read(tmp_path / "run")])
    assert "figure-branches-0" in text
    assert "figure-similarity-0" not in text


def test_several_runs_are_chosen_from_a_list(write: Callable[..., Path]) -> None:
    runs = [read(write("superfed-mm", name, seed=seed)) for name, seed in (("a", 1), ("b", 2))]
    text = page.render(runs)
    assert '<option value="path-run-1">superfed-mm · seed 2</option>' in text
    assert '<div id="path-run-0">' in text
    assert '<div id="path-run-1" hidden>' in text
    assert "path-run" not in page.render(runs[:1]).replace("path-run-0", "")
