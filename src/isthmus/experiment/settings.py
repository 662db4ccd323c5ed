"""All settings that decide a number, with what is known of each; read from and written to TOML.

What cannot change a number (paths, verbosity) is not here.
"""

import errno
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from isthmus.data import SOURCES
from isthmus.engines import ENGINES
from isthmus.errors import IsthmusError, nearest, quote
from isthmus.experiment import registry
from isthmus.experiment.registry import COMPONENTS, OWN, Table, merge, to_table
from isthmus.ranges import (
    Balance,
    Calibration,
    Head,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Repeats,
)
from isthmus.selection import RULES, Rule, Selection
from isthmus.system.files import open_regular

LARGEST_FILE = 2**24  # bytes of an experiment; a device has no end
Component = Annotated[Mapping[str, Any], AfterValidator(MappingProxyType)]  # {"name": ..., options}
ANYTHING: Any = object()  # no value is required
Role = Literal["seed", "data", "task", "budget", "method", "measurement", "placement"]

ALL_ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Facts:
    """What is known of a setting beside its range.

    Roles: a `method` setting may differ between the methods of a comparison, `data` decides who
    holds which examples, `task` what is learned from them, `budget` how much is computed and sent,
    `measurement` what is evaluated and when, `placement` where and how it is computed; runs that
    differ in a `seed` alone repeat each other.
    """

    role: Role
    before: Any = ANYTHING  # what a run was made with that is older than the setting
    at_sites: Any = ANYTHING  # the only value that is possible where data lie at sites
    filled: str | bool = False  # whether a run replaces what was asked for, or which option of it


class Experiment(BaseModel):
    """All settings of a run, complete and checked.

    >>> experiment = Experiment(method="superfed-mm", data="digits", rounds=40, seed=11)
    >>> experiment.method["nu"], experiment.clients, experiment.model["name"]
    (1.0, 20, 'mlp')

    `method`, `data`, `partition`, `model` and `noise` are a name, or a table of a name and options.
    A setting that is left out takes the preset's value, then its default, which is the paper's.
    """

    model_config = ConfigDict(frozen=True, extra="allow")  # of files from before

    preset: Annotated[Literal["clean", "paper", "release"], Facts("task")] = "clean"
    seed: Annotated[NonNegativeInt, Facts("seed")] = 0
    # divides the data; None: seed does
    split_seed: Annotated[NonNegativeInt | None, Facts("data")] = None

    rounds: Annotated[Repeats, Facts("budget")] = 500  # R
    # N; a data set brings its own default; 0: one for each owner
    clients: Annotated[NonNegativeInt, Facts("data", filled=True)] = 100
    clients_per_round: Annotated[PositiveInt, Facts("budget", filled=True)] = 5  # K
    epochs: Annotated[Repeats, Facts("budget")] = 10  # E
    batch_size: Annotated[PositiveInt, Facts("budget")] = 10  # B
    lr: Annotated[Positive, Facts("method")] = 0.01
    lr_decay: Annotated[float, Field(gt=0, le=1), Facts("method")] = 0.99  # per round
    momentum: Annotated[float, Field(ge=0, lt=1), Facts("method")] = 0.9
    weight_decay: Annotated[NonNegative, Facts("method")] = 1e-4

    # share of a client's examples
    test: Annotated[float, Field(gt=0, lt=1), Facts("data")] = 0.2
    validation: Annotated[float, Field(ge=0, lt=1), Facts("data")] = 0.1  # share of the rest
    # who gets the data's own test examples
    test_set: Annotated[Literal["server", "clients"], Facts("data", before="server")] = "server"
    # share of clients that join afterwards
    held_out: Annotated[float, Field(ge=0, lt=1), Facts("data", at_sites=0.0)] = 0.0
    head: Annotated[Head, Facts("method")] = "last"
    eval_every: Annotated[NonNegativeInt, Facts("measurement")] = 10  # 0: only after the last round
    # clients evaluated: a share, or 2 or more; None: all
    eval_sample: Annotated[float | None, Facts("measurement", before=None)] = None
    # evaluations without a better one that end a run; 0: none do
    patience: Annotated[NonNegativeInt, Facts("budget")] = 0
    selection: Annotated[Selection, Facts("method")] = "validation"
    # per-batch: as the released SuPerFed code measures it
    calibration: Annotated[Calibration, Facts("measurement")] = "split"
    # classes: all classes of a client count alike in its loss
    balance: Annotated[Balance, Facts("task", before="none")] = "none"
    engine: Annotated[str, Facts("placement", filled=True)] = "auto"  # as engines/choice.py says
    # clients that `stacked` computes together; 0: what stays in cache
    block: Annotated[NonNegativeInt, Facts("placement", filled=True)] = 0
    # compiled where the run is long enough
    step: Annotated[
        Literal["auto", "eager", "compiled"], Facts("placement", before="eager", filled=True)
    ] = "auto"
    # steps of a compiled program; 0: what repays
    unroll: Annotated[int, Field(ge=0, le=64), Facts("placement", before=0, filled=True)] = 0
    # or cuda, cuda:1 and so on, mps: where client functions compute
    device: Annotated[str, Facts("task", at_sites="cpu")] = "cpu"

    method: Annotated[Component, Facts("method")]
    data: Annotated[Component, Facts("data", filled="path")]
    partition: Annotated[Component, Facts("data", filled="drawn")]
    model: Annotated[Component, Facts("task")]
    noise: Annotated[Component, Facts("data", at_sites="none")]

    def __init__(self, /, **given: Any):
        try:
            BaseModel.__init__(self, **complete(given))
        except ValidationError as error:
            name = str(error.errors()[0]["loc"][0])
            default = Experiment.model_fields[name].default or 0
            raise IsthmusError(registry.explain_error(error, name, default)) from None
        if self.clients_per_round > self.clients > 0:
            raise IsthmusError(
                f"clients_per_round={self.clients_per_round} is more than clients="
                f"{self.clients}; lower clients_per_round"
            )
        sample = 1 if self.eval_sample is None else self.eval_sample
        if not (0 < sample <= 1 or (1 < sample < inf and sample % 1 == 0)):
            raise IsthmusError(
                "eval_sample must be a share of the clients, above 0 and at most 1, or a whole "
                f"number of them, not {sample:g}; for example eval_sample=0.1 or eval_sample=1000"
            )
        for name, example in (("validation", 0.1), ("eval_every", 10)):
            if self.patience and not getattr(self, name):
                raise IsthmusError(
                    f"patience={self.patience} needs validation losses, and there are none with "
                    f"{name}=0; set {name}={example}, or patience=0"
                )

    @classmethod
    def load(cls, path: Path | str, changes: Table | None = None) -> "Experiment":
        """Return the experiment of a file, with some settings changed."""
        given, changes = read(Path(path)), changes or {}
        preset = given.get("preset", changes.get("preset"))
        if changes.get("preset", preset) != preset:
            raise IsthmusError(
                f"{path} states the values of preset={preset}, which another preset would not "
                "change; leave out the file or the preset"
            )
        return cls(**merge(given, changes))

    @classmethod
    def parse(cls, text: str, place: object = "the experiment") -> "Experiment":
        """Return the experiment that a run, a plan or a consent recorded.

        A record is complete: only settings that are younger than it are filled in. The names and
        options of its parts are not checked against the code that is installed now.

        >>> Experiment.parse(Experiment(lr=0.5).toml()) == Experiment(lr=0.5)
        True
        """
        try:
            given = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise IsthmusError(f"{place} is not valid TOML: {error}") from None
        before = {name: facts.before for name, facts in FACTS.items()}
        given = {k: v for k, v in before.items() if v is not ANYTHING} | given
        for part in COMPONENTS.keys() & given.keys():
            if isinstance(given[part], Mapping) and not given[part].get(OWN):
                options = given[part].items()
                given[part] = {k: tuple(v) if isinstance(v, list) else v for k, v in options}
        experiment = cls.__new__(cls)
        try:
            BaseModel.__init__(experiment, **given)
        except ValidationError as error:
            wrong = error.errors()[0]
            name = ".".join(map(str, wrong["loc"]))
            raise IsthmusError(
                f"{place} does not record a whole experiment ({name}: {wrong['msg']}); restore it, "
                "or run again"
            ) from None
        return experiment

    def select(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the settings that are among these names."""
        return {name: getattr(self, name) for name in names if name in FACTS}

    @property
    def rule(self) -> Rule:
        """The rule by which a point of a path is chosen."""
        return RULES[self.selection]

    @property
    def dividing_seed(self) -> int:
        """The seed that decides what the clients hold."""
        return self.seed if self.split_seed is None else self.split_seed

    def toml(self) -> str:
        """Return all settings as TOML that reads back as the same experiment."""
        for name, value in self.flat().items():
            if value is not None and not _survives_toml(value):
                raise IsthmusError(
                    f"{name}={quote(value)} cannot be written in TOML or UTF-8; give another "
                    "value, or rename the file"
                )
        return tomli_w.dumps(self.table())

    def table(self) -> dict[str, Any]:
        """Return all settings but those that are None, which TOML has no word for."""
        settings = dict(self) | {part: dict(getattr(self, part)) for part in COMPONENTS}
        return {name: value for name, value in settings.items() if value is not None}

    def flat(self) -> dict[str, Any]:
        """Return all settings by their names, options of a part as `part.option`.

        >>> Experiment(method="fedprox").flat()["method.mu"]
        0.01
        """
        return flatten(dict(self))


FACTS: Mapping[str, Facts] = MappingProxyType(
    {
        name: next(each for each in field.metadata if isinstance(each, Facts))
        for name, field in Experiment.model_fields.items()
    }
)


def list_settings(*roles: Role) -> tuple[str, ...]:
    """Return the names of all settings that have one of these roles, or any if none is given.

    >>> list_settings("seed")
    ('seed',)
    """
    return tuple(name for name, facts in FACTS.items() if facts.role in (roles or ALL_ROLES))


@cache
def list_filled(*roles: Role) -> tuple[str, ...]:
    """Return the settings of these roles that a run fills in when it begins, named as in `flat`.

    >>> list_filled("placement")
    ('engine', 'block', 'step', 'unroll')
    """
    return tuple(
        name if FACTS[name].filled is True else f"{name}.{FACTS[name].filled}"
        for name in list_settings(*roles)
        if FACTS[name].filled
    )


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """List settings by their names, those within a table as `table.name`.

    >>> flatten({"lr": 0.1, "method": {"name": "fedavg"}})
    {'lr': 0.1, 'method.name': 'fedavg'}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict | MappingProxyType):  # Mapping takes ten times as long
            flat |= {f"{key}.{option}": choice for option, choice in value.items()}
        else:
            flat[key] = value
    return flat


def read(path: Path) -> dict[str, Any]:
    """Return what an experiment file states."""
    from_shell = str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/"))  # as by <(...)
    try:
        with path.open("rb") if from_shell else open_regular(path) as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise OSError(errno.EFBIG, f"it has more than {LARGEST_FILE:,} bytes")
        return tomllib.loads(data.decode())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise IsthmusError(
            f"{path} cannot be read as an experiment ({reason}); check the path"
        ) from None
    except (ValueError, RecursionError) as error:  # also where numbers or tables are too long
        raise IsthmusError(f"{path} is not valid TOML: {error}") from None


def name_parts(given: Table) -> dict[str, Any]:
    """Name the parts that were left out; a data set brings a partition and a model of its own."""
    wanted = merge({"method": "superfed-mm", "data": "digits"}, given)
    source = wanted["data"].get("name")
    brings = registry.look_up("data", source) if str(source) in SOURCES else None
    defaults = {
        "partition": OWN if source == OWN else brings.partition if brings else "pathological",
        "model": brings.model if brings else "mlp",
        "clients": brings.clients if brings else 100,
        "noise": "none",
    }
    return merge(defaults, wanted)


def complete(given: Table) -> dict[str, Any]:
    """Return all settings: what is given, then the preset's values, then those of the data set."""
    known = list(Experiment.model_fields)
    for key in given:
        if key not in known:
            raise IsthmusError(f"no setting is called {key!r}; {nearest(key, known)}")
    wanted = name_parts(given)
    family = read_presets().get(str(wanted.get("preset", "clean")), {})
    for name in (wanted["method"].get("name"), wanted["data"].get("name"), "all"):
        if preset := family.get(str(name)):
            wanted = merge(registry.restrict_preset(preset, wanted), wanted)
    engine = wanted.get("engine", "auto")
    if isinstance(engine, str) and engine not in ("auto", *ENGINES):
        raise IsthmusError(
            f"engine must be one of auto, {', '.join(ENGINES)}, not {quote(engine)}; for example "
            "engine=auto"
        )
    for key, value in wanted.items():
        example = Experiment.model_fields[key].default
        if isinstance(value, bool) and not isinstance(example, str):  # or it would be 0 or 1
            raise IsthmusError(
                f"{key} must be a number, not a boolean; for example {key}={example or 0}"
            )
    return {k: registry.complete(k, v) if k in COMPONENTS else v for k, v in wanted.items()}


@cache
def read_presets() -> dict[str, Any]:
    """Return the presets: settings by preset and by method or data set."""
    return tomllib.loads((files("isthmus.experiment") / "presets.toml").read_text("utf-8"))


def read_assignments(
    texts: Iterable[str], given: Table, changes: Table = MappingProxyType({})
) -> dict[str, Any]:
    """Return the changes that several `key=value` make to what is given.

    The last value of a setting counts. Names of parts are read first: they decide which part an
    option belongs to.

    >>> read_assignments(["alpha=0.1", "partition=dirichlet-hsu"], {})
    {'partition': {'name': 'dirichlet-hsu', 'alpha': 0.1}}
    """
    texts = list(texts)
    for text in texts:
        changes = merge(changes, _read_name(text))
    for text in texts:
        change = read_assignment(text, merge(given, changes))
        for part in COMPONENTS.keys() & change.keys():
            change[part] = {k: v for k, v in to_table(change[part]).items() if k != "name"}
        changes = merge(changes, change)
    return dict(changes)


def _read_name(text: str) -> dict[str, Any]:
    key, _, value = (piece.strip() for piece in text.partition("="))
    part = key.removesuffix(".name")
    name = to_table(read_value(value)).get("name") if part in COMPONENTS else None
    return {} if name is None else {part: {"name": name}}


def read_assignment(text: str, given: Table = MappingProxyType({})) -> dict[str, Any]:
    """Return the setting that `key=value` gives, as from --set.

    >>> read_assignment("nu=2"), read_assignment("partition=iid")
    ({'method': {'nu': 2}}, {'partition': 'iid'})
    """
    key, equals, value = (piece.strip() for piece in text.partition("="))
    if not key or not equals or not value:
        raise IsthmusError(f"--set needs key=value, not {text!r}; for example --set lr=0.1")
    parsed = read_value(value)
    top, dot, option = key.partition(".")
    if dot and top in COMPONENTS:
        return {top: {option: parsed}}
    if key in Experiment.model_fields:
        return {key: parsed}
    parts = {part: table for part, table in name_parts(given).items() if part in COMPONENTS}
    names = {part: str(table.get("name")) for part, table in parts.items()}
    return {registry.find_owner(key, list(Experiment.model_fields), names): {key: parsed}}


def read_value(text: str) -> Any:
    """Return the value that a text is in TOML, or the text itself where it is none.

    >>> read_value("0.1"), read_value("validation")
    (0.1, 'validation')
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # also where numbers are too long, or lists too deep
        return text.strip()
    whole = len(table) == 1 and (isinstance(table["value"], str) or "#" not in text)
    return table["value"] if whole else text.strip()


def _survives_toml(value: Any) -> bool:
    """Return whether a value reads back from TOML as it was written, nan included."""
    try:
        text = tomli_w.dumps({"value": value})
        return tomli_w.dumps(tomllib.loads(text.encode().decode())) == text
    except (ValueError, RecursionError, TypeError):
        return False
