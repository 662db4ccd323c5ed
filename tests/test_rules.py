"""Design rules, kept by reading the source."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import isthmus

SOURCE = Path(isthmus.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# Who may import whom, by top-level name inside the package.
ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "memory": set(),
    "quadratic": {"vector"},
    "ranges": set(),
    "streams": set(),
    "vector": set(),
    "simplex": {"task", "vector"},
    "gaussian": {"vector"},
    "tree": {"errors"},
    "metrics": set(),
    "models": {"errors", "ranges"},
    "data": {"errors", "memory", "metrics", "ranges", "streams"},
    "task": {"models", "streams"},
    "client": {"errors", "metrics", "models", "task", "tree"},
    "method": {"client", "task"},
    "cohort": {
        "client",
        "data",
        "errors",
        "method",
        "metrics",
        "shelf",
        "task",
        "tree",
        "vector",
    },
    "absentees": {"cohort", "vector"},
    "pair": {"client", "models"},
    "methods": {
        "absentees",
        "client",
        "cohort",
        "errors",
        "gaussian",
        "method",
        "pair",
        "quadratic",
        "ranges",
        "simplex",
        "streams",
        "task",
        "tree",
        "vector",
    },
    "engines": {"client", "cohort", "errors", "models", "streams", "task", "tree"},
    "shelf": set(),
    "vault": {"errors"},
    "ledger": {"cohort", "data", "metrics", "task"},
    "stopping": {"cohort", "experiment"},
    "store": {"cohort", "errors", "ledger", "method", "shelf", "stopping", "tree", "vault"},
    "board": set(),
    "terminal": {"board"},
    "tracking": {"errors"},
    "listing": set(),
    "picture": set(),
    "options": {"data", "experiment", "parts"},
    "data_cli": {"data", "dividing", "errors", "listing", "options", "picture", "terminal"},
    "parts": {"data", "errors", "method", "methods", "models"},
    "experiment": {"data", "errors", "models", "parts", "ranges", "task"},
    "dividing": {"data", "errors", "experiment", "parts", "streams"},
    "choosing": {"data", "engines", "errors", "experiment", "models"},
    "rounds": {
        "choosing",
        "cohort",
        "data",
        "dividing",
        "engines",
        "errors",
        "experiment",
        "joining",
        "ledger",
        "method",
        "models",
        "parts",
        "shelf",
        "stopping",
        "store",
        "streams",
        "task",
        "vault",
    },
    "estimate": {"cohort", "engines", "errors", "experiment", "memory", "method", "shelf", "tree"},
    "joining": {"client", "cohort", "data", "engines", "method", "shelf", "store"},
    "opened": {
        "client",
        "cohort",
        "data",
        "engines",
        "experiment",
        "joining",
        "method",
        "metrics",
        "models",
        "parts",
        "rounds",
        "shelf",
        "store",
        "tree",
    },
    "running": {
        "board",
        "choosing",
        "cohort",
        "engines",
        "errors",
        "estimate",
        "experiment",
        "rounds",
        "stopping",
        "store",
        "terminal",
        "tracking",
    },
    "landscape": {
        "data",
        "engines",
        "errors",
        "ledger",
        "metrics",
        "opened",
        "simplex",
        "tree",
    },
    "landscape_cli": {"errors", "landscape", "opened", "options", "terminal"},
    "report": {"errors", "metrics"},
    "compare": {"errors", "experiment", "parts"},
    "cell": {
        "board",
        "cohort",
        "errors",
        "estimate",
        "experiment",
        "rounds",
        "store",
        "vault",
    },
    "crew": set(),
    "compare_cli": {
        "board",
        "compare",
        "crew",
        "data",
        "errors",
        "estimate",
        "options",
        "report",
        "stopping",
        "terminal",
        "vault",
    },
    "figure_cli": {"errors", "report"},
    "__main__": {"cli"},
    "cli": {
        "board",
        "compare_cli",
        "data",
        "data_cli",
        "errors",
        "experiment",
        "figure_cli",
        "joining",
        "landscape_cli",
        "listing",
        "opened",
        "options",
        "parts",
        "report",
        "running",
    },
}

LETTERS = SOURCE / "engines" / "letters.py"  # between the processes of one run

NOT_EVERYWHERE = {
    "torch": {
        "report",
        "cli",
        "compare_cli",
        "data_cli",
        "figure_cli",
        "landscape_cli",
        "listing",
        "options",
        "picture",
        "terminal",
        "vault",
    },
    "mlflow": set(ALLOWED) - {"tracking"},
    "tensorboard": set(ALLOWED) - {"tracking"},
    "torch.utils.tensorboard": set(ALLOWED) - {"tracking"},
    "flwr": {"*"},
    "ray": {"*"},
    "pickle": {"*"},
}


def imports(path: Path) -> set[str]:
    """All modules that a file imports when it runs, also inside functions."""
    body = ast.parse(path.read_text())
    hidden = {
        id(inner)
        for node in ast.walk(body)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(body):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "isthmus":
                found |= {f"isthmus.{name.name}" for name in node.names}
    return found


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(SOURCE)) for p in MODULES])
def test_modules_import_only_what_lies_below_them(path: Path) -> None:
    here = room(path)
    inside = {name.split(".")[1] for name in imports(path) if name.startswith("isthmus.")} - {here}
    assert inside <= ALLOWED[here]
    for outside, rooms in NOT_EVERYWHERE.items():
        if (here in rooms or "*" in rooms) and (outside, path) != ("pickle", LETTERS):
            assert not any(f"{name}.".startswith(f"{outside}.") for name in imports(path))


def test_the_import_rules_have_no_cycle() -> None:
    done: set[str] = set()
    while len(done) < len(ALLOWED):
        ready = {name for name, below in ALLOWED.items() if name not in done and below <= done}
        assert ready, f"a cycle among {sorted(set(ALLOWED) - done)}"
        done |= ready


def test_no_method_imports_another() -> None:
    for path in (SOURCE / "methods").glob("*.py"):
        if path.name != "__init__.py":
            assert not any(name.startswith("isthmus.methods") for name in imports(path))


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(SOURCE)) for p in MODULES])
def test_files_stay_short(path: Path) -> None:
    """A method reads like its algorithm box; no file is more than one thing."""
    budget = 140 if room(path) == "methods" else 450
    assert path.read_text().count("\n") <= budget


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(SOURCE)) for p in MODULES])
def test_nothing_is_called_utils(path: Path) -> None:
    assert not {"utils", "util", "helpers", "common", "misc"} & set(
        path.relative_to(SOURCE).with_suffix("").parts
    )


def test_no_method_subclasses_another_and_none_calls_super() -> None:
    for path in (SOURCE / "methods").glob("*.py"):
        body = ast.parse(path.read_text())
        for node in ast.walk(body):
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                assert bases <= {"Method", "NamedTuple"}
            assert not (isinstance(node, ast.Name) and node.id == "super")


def test_every_method_file_ends_its_docstring_with_its_departures() -> None:
    for path in (SOURCE / "methods").glob("*.py"):
        if path.name != "__init__.py":
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            assert "Limiting case:" in text, path.name
            assert text.split("\n\n")[-1].startswith("Departures"), path.name


def test_the_public_names_are_these() -> None:
    assert isthmus.__all__ == [
        "Client",
        "Clients",
        "Experiment",
        "Federation",
        "IsthmusError",
        "Method",
        "Point",
        "Run",
        "Task",
        "federate",
        "open",
        "resume",
    ]
    for name in isthmus.__all__:
        assert getattr(isthmus, name).__name__ == name


def test_the_package_and_its_report_come_without_torch() -> None:
    code = "import isthmus, isthmus.cli, isthmus.report.page, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_method_has_its_page() -> None:
    pages = SOURCE.parents[1] / "docs" / "methods"
    for path in (SOURCE / "methods").glob("*.py"):
        if path.name != "__init__.py":
            assert (pages / f"{path.stem}.md").is_file()
