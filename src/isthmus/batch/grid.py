"""Several methods by several seeds on one federation: the runs that it means, as a value.

For one seed, all methods see the same clients, the same cohorts and the same budget: they differ in
nothing but settings whose role is `method`. Cohorts come from streams that are keyed by the
seed alone.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice, pairwise, product
from math import prod
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from isthmus.errors import IsthmusError, nearest, quote
from isthmus.experiment.registry import COMPONENTS, list_options, merge
from isthmus.experiment.settings import FACTS, Experiment, list_filled, read_assignments
from isthmus.ranges import NonNegativeInt

FILE = "compare.toml"
LOCK = "compare.lock"
RUNS = 10_000  # of one comparison, trials included


class Cell(NamedTuple):
    """One run of a comparison."""

    method: str
    experiment: Experiment
    place: Path  # within the comparison's directory
    trial: int | None = None  # counted from 1; None: it is reported

    @property
    def name(self) -> str:
        """Name it for people."""
        if self.trial is not None:
            return f"{self.method} · trial {self.trial}"
        return f"{self.method} · seed {self.experiment.seed}"


class Grid(BaseModel):
    """Methods by seeds, and what is tried for each method beforehand."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # by method; the seeds take the place of theirs
    experiments: Annotated[dict[str, Experiment], Field(min_length=1)]
    seeds: Annotated[tuple[Annotated[NonNegativeInt, Strict()], ...], Field(min_length=1)]
    tune: dict[str, dict[str, tuple[str, ...]]] = {}  # by method
    reference: str | None = None  # what the tables compare with; no run depends on it
    keep_best: Annotated[bool, Strict()] = False  # reported runs keep clients' best models, too

    @property
    def tuning_seed(self) -> int:
        """The least seed that is not reported: no figure profits from the luck of a trial."""
        return next(seed for seed in count() if seed not in self.seeds)

    def combinations(self, method: str) -> list[tuple[str, ...]]:
        """List the trials of a method, each as the `key=value` that it sets."""
        tune = self.tune.get(method, {})
        keyed = [[f"{key}={value}" for value in values] for key, values in tune.items()]
        return list(product(*keyed)) if keyed else []

    def count_trials(self, method: str) -> int:
        """Count the trials of a method; nothing is listed."""
        tune = self.tune.get(method, {})
        return prod(len(values) for values in tune.values()) if tune else 0

    def trials(self) -> list[Cell]:
        """List the runs from which settings are chosen; only their last evaluation is needed."""
        return [
            Cell(
                method,
                change(experiment, texts, seed=self.tuning_seed, eval_every=0),
                Path("trials", method, str(number)),
                number,
            )
            for method, experiment in self.experiments.items()
            for number, texts in enumerate(self.combinations(method), start=1)
        ]

    def runs(self, chosen: Mapping[str, int] | None = None) -> list[Cell]:
        """List the runs that are reported, with the settings of the chosen trials."""
        cells = []
        for method, experiment in self.experiments.items():
            if self.tune and method not in (chosen or {}):
                continue  # no trial of it came to an end
            texts = self.combinations(method)[chosen[method] - 1] if chosen else ()
            for seed in self.seeds:
                place = Path("runs", f"{method}-{seed}")
                cells.append(Cell(method, change(experiment, texts, seed=seed), place))
        return cells

    def toml(self) -> str:
        """Write all of it as TOML that `read` reads back."""
        written = {key: value for key, value in dict(self).items() if value}
        written["experiments"] = {method: e.table() for method, e in self.experiments.items()}
        return tomli_w.dumps(written)


def is_comparison(path: Path) -> bool:
    """Whether a directory is that of a comparison."""
    return (path / FILE).is_file()


def read(path: Path) -> Grid:
    """Read the comparison that a directory holds."""
    file = path / FILE
    try:
        return Grid(**tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise IsthmusError(
            f"{file} is damaged ({quote(_explain(error))}); restore it, or start the comparison "
            "again in another directory"
        ) from None


def _explain(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"


def change(experiment: Experiment, texts: Sequence[str] = (), **settings: Any) -> Experiment:
    """Return an experiment with some settings changed, as by --set or by name."""
    given = dict(experiment)
    return Experiment(**merge(given, read_assignments(texts, given)) | settings)


def check(grid: Grid) -> Grid:
    """Return a comparison if it is complete and fair; refuse any other."""
    first, *others = grid.experiments
    read_methods(",".join(grid.experiments))
    seed, times = Counter(grid.seeds).most_common(1)[0]
    if times > 1:
        raise IsthmusError(f"--seeds names {seed} twice; leave one of them out")
    trials = max(grid.count_trials(method) for method in grid.experiments)
    if len(grid.experiments) * (len(grid.seeds) + trials) > RUNS:
        raise IsthmusError(
            f"{len(grid.experiments)} methods, {len(grid.seeds):,} seeds and {trials:,} trials of "
            f"each are more than {RUNS:,} runs; name fewer, or make several comparisons"
        )
    for method, experiment in grid.experiments.items():
        if experiment.method["name"] != method:
            raise IsthmusError(
                f"{method}.method={experiment.method['name']} is another method; name it in "
                "--methods instead"
            )
        _refuse_unlike(first, grid.experiments[first], method, experiment)
        if grid.keep_best and experiment.validation == 0:
            raise IsthmusError(
                "--keep-best needs validation data to find the best models; use --set "
                "validation=0.1, or leave --keep-best out"
            )
    if grid.reference not in (None, first, *others):
        raise IsthmusError(
            f"--baseline {grid.reference} is not among the methods; "
            f"{nearest(str(grid.reference), [first, *others])}"
        )
    if grid.tune:
        _check_trials(grid)
    return grid


def _check_trials(grid: Grid) -> None:
    counts = {method: grid.count_trials(method) for method in grid.experiments}
    least, most = (choose(counts, key=lambda m: counts[m]) for choose in (min, max))
    if counts[least] != counts[most]:
        raise IsthmusError(
            f"--tune tries {counts[most]} settings of {most} and {counts[least]} of {least}; try "
            f"as many of every method, so that none is tuned harder: --tune {least}.lr=... with "
            f"{counts[most]} values"
        )
    for method, experiment in grid.experiments.items():
        if experiment.validation == 0:
            raise IsthmusError(
                "--tune needs validation data to choose on, since test data must not decide; use "
                "--set validation=0.1"
            )
        if experiment.rule.on_test:
            raise IsthmusError(
                f"--tune must not look at test data, and selection={experiment.selection} of "
                f"{method} does; use --set selection=validation"
            )
    trials = grid.trials()
    for cell in trials:
        _refuse_unlike(trials[0].name, trials[0].experiment, cell.name, cell.experiment)
    for one, other in pairwise(sorted(trials, key=lambda c: (c.method, c.experiment.toml()))):
        if one.experiment == other.experiment:
            raise IsthmusError(
                f"{one.name} and {other.name} have the same settings; leave one of the values out"
            )


def _refuse_unlike(one: str, here: Experiment, other: str, there: Experiment) -> None:
    """Refuse two that differ in more than what may be a method's own."""
    for key, (mine, theirs) in find_differences(here, there).items():
        if FACTS[key.partition(".")[0]].role != "method":
            raise IsthmusError(
                f"{key}={mine} for {one}, {theirs} for {other}: all methods must have the same "
                f"data and the same budget; set it for all of them: --set {key}={mine}"
            )


def find_differences(one: Experiment, other: Experiment) -> dict[str, tuple[Any, Any]]:
    """List the settings in which two experiments differ, with the values of both."""
    here, there = one.flat(), other.flat()
    keys = dict.fromkeys([*here, *there])
    pairs = {key: (here.get(key), there.get(key)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def read_methods(text: str) -> tuple[str, ...]:
    """Read a list of methods.

    >>> read_methods("superfed-mm, ditto")
    ('superfed-mm', 'ditto')
    """
    names = tuple(name.strip() for name in text.split(","))
    known = list(COMPONENTS["method"])
    for name in names:
        if name not in known:
            raise IsthmusError(f"no method is called {name!r}; {nearest(name, known)}")
        if names.count(name) > 1:
            raise IsthmusError(f"--methods names {name} twice; leave one of them out")
    return names


def read_seeds(text: str) -> tuple[int, ...]:
    """Read how many seeds there are, or which.

    >>> read_seeds("3"), read_seeds("3,7,11"), read_seeds("7,")
    ((1, 2, 3), (3, 7, 11), (7,))
    """
    listed = "," in text
    words = [word.strip() for word in text.removesuffix(",").split(",")]
    if not all(re.fullmatch("[0-9]{1,19}", word) for word in words) or text.strip() == "0":
        raise IsthmusError(
            f"--seeds {quote(text)} is neither a number of seeds nor a list of seeds; for example "
            "--seeds 5 for 1 to 5, or --seeds 3,7,11"
        )
    if not listed and int(text) > RUNS:
        raise IsthmusError(
            f"--seeds {text} asks for more than {RUNS:,} seeds; for the single seed {text} write "
            f"--seeds {text},"
        )
    return tuple(int(word) for word in words) if listed else tuple(range(1, int(text) + 1))


def split_by_method(
    texts: Sequence[str], methods: Sequence[str], flag: str = "--set"
) -> dict[str, list[str]]:
    """List the `key=value` that are for each method: those for all, and its METHOD.key=value.

    >>> split_by_method(["lr=0.1", "floco.tau=5"], ["floco", "ditto"])
    {'floco': ['lr=0.1', 'tau=5'], 'ditto': ['lr=0.1']}
    """
    own: dict[str, list[str]] = {method: [] for method in methods}
    for text in texts:
        owner, dot, rest = text.partition(".")
        if dot and "=" not in owner and owner not in COMPONENTS:
            if owner not in methods:
                raise IsthmusError(
                    f"{flag} {text}, but {owner!r} is not among the methods; "
                    f"{nearest(owner, [*methods, *COMPONENTS])}"
                )
            own[owner].append(rest)
            continue
        _refuse_partial(text, methods, flag)
        for method in methods:
            own[method].append(text)
    return own


def _refuse_partial(text: str, methods: Sequence[str], flag: str) -> None:
    """Refuse an option that some of the methods have and others do not."""
    key = text.partition("=")[0].strip()
    if key == "seed":
        raise IsthmusError(
            f"{flag} {text}: give the seeds of a comparison with --seeds; for example --seeds 5"
        )
    option = key.removeprefix("method.")
    having = [method for method in methods if option in list_options("method")[method]]
    without = [method for method in methods if method not in having]
    if having and without and key not in Experiment.model_fields:
        raise IsthmusError(
            f"{flag} {text} is for all methods, and {without[0]} has no {option}; for {having[0]} "
            f"alone, write {flag} {having[0]}.{text.removeprefix('method.')}"
        )


def read_tuning(
    texts: Sequence[str], methods: Sequence[str]
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Read what is to be tried for each method, from `key=a,b,c` and `METHOD.key=a,b,c`.

    >>> read_tuning(["lr=0.1,0.2"], ["ditto"])
    {'ditto': {'lr': ('0.1', '0.2')}}
    """
    tune: dict[str, dict[str, tuple[str, ...]]] = {}
    for method, own in split_by_method(texts, methods, "--tune").items():
        for text in own:
            key, _, listed = (piece.strip() for piece in text.partition("="))
            # A comma within brackets belongs to the value.
            values = [value.strip() for value in re.split(r",(?![^\[{]*[\]}])", listed)]
            if not key or not all(values) or key in tune.get(method, {}):
                raise IsthmusError(
                    f"--tune {text}: name each setting once, with its values; for example --tune "
                    "lr=0.01,0.1"
                )
            tune.setdefault(method, {})[key] = tuple(values)
    return tune


def refuse_another(grid: Grid, out: Path) -> None:
    """Refuse a directory that holds something else than this comparison."""
    if not out.exists() or (out.is_dir() and _is_unused(out)):
        return
    if not is_comparison(out):
        raise IsthmusError(
            f"{out} is not empty and holds no comparison; name a new directory with --out, so that "
            "nothing is lost"
        )
    there = read(out)
    if there.model_copy(update={"reference": grid.reference}) != grid:
        differences = "; ".join(islice(_describe_differences(grid, there), 3))
        raise IsthmusError(
            f"{out} holds another comparison ({differences}); name a new directory with --out"
        )


def _is_unused(out: Path) -> bool:
    """Whether a directory holds nothing but what a comparison leaves that never began."""
    return not is_comparison(out) and all(
        file.name == LOCK or (file.name.startswith(FILE) and file.suffix == ".part")
        for file in out.iterdir()
    )


def _describe_differences(here: Grid, there: Grid) -> Iterator[str]:
    pairs = {
        "methods": (sorted(here.experiments), sorted(there.experiments)),
        "seeds": (here.seeds, there.seeds),
        "tune": (here.tune, there.tune),
        "keep-best": (here.keep_best, there.keep_best),
    }
    for name, (mine, theirs) in pairs.items():
        if mine != theirs:
            texts = [json.dumps(each, ensure_ascii=False) for each in (theirs, mine)]
            yield "{} {} there, {} here".format(name, *texts)
    for method, experiment in here.experiments.items():
        differences = find_differences(experiment, there.experiments.get(method, experiment))
        for key, (mine, theirs) in differences.items():
            yield f"{key}={theirs} of {method} there, {mine} here"


def refuse_other_runs(cells: Sequence[Cell], out: Path) -> None:
    """Refuse directories of single runs whose settings are not those of the comparison."""
    for cell in cells:
        file = out / cell.place / "experiment.toml"
        if file.is_file():
            differences = find_differences(cell.experiment, Experiment.load(file))
            for key, (mine, theirs) in differences.items():
                if key not in list_filled():
                    raise IsthmusError(
                        f"{file.parent} holds a run of other settings ({key}={theirs} there, "
                        f"{mine} in this comparison); move it elsewhere"
                    )
