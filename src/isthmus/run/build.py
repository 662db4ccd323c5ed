"""A run, built once from its experiment: data, method, networks, task and engine."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import torch
from torch import nn

from isthmus import streams
from isthmus.context import RunContext
from isthmus.data.build import add_noise, build_federation
from isthmus.data.federation import Federation
from isthmus.data.own.own_files import find_own_files
from isthmus.data.own.schema import inline_schema
from isthmus.engines import ENGINES, choice
from isthmus.engines.base import Cluster, Plan
from isthmus.errors import IsthmusError, quote
from isthmus.experiment import registry
from isthmus.experiment.registry import OWN
from isthmus.experiment.settings import Experiment, list_filled
from isthmus.method import Method
from isthmus.models.descent import train
from isthmus.models.flat import Flat
from isthmus.models.imagenet import drop_weights_file
from isthmus.models.weight_files import digest_weights
from isthmus.system.machine import explain_lack_of_memory, refuse_lack_of_memory
from isthmus.task import Task

Network = Callable[[], nn.Module]

LAYER = 10**8  # parameters of a layer from which networks are counted before they are made
PARAMETER = 32  # bytes that are taken for each: network, start, gradient, whose layer it is
MOST_WORKERS = 1024
DISTANT = "sites"  # data of this name stay where they are


class OwnParts(TypedDict, total=False):
    """Parts of a run that are passed from Python instead of by name."""

    method: Method | None
    data: Federation | None
    model: Network | None
    others: Sequence[Network]  # second networks, in the order in which the method names them `own`


class Built(NamedTuple):
    """A run that can begin: its complete experiment, and all that does not change during it."""

    experiment: Experiment
    setting: RunContext


@explain_lack_of_memory()
def build(
    experiment: Experiment,
    *,
    method: Method | None = None,
    data: Federation | None = None,
    model: Network | None = None,
    others: Sequence[Network] = (),
    data_root: Path | str = "data",
    workers: int | None = None,
    cluster: Cluster | None = None,
) -> Built:
    """Build a run; name custom parts in its experiment, and choose what it left open."""
    experiment = _choose_cluster(experiment, cluster)
    if workers is not None and not 1 <= workers <= MOST_WORKERS:
        raise IsthmusError(
            f"workers must be 1 to {MOST_WORKERS:,}, not {quote(workers)}; leave it out for one "
            "per core"
        )
    given, root = dict(experiment), str(Path(data_root).absolute())
    given |= _name_method(experiment, method) | _name_model(experiment, model)
    given |= _name_data(experiment, data, Path(data_root))
    if data is None:
        federation = read_federation(experiment, Path(data_root))
    else:
        if experiment.test_set == "clients":
            raise IsthmusError(
                "test_set=clients needs data by name, and these are divided already; leave "
                "test_set out"
            )
        noise = registry.build("noise", experiment.noise)
        federation = add_noise(data, noise, experiment.dividing_seed)
    if len(federation) != given["clients"]:
        given |= _recount(experiment, federation)
    experiment = Experiment(**given)
    federation, newcomers = _hold_out(experiment, federation)
    method = method or registry.build("method", experiment.method)
    _refuse_pooling(experiment, method)
    networks = _build_networks(experiment, federation, method, model, others)
    plan = choice.choose(
        Plan(
            **experiment.select(Plan._fields),
            sizes=[federation.sizes(i)[0] for i in range(len(federation))],
            networks=networks,
            own=model is not None or bool(others),
            workers=workers or 0,
            cluster=cluster or Cluster(),
            read_data=None if data is not None else partial(read_again, experiment.toml(), root),
        )
    )
    chosen = {name: getattr(plan, name) for name in list_filled("placement")}
    experiment = experiment.model_copy(update=chosen)
    task = _build_task(experiment, federation, networks)
    engine = ENGINES[plan.engine].make(plan)
    evaluated = _draw_evaluated(experiment, len(federation))
    return Built(experiment, RunContext(method, task, federation, engine, newcomers, evaluated))


def read_federation(experiment: Experiment, data_root: Path) -> Federation:
    """Read and divide the data of an experiment."""
    if OWN in (experiment.data["name"], experiment.partition["name"]):
        raise IsthmusError("this run uses custom data; pass data=... to federate, resume or open")
    return build_federation(
        registry.build("data", experiment.data),
        registry.build("partition", experiment.partition),
        registry.build("noise", experiment.noise),
        clients=experiment.clients,
        clients_per_round=experiment.clients_per_round,
        test=experiment.test,
        validation=experiment.validation,
        divides_test_set=experiment.test_set == "clients",
        seed=experiment.dividing_seed,
        data_root=data_root,
    )


def _draw_evaluated(experiment: Experiment, clients: int) -> Sequence[int] | None:
    """Draw the clients to evaluate; None: all.

    They depend on the seed that divides the data: runs on one division evaluate the same clients.
    """
    if experiment.eval_sample is None:
        return None
    drawn = streams.sample(experiment.dividing_seed, clients, experiment.eval_sample)
    return drawn if len(drawn) < clients else None


def _choose_cluster(experiment: Experiment, cluster: Cluster | None) -> Experiment:
    """Choose the engine for a cluster, if there is one."""
    if cluster is None or experiment.engine == "ray":
        return experiment
    if experiment.engine == "stacked":
        raise IsthmusError(
            "engine=stacked does not run on a Ray cluster; set engine=ray, or leave the cluster out"
        )
    return experiment.model_copy(update={"engine": "ray"})


def read_again(experiment: str, data_root: str) -> Federation:
    """Read the training clients of a run on another machine."""
    given = Experiment.parse(experiment)
    return _hold_out(given, read_federation(given, Path(data_root)))[0]


def _refuse_pooling(experiment: Experiment, method: Method) -> None:
    if experiment.data["name"] == DISTANT and not method.about().federated:
        raise IsthmusError(
            f"{experiment.method['name']} needs all data in one place, and data at sites stay "
            "where they are; choose a federated method, for example fedavg, or simulate with "
            "isthmus run"
        )


def _name_method(experiment: Experiment, method: Method | None) -> dict[str, Any]:
    recorded = experiment.method if experiment.method.get(OWN) else None
    if method is None and recorded is not None:
        raise IsthmusError(
            f"this run uses the custom method {recorded['name']}; pass method=... to federate, "
            "resume or open"
        )
    if method is None:
        return {}
    named = registry.describe_method(method)
    if recorded is not None and named != recorded:
        raise IsthmusError(
            f"the method is {_show(named)}, and this run uses {_show(recorded)}; pass that one, or "
            "start a new run"
        )
    return {"method": named}


def _show(table: registry.Table) -> str:
    options = {key: value for key, value in table.items() if key not in ("name", OWN)}
    return f"{table['name']}({', '.join(f'{key}={value!r}' for key, value in options.items())})"


def _name_model(experiment: Experiment, model: Network | None) -> dict[str, Any]:
    if model is not None:
        return {"model": {"name": OWN, "class": getattr(model, "__qualname__", str(model))}}
    if experiment.model["name"] == OWN:
        raise IsthmusError(
            "this run uses a custom model; pass model=... to federate, resume or open"
        )
    weights = experiment.model.get("weights", "")
    if weights and not experiment.model.get("weights_digest"):
        return {"model": {**experiment.model, "weights_digest": digest_weights(weights)}}
    return {}


def _name_data(experiment: Experiment, data: Federation | None, data_root: Path) -> dict[str, Any]:
    if data is not None and experiment.data["name"] == DISTANT:
        return {"clients": len(data)}
    if data is not None:
        digest, wanted = data.digest(), experiment.data.get("digest")
        if wanted not in (None, digest):
            raise IsthmusError(
                f"the data have digest {digest}, and the experiment was made with {wanted}; pass "
                "those data, or leave the digest out"
            )
        named = {"data": {"name": OWN, "digest": digest}, "partition": OWN}
        return named | {"clients": len(data), **data.shares}
    if experiment.data.get("path"):  # so that the run can be resumed from any directory
        place = str(find_own_files(experiment.data["path"], data_root))
        return {"data": inline_schema(experiment.data, data_root) | {"path": place}}
    return {}


def _recount(experiment: Experiment, federation: Federation) -> dict[str, Any]:
    """Return the number of clients, where the partition made fewer or more than requested."""
    clients, partition = len(federation), dict(experiment.partition)
    together = experiment.clients_per_round
    if not experiment.clients:
        together = min(together, clients)
    if together > clients:
        raise IsthmusError(
            f"clients_per_round={together}, but partition {partition['name']} made {clients} "
            f"clients of these data, not {experiment.clients}; lower clients_per_round"
        )
    if partition.get("drawn") == 0:  # so that the record makes the same clients again
        partition["drawn"] = experiment.clients or federation.arrays.count_owners()
    return {"clients": clients, "clients_per_round": together, "partition": partition}


def _hold_out(
    experiment: Experiment, federation: Federation
) -> tuple[Federation, Federation | None]:
    """Hold out the clients that join after training, if there are to be any."""
    newcomers = None
    if experiment.held_out:
        everybody = len(federation)
        federation, newcomers = federation.split_off_newcomers(
            experiment.held_out, experiment.dividing_seed
        )
        if not len(newcomers):
            raise IsthmusError(
                f"held_out={experiment.held_out} of {everybody} clients holds out none; raise "
                "held_out"
            )
    if experiment.clients_per_round > len(federation):
        raise IsthmusError(
            f"clients_per_round={experiment.clients_per_round}, but only {len(federation)} clients "
            "train; lower clients_per_round"
        )
    return federation, newcomers


def _build_networks(
    experiment: Experiment,
    federation: Federation,
    method: Method,
    model: Network | None,
    others: Sequence[Network],
) -> tuple[Flat, ...]:
    """Build the network, and the second one of each kind of client."""
    if federation.classes < 2:
        raise IsthmusError(
            "all examples of the data are of one class; at least two are needed; choose other "
            "labels"
        )

    def make(table: registry.Table) -> Network:
        shape, classes = federation.shape, federation.classes
        refuse_huge(table, shape, classes)
        return partial(registry.build, "model", dict(table), shape, classes)

    names = method.networks().names
    if names.count(OWN) != len(others):
        raise IsthmusError(
            f"the method names {names.count(OWN)} custom second networks, and {len(others)} were "
            "passed; pass as many to federate(experiment, others=[...])"
        )
    mine = iter(others)
    seconds = [
        next(mine) if name == OWN else make(registry.read_network(name, federation.shape))
        for name in names
    ]
    first = Flat(model or make(experiment.model), experiment.head)
    return first, *map(Flat, seconds)


def refuse_huge(table: registry.Table, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a network whose parameters would not fit into memory, before it is made."""
    widest = max([classes, *(value for value in table.values() if isinstance(value, int))])
    if widest * max(widest, prod(shape)) < LAYER:
        return  # of the usual sizes; counting takes seconds where torch has not done so yet
    with explain_lack_of_memory(), torch.device("meta"):  # which holds shapes and no numbers
        network = registry.build("model", drop_weights_file(table), shape, classes)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    refuse_lack_of_memory(
        f"model {table['name']} has {parameters:,} parameters, which take",
        PARAMETER * parameters,
        "choose a smaller one",
    )


def _build_task(e: Experiment, federation: Federation, networks: Sequence[Flat]) -> Task:
    network, *seconds = networks
    w0 = network.fresh(streams.seed_of(e.seed, "start"))
    settings = e.select(field.name for field in fields(Task))
    task = Task(
        **settings | {"model": network, "clients": len(federation)},
        w0=w0,
        classes=federation.classes,
        features=_count_features(network, w0, federation),
        others=tuple(seconds),
    )
    for second in seconds:
        _count_features(second, second.fresh(0), federation)
    return task


def _refuse_memory(network: Flat, w: torch.Tensor, few: torch.Tensor) -> None:
    """Refuse a network that writes what it saw into a buffer."""
    with train([network]), torch.no_grad(), torch.random.fork_rng(devices=[]):
        changed = network.find_memory(w, few)
    if changed:
        raise IsthmusError(
            f"the model changes its buffer {changed[0]!r} in training, and only running statistics "
            "of torch's normalisation layers may change; make it a parameter or a constant"
        )


def _count_features(network: Flat, w: torch.Tensor, federation: Federation) -> int:
    """Count the features that enter the head of a network, if it fits the data."""
    few = federation.split(0, "train").x[:1].repeat_interleave(2, 0)  # one alone has no variance
    expected = (len(few), federation.classes)
    try:
        with torch.no_grad():
            logits = network.logits(w, few)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise IsthmusError(
            f"the model does not take inputs of shape {tuple(few.shape[1:])} ({reason}); choose "
            "another model"
        ) from error
    if not isinstance(logits, torch.Tensor):
        kind = type(logits).__name__
        raise IsthmusError(
            f"the model returns {kind} instead of a tensor of logits; wrap it in a module whose "
            "forward returns the logits, for example self.network(x).logits"
        )
    given = tuple(logits.shape)
    if given != expected:
        raise IsthmusError(
            f"the model returns logits of shape {given} for {len(few)} examples instead of "
            f"{expected}; make its last layer {federation.classes} wide"
        )
    _refuse_memory(network, w, few)
    try:
        with torch.no_grad():
            return network.features(w, few).shape[1]
    except IsthmusError:  # it has none; only a method that asks for them need know
        return 0
