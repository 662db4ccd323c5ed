"""The page: one file, no requests, nothing in it that a record could run."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs

from browser import contrast, parsed
from isthmus.errors import IsthmusError
from isthmus.report import page
from isthmus.report.figures import path, theme
from isthmus.run.record import RecordedRun, read

Write = Callable[..., Path]


def without_plotly(text: str) -> str:
    return text.replace(get_plotlyjs(), "")


def drawn(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text)
    assert found is not None
    return dict(json.loads(found[1])["figures"])


@pytest.fixture(scope="module")
def text(five: list[RecordedRun]) -> str:
    return without_plotly(page.render(five))


def test_the_page_is_one_file_of_moderate_size(five: list[RecordedRun], tmp_path: Path) -> None:
    place = page.write(five, tmp_path)
    assert place == tmp_path / "report.html"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert place.stat().st_size < 6_000_000
    assert get_plotlyjs() in place.read_text(encoding="utf-8")


def test_a_named_file_is_written_where_asked(five: list[RecordedRun], tmp_path: Path) -> None:
    place = page.write(five[:1], tmp_path / "deep" / "page.html", title="Mine")
    assert place == tmp_path / "deep" / "page.html"
    assert "<title>Mine</title>" in place.read_text(encoding="utf-8")


def test_the_page_asks_the_network_for_nothing(text: str) -> None:
    assert "http://" not in text
    assert "https://" not in text
    assert not re.search(r"url\(|@import|\bimport\(|fetch\(|XMLHttpRequest", text)
    for tag, attributes in parsed(text).seen:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base"}
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "default-src 'none'" in text


def test_the_tags_are_balanced_and_the_tables_have_scopes(text: str) -> None:
    seen = parsed(text).seen
    assert all("scope" in attributes for tag, attributes in seen if tag == "th")
    names = [attributes["id"] for _, attributes in seen if "id" in attributes]
    assert len(names) == len(set(names))
    targets = {(attributes["href"] or "")[1:] for tag, attributes in seen if tag == "a"}
    assert targets <= set(names)
    assert sum(tag == "h1" for tag, _ in seen) == 1


def test_every_figure_has_its_place(text: str) -> None:
    names = {attributes.get("id") for _, attributes in parsed(text).seen}
    assert set(drawn(text)) <= names
    assert {"figure-rounds", "figure-gain-1", "figure-path-3", "figure-time"} <= set(drawn(text))


def test_the_page_holds_the_recorded_values(five: list[RecordedRun], text: str) -> None:
    curve = five[3].curve("top1")
    traces = drawn(text)["figure-rounds"]["marks"]
    shown = {"view": "top1", "axis": "rounds", "model": "personal", "run": 3}
    mine = next(trace for trace in traces if trace["shown"] == shown)
    assert mine["x"] == curve.round.tolist()
    # Five significant digits are kept.
    assert mine["y"] == pytest.approx((100 * curve.mean).tolist(), rel=5e-5)
    assert f"{100 * curve.mean[-1]:.2f}" in text


def test_the_bins_of_all_clients_are_drawn(five: list[RecordedRun], text: str) -> None:
    """Twelve bins hold examples: (b - 1/2) / 15 sure and nine tenths of that right."""
    diagonal, *traces = drawn(text)["figure-reliability"]["marks"]
    assert diagonal["x"] == diagonal["y"]
    assert [trace["name"] for trace in traces] == [run.method for run in five]
    assert traces[0]["x"] == pytest.approx([100 * (b - 0.5) / 15 for b in range(4, 16)], abs=1e-3)
    assert traces[0]["y"] == pytest.approx([0.9 * x for x in traces[0]["x"]], abs=1e-3)
    assert traces[0]["data"] == [10 * b for b in range(4, 16)]
    assert "Pooled over all clients' test examples" in text
    sure = sum(10 * b * (b - 0.5) / 15 for b in range(4, 16)) / sum(range(40, 151, 10))
    assert f"{100 * 0.1 * sure:.2f}" in text  # ECE: a tenth of the mean confidence


def test_without_bins_the_page_does_not_speak_of_them(tiny: Write) -> None:
    text = without_plotly(page.render([read(tiny("fedavg", [0.5] * 4))]))
    assert "figure-reliability" not in text


def test_gains_are_counted_in_words(tiny: Write) -> None:
    """(0.5, 0.6, 0.7, 1.0) less (0.4, 0.6, 0.8, 1.0): one gains, two stay, one loses."""
    alone = read(tiny("local", [0.4, 0.6, 0.8, 1.0]))
    together = read(tiny("fedavg", [0.5, 0.6, 0.7, 1.0]))
    text = without_plotly(page.render([alone, together]))
    said = " ".join(re.sub(r"<.*?>", "", text).split())
    assert "1 of 4 clients gain, 2 stay equal, 1 lose; median 0.00 points" in said
    bars = drawn(text)["figure-gain-1"]["marks"][0]
    assert bars["y"] == [-10.0, 0.0, 0.0, 10.0]
    assert bars["data"][0] == [2, 8, "<br>class 0: 12, class 1: 8"]


def test_gains_across_federations_are_refused(tiny: Write) -> None:
    alone = read(tiny("local", [0.5] * 4))
    other = read(tiny("fedavg", [0.5] * 4, federation="cafe"))
    text = without_plotly(page.render([alone, other]))
    assert not any(name.startswith("figure-gain") for name in drawn(text))
    assert "fedavg cannot be compared: it was trained on another federation" in text


def test_a_run_on_another_federation_is_left_out_of_the_gains(tiny: Write) -> None:
    runs = [
        read(tiny("local", [0.5] * 4)),
        read(tiny("fedavg", [0.5] * 4)),
        read(tiny("ditto", [0.5] * 4, federation="cafe")),
    ]
    text = without_plotly(page.render(runs))
    assert "figure-gain-1" in drawn(text)
    assert "figure-gain-2" not in drawn(text)
    assert "Left out: ditto" in text


def test_without_local_the_page_says_what_is_missing(five: list[RecordedRun]) -> None:
    text = without_plotly(page.render(five[1:2]))
    assert "None of these runs is a run of <code>local</code>" in text
    assert "figure-path" not in text


def test_the_path_says_how_many_clients_have_an_own_end(text: str) -> None:
    assert "18 of 20 clients have a trained own model" in text
    traces = drawn(text)["figure-path-3"]["marks"]
    names = {trace["name"] for trace in traces}
    assert {"fedavg, shared model", "local, training alone", "mean over clients"} <= names


def test_a_path_nobody_has_begun_is_not_drawn(write: Write) -> None:
    run = read(write("superfed-mm", evaluations=(10,)))
    text = without_plotly(page.render([run]))
    assert "no client has trained its own model yet" in text
    assert not any(name.startswith("figure-path") for name in drawn(text))


def test_many_clients_become_a_band(write: Write) -> None:
    run = read(write("superfed-mm", clients=80, evaluations=(50,)))
    paths = run.along()
    assert paths is not None
    names = [mark.name for mark in path.build(run, paths, [run], "#000000").marks]
    assert "each client" not in names
    assert "from the 10th to the 90th percentile of the clients" in names


def test_numbers_chosen_on_test_data_carry_a_dagger_on_the_page(write: Write) -> None:
    runs = [read(write("local")), read(write("superfed-mm", selection="oracle"))]
    text = without_plotly(page.render(runs))
    assert text.count("† The point on the path was chosen") >= 4
    curves = drawn(text)["figure-rounds"]["marks"]
    names = {t["name"] for t in curves if t["shown"].get("model") == "personal"}
    assert names == {"local", "superfed-mm†"}
    assert "superfed-mm" in {t["name"] for t in curves if t["shown"].get("model") == "shared"}


def test_a_name_is_inert_where_plotly_knows_tags_and_templates(tiny: Write) -> None:
    run = read(tiny("<img src=x>%{x}'", [0.5] * 4, name="evil"))
    trace = drawn(page.render([run]))["figure-rounds"]["marks"][-1]
    assert "<img" not in trace["hover"]
    assert "%{x}'" not in trace["hover"]


def test_seeds_of_one_method_share_a_colour(write: Write) -> None:
    runs = [
        read(write("fedavg", "a", seed=1)),
        read(write("fedavg", "b", seed=2)),
        read(write("local")),
    ]
    first, second, alone = theme.choose_colours(runs)
    assert first == second != alone == theme.ALONE[0]
    assert theme.choose_styles(runs)[0] == theme.choose_styles(runs)[1]


def test_sixty_groups_are_drawn_in_sixty_ways_and_twelve_differ_in_grey(
    five: list[RecordedRun],
) -> None:
    """Twelve colours and symbols, five patterns: 12 and 5 have no common divisor."""
    runs = [
        five[1]._replace(settings=five[1].settings | {"method.name": f"m{i}"}) for i in range(60)
    ]
    styles = theme.choose_styles([five[0], *runs])
    assert len({(style.colour, style.dash, style.symbol) for style in styles}) == 61
    assert len({style.symbol for style in styles[:13]}) == 13
    assert len({style.colour for style in styles[:13]}) == 13
    assert {style.symbol for style in styles} == set(theme.SYMBOLS)


@pytest.mark.parametrize("tone", [0, 1])
def test_every_colour_stands_out_from_its_background(tone: int) -> None:
    """Contrast of at least 3, as WCAG 2 asks of graphics: (L1 + 0.05) / (L2 + 0.05)."""
    for tones in (*theme.SERIES, theme.ALONE, theme.MUTED, theme.INK):
        assert contrast(tones[tone], theme.SURFACE[tone]) >= 3


def test_an_unfinished_run_alone_makes_a_page(write: Write) -> None:
    directory = write("superfed-mm")
    (directory / "summary.json").unlink()
    text = without_plotly(page.render([read(directory)]))
    assert "unfinished" in text
    parsed(text)


def test_no_runs_is_one_clear_line() -> None:
    with pytest.raises(IsthmusError, match="no runs were given; name at least one"):
        page.render([])
