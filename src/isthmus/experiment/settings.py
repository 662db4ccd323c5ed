"""Everything that decides a number, validated; TOML in, the same TOML at the head of every record.

What cannot move a number (paths, verbosity) is not here.
"""

import errno
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from isthmus.data import SOURCES
from isthmus.engines import ENGINES
from isthmus.errors import IsthmusError, nearest, quote
from isthmus.experiment import registry
from isthmus.experiment.flatten import flatten
from isthmus.experiment.registry import OWN, PARTS, Table, merge, to_table
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

CHOSEN = ("engine", "block", "step", "unroll")  # what a run fills in when it begins
LARGEST_FILE = 2**24  # bytes of an experiment; a device has no end
Part = Annotated[Mapping[str, Any], AfterValidator(MappingProxyType)]  # {"name": ..., options}


class Experiment(BaseModel):
    """All settings of a run, complete and checked.

    >>> experiment = Experiment(method="superfed-mm", data="digits", rounds=40, seed=11)
    >>> experiment.method["nu"], experiment.clients, experiment.model["name"]
    (1.0, 20, 'mlp')

    `method`, `data`, `partition`, `model` and `noise` are a name, or a table of a name and options.
    What is left out takes the preset's value, then the default, which is the paper's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: Literal["clean", "paper", "release"] = "clean"
    seed: NonNegativeInt = 0
    split_seed: NonNegativeInt | None = None  # divides the data; None: seed does

    rounds: Repeats = 500  # R
    clients: NonNegativeInt = 100  # N; a data set brings its own default; 0: one for each owner
    clients_per_round: PositiveInt = 5  # K
    epochs: Repeats = 10  # E
    batch_size: PositiveInt = 10  # B
    lr: Positive = 0.01
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 0.99  # per round
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegative = 1e-4

    test: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of a client's examples
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1  # share of the rest
    test_set: Literal["server", "clients"] = "server"  # who gets the data's own test examples
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of clients that join afterwards
    head: Head = "last"
    eval_every: NonNegativeInt = 10  # 0: only after the last round
    eval_sample: float | None = None  # clients evaluated: a share, or 2 or more; None: all
    patience: NonNegativeInt = 0  # evaluations without a better one that end a run; 0: none do
    selection: Selection = "validation"
    calibration: Calibration = "split"  # per-batch: as the released SuPerFed code measures it
    balance: Balance = "none"  # classes: all classes of a client count alike in its loss
    engine: str = "auto"  # as engines/choice.py says
    block: NonNegativeInt = 0  # clients that `stacked` computes together; 0: what stays in cache
    step: Literal["auto", "eager", "compiled"] = "auto"  # compiled where the run is long enough
    unroll: Annotated[int, Field(ge=0, le=64)] = 0  # steps of a compiled program; 0: what repays
    device: str = "cpu"  # or cuda, cuda:1 and so on, mps: where client functions compute

    method: Part
    data: Part
    partition: Part
    model: Part
    noise: Part

    def __init__(self, /, **given: Any):
        try:
            BaseModel.__init__(self, **complete(given))
        except ValidationError as error:
            raise _mistake(error, str(error.errors()[0]["loc"][0])) from None
        if self.clients_per_round > self.clients > 0:
            raise IsthmusError(
                f"clients_per_round={self.clients_per_round} of clients={self.clients}; expected "
                "at most as many as there are; lower clients_per_round"
            )
        sample = 1 if self.eval_sample is None else self.eval_sample
        if not (0 < sample <= 1 or (1 < sample < inf and sample % 1 == 0)):
            raise IsthmusError(
                f"eval_sample={sample:g}; expected a share of the clients, above 0 and "
                "at most 1, or a whole number of them; set eval_sample=0.1, or eval_sample=1000"
            )
        for name, example in (("validation", 0.1), ("eval_every", 10)):
            if self.patience and not getattr(self, name):
                raise IsthmusError(
                    f"patience={self.patience} with {name}=0; expected validation losses to stop "
                    f"by; set {name}={example}, or patience=0"
                )

    @classmethod
    def load(cls, path: Path | str, changes: Table | None = None) -> "Experiment":
        """Reads an experiment file, with some settings changed."""
        given, changes = read(Path(path)), changes or {}
        preset = given.get("preset", changes.get("preset"))
        if changes.get("preset", preset) != preset:
            raise IsthmusError(
                f"{path} has preset={preset}, not {changes['preset']}; expected no other, since "
                "the file states its values; leave the file or the preset out"
            )
        return cls(**merge(given, changes))

    @property
    def rule(self) -> Rule:
        """The rule by which a point of a path is chosen."""
        return RULES[self.selection]

    @property
    def dividing_seed(self) -> int:
        """The seed that decides what the clients hold."""
        return self.seed if self.split_seed is None else self.split_seed

    def toml(self) -> str:
        """Writes all settings as TOML that `load` reads back; what it could not is refused."""
        for name, value in self.flat().items():
            if value is not None and not _survives_toml(value):
                raise IsthmusError(
                    f"{name}={quote(value)} would not come back from a file; expected what UTF-8 "
                    "and TOML can hold; give another value, or rename the file"
                )
        return tomli_w.dumps(self.table())

    def table(self) -> dict[str, Any]:
        """Lists all settings but those that are None, of which TOML knows nothing."""
        settings = dict(self) | {part: dict(getattr(self, part)) for part in PARTS}
        return {name: value for name, value in settings.items() if value is not None}

    def flat(self) -> dict[str, Any]:
        """Lists all settings by their names, options of a part as `part.option`.

        >>> Experiment(method="fedprox").flat()["method.mu"]
        0.01
        """
        return flatten(dict(self))


def read(path: Path) -> dict[str, Any]:
    """Reads what an experiment file states."""
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
            f"{path} cannot be read ({reason}); expected an experiment in TOML; check the path"
        ) from None
    except (ValueError, RecursionError) as error:  # also where numbers or tables are too long
        raise IsthmusError(
            f"{path} is not TOML ({error}); expected an experiment; mend that line"
        ) from None


def name_parts(given: Table) -> dict[str, Any]:
    """Names the parts that were left out: after the data set, which brings the others."""
    wanted = merge({"method": "superfed-mm", "data": "digits"}, given)
    source = wanted["data"].get("name")
    brings = SOURCES.get(source) if isinstance(source, str) else None
    defaults = {
        "partition": OWN if source == OWN else brings.partition if brings else "pathological",
        "model": brings.model if brings else "mlp",
        "clients": brings.clients if brings else 100,
        "noise": "none",
    }
    return merge(defaults, wanted)


def complete(given: Table) -> dict[str, Any]:
    """Fills in what was left out: the preset's values first, then what the data set brings."""
    known = list(Experiment.model_fields)
    for key in given:
        if key not in known:
            raise IsthmusError(f"no setting is called {key!r}; {nearest(key, known)}")
    wanted = name_parts(given)
    family = read_presets().get(str(wanted.get("preset", "clean")), {})
    for name in (wanted["method"].get("name"), wanted["data"].get("name"), "all"):
        wanted = merge(registry.restrict_preset(family.get(str(name), {}), wanted), wanted)
    engine = wanted.get("engine", "auto")
    if isinstance(engine, str) and engine not in ("auto", *ENGINES):
        raise IsthmusError(
            f"engine={quote(engine)}; expected auto, {', '.join(ENGINES)}; for example engine=auto"
        )
    for key, value in wanted.items():
        if isinstance(value, bool):  # which would pass for 0 or 1
            example = Experiment.model_fields[key].default
            raise IsthmusError(
                f"{key}={str(value).lower()}; expected no truth value; for example {key}={example}"
            )
    return {k: registry.complete(k, v) if k in PARTS else v for k, v in wanted.items()}


@cache
def read_presets() -> dict[str, Any]:
    """Reads the preset families."""
    return tomllib.loads((files("isthmus.experiment") / "presets.toml").read_text("utf-8"))


def read_assignments(
    texts: Iterable[str], given: Table, changes: Table = MappingProxyType({})
) -> dict[str, Any]:
    """Reads several `key=value` as further changes of what is given.

    The last one of a setting counts. Names of parts come first: whose an option is depends on them.

    >>> read_assignments(["alpha=0.1", "partition=dirichlet-hsu"], {})
    {'partition': {'name': 'dirichlet-hsu', 'alpha': 0.1}}
    """
    texts = list(texts)
    for text in texts:
        changes = merge(changes, _read_name(text))
    for text in texts:
        change = read_assignment(text, merge(given, changes))
        for part in PARTS.keys() & change.keys():
            change[part] = {k: v for k, v in to_table(change[part]).items() if k != "name"}
        changes = merge(changes, change)
    return dict(changes)


def _read_name(text: str) -> dict[str, Any]:
    key, _, value = (piece.strip() for piece in text.partition("="))
    part = key.removesuffix(".name")
    name = to_table(read_value(value)).get("name") if part in PARTS else None
    return {} if name is None else {part: {"name": name}}


def read_assignment(text: str, given: Table = MappingProxyType({})) -> dict[str, Any]:
    """Reads `key=value` as from --set.

    >>> read_assignment("nu=2"), read_assignment("partition=iid")
    ({'method': {'nu': 2}}, {'partition': 'iid'})
    """
    key, equals, value = (piece.strip() for piece in text.partition("="))
    if not key or not equals or not value:
        raise IsthmusError(f"--set {text!r}; expected key=value; for example --set lr=0.1")
    parsed = read_value(value)
    top, dot, option = key.partition(".")
    if dot and top in PARTS:
        return {top: {option: parsed}}
    if key in Experiment.model_fields:
        return {key: parsed}
    parts = {part: table for part, table in name_parts(given).items() if part in PARTS}
    names = {part: str(table.get("name")) for part, table in parts.items()}
    return {registry.find_owner(key, list(Experiment.model_fields), names): {key: parsed}}


def read_value(text: str) -> Any:
    """Reads a value that is TOML, or a string where it is not.

    >>> read_value("0.1"), read_value("validation")
    (0.1, 'validation')
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # also where numbers are too long, or lists too deep
        return text.strip()
    whole = len(table) == 1 and (isinstance(table["value"], str) or "#" not in text)
    return table["value"] if whole else text.strip()


def read_rounds(text: str) -> int:
    """Reads a number of rounds."""
    try:
        return TypeAdapter(Repeats).validate_python(read_value(text))
    except ValidationError as error:
        raise _mistake(error, "rounds") from None


def _survives_toml(value: Any) -> bool:
    """Tells whether a value that is written is the same when it is read, nan included."""
    try:
        text = tomli_w.dumps({"value": value})
        return tomli_w.dumps(tomllib.loads(text.encode().decode())) == text
    except (ValueError, RecursionError, TypeError):
        return False


def _mistake(error: ValidationError, setting: str) -> IsthmusError:
    default = Experiment.model_fields[setting].default
    return IsthmusError(registry.explain_error(error, setting, 0 if default is None else default))
