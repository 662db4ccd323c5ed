"""Everything that decides a number, validated; TOML in, the same TOML at the head of every record.

What cannot move a number (paths, verbosity) is not here.
"""

import dataclasses
import inspect
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from torch import nn

from isthmus.data.partition import PARTITIONS
from isthmus.data.sources import SOURCES
from isthmus.errors import IsthmusError, nearest
from isthmus.method import Method
from isthmus.methods import METHODS
from isthmus.models import MODELS
from isthmus.models.flat import Head
from isthmus.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt
from isthmus.task import Selection

OWN = "own"  # the name that data, partition and model bear when they came from Python

PARTS = ("method", "data", "partition", "model")

Table = Mapping[str, Any]
Part = Annotated[Mapping[str, Any], AfterValidator(MappingProxyType)]  # {"name": ..., options}


class Experiment(BaseModel):
    """All settings of a run, complete and checked.

    >>> experiment = Experiment(method="superfed-mm", data="digits", rounds=40, seed=11)
    >>> experiment.method["nu"], experiment.clients, experiment.model["name"]
    (1.0, 20, 'mlp')

    `method`, `data`, `partition` and `model` are a name, or a table of a name and options. What is
    left out takes the preset's value, then the default, which is the paper's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Literal["clean", "paper", "release"] = "clean"
    seed: NonNegativeInt = 0

    rounds: PositiveInt = 500  # R
    clients: PositiveInt = 100  # N; a data set brings its own default
    clients_per_round: PositiveInt = 5  # K
    epochs: PositiveInt = 10  # E
    batch_size: PositiveInt = 10  # B
    lr: Positive = 0.01
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.99  # per round
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 1e-4

    test: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of a client's examples
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share of the rest
    head: Head = "last"
    eval_every: NonNegativeInt = 10  # 0: only after the last round
    selection: Selection = "validation"
    engine: Literal["loop", "stacked"] = "loop"
    block: PositiveInt = 16  # clients that `stacked` computes together

    method: Part
    data: Part
    partition: Part
    model: Part

    def __init__(self, **given: Any):
        try:
            BaseModel.__init__(self, **complete(given))
        except ValidationError as error:
            raise IsthmusError(one_line(error)) from None
        if self.clients_per_round > self.clients:
            raise IsthmusError(
                f"clients_per_round={self.clients_per_round} of clients={self.clients}; expected "
                "at most as many as there are; lower clients_per_round"
            )

    @classmethod
    def load(cls, path: Path | str, changes: Table | None = None) -> "Experiment":
        """Reads an experiment file, with some settings changed."""
        path = Path(path)
        try:
            given = tomllib.loads(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise IsthmusError(
                f"{path} cannot be read ({error}); expected an experiment in TOML; check the path"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise IsthmusError(f"{path} is not TOML: {error}; mend that line") from None
        return cls(**merged(given, changes or {}))

    def toml(self) -> str:
        """Writes all settings as TOML that `load` reads back."""
        return toml({name: getattr(self, name) for name in type(self).model_fields})

    def build_method(self) -> Method:
        """Makes the method with its hyper-parameters."""
        method: Any = METHODS[self.method["name"]]
        built: Method = dataclasses.replace(method, **_chosen(self.method))
        return built

    def build_source(self) -> Any:
        """Makes the data set's reader."""
        return SOURCES[self.data["name"]](**_chosen(self.data))

    def build_partition(self) -> Any:
        """Makes the partition."""
        return PARTITIONS[self.partition["name"]](**_chosen(self.partition))

    def build_model(self, shape: tuple[int, ...], classes: int) -> Callable[[], nn.Module]:
        """Gives a function that builds the network."""
        return lambda: MODELS[self.model["name"]](shape, classes, **_chosen(self.model))


def _chosen(part: Table) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key != "name"}


def assign(text: str) -> dict[str, Any]:
    """Reads `key=value` as from --set; the value is TOML, or a string where it is not.

    >>> assign("method.nu=2"), assign("partition=iid")
    ({'method': {'nu': 2}}, {'partition': 'iid'})
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not key or not equals:
        raise IsthmusError(f"--set {text!r}; expected key=value; for example --set lr=0.1")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    return _nested(_full_name(key), parsed)


def merged(first: Table, second: Table) -> dict[str, Any]:
    """Joins two tables of settings; where both set a key, the second wins.

    A part that changes its name loses the options it had: they were another's.
    """
    result = {key: _named(value) if key in PARTS else value for key, value in first.items()}
    for key, value in second.items():
        if key in PARTS:
            old, new = _named(result.get(key, {})), _named(value)
            renamed = "name" in old and new.get("name", old["name"]) != old["name"]
            result[key] = dict(new) if renamed else {**old, **new}
        else:
            result[key] = value
    return result


def _named(part: Any) -> Table:
    return part if isinstance(part, Mapping) else {"name": part}


def complete(given: Table) -> dict[str, Any]:
    """Fills in presets and defaults, and checks the names and options of the four parts."""
    unknown = [key for key in given if key not in Experiment.model_fields]
    if unknown:
        known = list(Experiment.model_fields)
        raise IsthmusError(f"no setting is called {unknown[0]!r}; {nearest(unknown[0], known)}")
    wanted = merged({"method": "superfed-mm", "data": "digits"}, given)
    source = wanted["data"].get("name")
    brings = SOURCES.get(source) if isinstance(source, str) else None
    defaults = {
        "partition": OWN if source == OWN else "pathological",
        "model": brings.model if brings else "mlp",
        "clients": brings.clients if brings else 100,
    }
    wanted = merged(defaults, wanted)
    family = presets().get(wanted.get("preset", "clean"), {})
    method = wanted["method"].get("name")
    for layer in (family.get(method, {}), family.get("all", {})):
        wanted = merged(_fitting(layer, wanted), wanted)
    return {key: _part(key, value) if key in PARTS else value for key, value in wanted.items()}


def _fitting(layer: Table, wanted: Table) -> dict[str, Any]:
    """Leaves out of a preset the options that the chosen parts do not have."""
    result = dict(layer)
    for key in PARTS:
        known = options(key).get(wanted[key].get("name"), {})
        result[key] = {k: v for k, v in layer.get(key, {}).items() if k in known}
    return result


def _part(key: str, given: Table) -> dict[str, Any]:
    """Completes one of method, data, partition and model: {"name": ..., all its options}."""
    name, known = given.get("name"), options(key)
    if name == OWN and key != "method":
        return dict(given)
    if not isinstance(name, str) or name not in known:
        raise IsthmusError(f"no {key} is called {name!r}; {nearest(str(name), list(known))}")
    for option in given:
        if option != "name" and option not in known[name]:
            hint = nearest(option, list(known[name])) if known[name] else "it takes none"
            raise IsthmusError(f"{key} {name} has no option {option!r}; {hint}")
    result = {"name": name}
    for option, (kind, default) in known[name].items():
        try:
            result[option] = TypeAdapter(kind).validate_python(given.get(option, default))
        except ValidationError as error:
            raise IsthmusError(one_line(error, f"{key}.{option}", default)) from None
    return result


def _settings(owner: Any) -> dict[str, tuple[Any, Any]]:
    """Finds the options of a dataclass, an instance of one, or a function."""
    if inspect.isfunction(owner):
        hints = get_type_hints(owner, include_extras=True)
        parameters = inspect.signature(owner).parameters.values()
        return {p.name: (hints[p.name], p.default) for p in parameters if p.kind is p.KEYWORD_ONLY}
    kind: Any = owner if inspect.isclass(owner) else type(owner)
    hints = get_type_hints(kind, include_extras=True)
    return {
        field.name: (hints[field.name], getattr(owner, field.name))
        for field in dataclasses.fields(kind)
    }


@cache
def options(key: str) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Lists what a part may be called, and the options of each with their types and defaults."""
    tables: dict[str, Mapping[str, Any]] = {
        "method": METHODS,
        "data": SOURCES,
        "partition": PARTITIONS,
        "model": MODELS,
    }
    return {name: _settings(owner) for name, owner in tables[key].items()}


@cache
def presets() -> dict[str, Any]:
    """Reads the preset families."""
    return tomllib.loads((files("isthmus") / "presets.toml").read_text())


def _full_name(key: str) -> str:
    """Finds the table of an option that was named without it, where only one has it."""
    top = key.split(".")[0]
    if top in Experiment.model_fields:
        return key
    every = {(part, name) for part in PARTS for known in options(part).values() for name in known}
    owners = sorted(part for part, name in every if name == key)
    if len(owners) == 1:
        return f"{owners[0]}.{key}"
    if owners:
        raise IsthmusError(
            f"{key!r} is an option of {' and of '.join(owners)}; expected one of them; write "
            f"{owners[0]}.{key}"
        )
    known = [*Experiment.model_fields, *sorted(name for _, name in every)]
    raise IsthmusError(f"no setting is called {key!r}; {nearest(key, known)}")


def _nested(key: str, value: Any) -> dict[str, Any]:
    head, dot, rest = key.partition(".")
    return {head: _nested(rest, value) if dot else value}


def one_line(error: ValidationError, name: str | None = None, default: Any = None) -> str:
    """Says of the first thing that is wrong what was given, what was expected, what would do."""
    first = error.errors()[0]
    place = name or str(first["loc"][0])
    if name is None:
        default = Experiment.model_fields[place].default
    expected = first["msg"].removeprefix("Input should be ").split(", unable")[0]
    expected = f"{expected[0].lower()}{expected[1:]}"
    return f"{place}={first['input']!r}; expected {expected}; for example {place}={default}"


def toml(table: Table) -> str:
    """Writes settings as TOML: plain keys first, then one table per part."""
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if not _is_table(value)]
    for key, value in table.items():
        if _is_table(value):
            lines += ["", f"[{key}]", *(f"{k} = {_value(v)}" for k, v in value.items())]
    return "\n".join(lines) + "\n"


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
