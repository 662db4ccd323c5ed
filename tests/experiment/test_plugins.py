"""Names stand for code that is loaded when it is needed, of this package or of another one."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import isthmus
from isthmus import Experiment
from isthmus.data import NOISES, PARTITIONS, SOURCES
from isthmus.experiment import registry
from isthmus.methods import METHODS
from isthmus.models import MODELS

PACKAGE = '''
from dataclasses import dataclass
from typing import ClassVar

from isthmus.data.named.digits import Digits
from isthmus.engines.loop import Loop
from isthmus.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Theirs(FedAvg):
    """A method of another package."""

    strength: float = 0.5


@dataclass(frozen=True)
class TheirDigits(Digits):
    """Data of another package."""

    clients: ClassVar[int] = 4
'''
ENTRY_POINTS = """
[isthmus.methods]
theirs = their_package:Theirs
broken = their_package:Nothing
fedavg = their_package:Theirs

[isthmus.data]
their-digits = their_package:TheirDigits

[isthmus.engines]
their-engine = their_package:Loop
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """A Python beside which another package is installed."""
    installed = tmp_path / "site"
    described = installed / "their_package-1.0.dist-info"
    described.mkdir(parents=True)
    (installed / "their_package.py").write_text(PACKAGE)
    (described / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n"
    )
    (described / "entry_points.txt").write_text(ENTRY_POINTS)
    source = Path(isthmus.__file__).parents[1]
    path = os.pathsep.join([str(source), str(installed)])

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_parts_of_another_package_are_named_as_those_of_this_one(python: Run) -> None:
    named = ["--method", "theirs", "--data", "their-digits", "--set", "engine=their-engine"]
    small = ["--rounds", "1", "--set", "strength=0.25", "--set", "clients_per_round=2"]
    done = python("-m", "isthmus", "run", *named, *small, "--out", "out")
    assert done.returncode == 0, done.stderr
    shown = python("-m", "isthmus", "show", "out", "--json")
    for text in ('"method.name": "theirs"', '"method.strength": 0.25', '"clients": 4'):
        assert text in shown.stdout


def test_another_package_takes_no_name_of_this_one(python: Run) -> None:
    done = python("-c", "from isthmus.methods import METHODS; print(METHODS['fedavg'])")
    assert done.stdout == "FedAvg(tune=0, tune_lr=0.01)\n"


def test_a_broken_package_is_named_in_one_line(python: Run) -> None:
    done = python("-m", "isthmus", "run", "--method", "broken")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "broken of package their-package" in done.stderr


def test_experiments_are_read_without_torch() -> None:
    code = """
import sys
from isthmus import Experiment
for part, names in {0}.items():
    for name in names:
        Experiment(**{{part: name}})
from isthmus.experiment.registry import PARTS, describe_choices
for part in PARTS:
    describe_choices(part)
print("torch" in sys.modules)
"""
    parts = {part: list(registry.PARTS[part]) for part in registry.PARTS}
    code = code.format(parts)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_s_outline_is_what_its_class_says(name: str) -> None:
    """Options and facts are read from the file, without running it."""
    method = METHODS[name]
    assert (
        registry.describe_method(method).items()
        >= {
            key: value
            for key, value in Experiment(method=name).method.items()
            if key != "name" and not isinstance(value, tuple)
        }.items()
    )
    outline = registry._look_up("method", name)
    assert inspect.signature(type(outline)) == inspect.signature(type(method))
    assert outline.about() == method.about()
    assert inspect.getdoc(outline) == inspect.getdoc(inspect.getmodule(type(method)))


@pytest.mark.parametrize("name", MODELS)
def test_a_network_s_outline_is_what_its_function_says(name: str) -> None:
    outline, network = registry._look_up("model", name), MODELS[name]
    assert outline.__doc__ == network.__doc__
    arguments = [inspect.signature(each).parameters for each in (outline, network)]
    assert arguments[0] == arguments[1]


@pytest.mark.parametrize("part", [SOURCES, PARTITIONS, NOISES], ids=lambda part: part.group)
def test_every_name_stands_for_something(part: registry.Registry) -> None:
    assert all(inspect.isclass(kind) for kind in part.values())
