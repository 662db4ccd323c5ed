"""Names from a run's files are shown as they are, wherever they are printed, and do nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from browser import parsed
from isthmus.report import page
from isthmus.report.contrasts import compare
from isthmus.report.tables import comparison, summary
from isthmus.report.templates import escape_latex, escape_markdown
from isthmus.run.record import RecordedRun, read

Write = Callable[..., Path]

EVIL = "</script><img src=x onerror=alert(1)>%{x}'\"|\\input{y}&$_"
FOLDER = "<b onclick=alert(1)>'\"&"  # a directory's name may be anything but a slash
SETTING = "{{ 7 * 7 }}<i>"  # neither is a value a template


@pytest.fixture
def runs(tiny: Write) -> list[RecordedRun]:
    """Two runs of one hostile method, which are told apart by seed and directory, and of local."""
    about = {"at": "0.5", "selection": EVIL, "note": SETTING}
    return [
        read(tiny("local", [0.5] * 4)),
        read(tiny(EVIL, [0.4, 0.6, 0.5, 0.5], name=FOLDER, **about)),
        read(tiny(EVIL, [0.5, 0.6, 0.5, 0.5], name="other", lr=0.5, **about)),
    ]


def test_a_page_shows_names_and_runs_nothing(runs: list[RecordedRun]) -> None:
    text = page.render(runs, title=EVIL).replace(get_plotlyjs(), "")
    reader = parsed(text)
    tags = {tag for tag, _ in reader.seen}
    assert not tags & {"img", "b", "i"}
    assert not any(name.startswith("on") for _, attributes in reader.seen for name in attributes)
    assert text.count("<script") == text.count("</script>") == 3
    for name in (EVIL, FOLDER, SETTING):
        assert name in reader.text
        assert name not in text


def test_markdown_shows_names_and_keeps_its_columns(runs: list[RecordedRun]) -> None:
    spelled = escape_markdown(EVIL)
    assert "<img" not in spelled
    for text in (
        summary.markdown(summary.summarize(runs)),
        comparison.markdown(compare(runs), {EVIL: f"why\n{EVIL}"}),
    ):
        assert spelled in text
        assert "<img" not in text
        rows = [line for line in text.splitlines() if line.startswith("|")]
        ends = {line.replace("\\\\", "").replace("\\|", "").count("|") for line in rows}
        assert len(ends) == 1


def test_latex_prints_names_and_obeys_none(runs: list[RecordedRun]) -> None:
    text = comparison.latex(compare(runs), {EVIL: f"why\n\\input{{z}} {EVIL}"})
    assert escape_latex(EVIL) in text
    commands = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert r"\input" not in commands
    assert r"\textbackslash{}input\{y\}" in commands


def test_what_is_missing_stands_in_the_tables_for_people(
    runs: list[RecordedRun], tmp_path: Path
) -> None:
    comparison.write(runs, tmp_path, "local", {"fedavg-2": "diverged\nin round 3"})
    said = "Missing: fedavg-2: diverged in round 3\n"
    assert (tmp_path / "table.md").read_text(encoding="utf-8").endswith(f"\n\n{said}")
    assert (tmp_path / "table.tex").read_text(encoding="utf-8").endswith(f"\n% {said}")
    assert "Missing" not in (tmp_path / "table.csv").read_text(encoding="utf-8")
