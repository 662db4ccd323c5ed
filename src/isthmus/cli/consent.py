"""What the people of a site are shown before and after they agree."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.sites.consent import Consent
    from isthmus.sites.folders import SiteFolder
    from isthmus.sites.preparation import Preview


def describe_preview(seen: "Preview") -> Iterator[str]:
    """Says what taking part would mean."""
    from isthmus.config import registry

    train, validation, test = seen.data.sizes(seen.client)
    about = registry.build("method", seen.experiment.method).about()
    counts = seen.data.label_counts(seen.client).tolist()
    yield f"examples: {train:,} to train on, {validation:,} to choose on, {test:,} to test on"
    yield f"classes: {', '.join(f'{label}: {n:,}' for label, n in enumerate(counts) if n)}"
    yield f"method: {seen.experiment.method['name']}, {seen.experiment.rounds} rounds"
    yield f"would leave this site: {about.up}; its counts of examples; how its models do"
    yield f"would stay: the data; {about.home}; the personal models"
    for function, told in seen.discloses.items():
        yield f"would disclose, in {function}: {told}; only with --disclose {function}"
    yield f"a round sends {seen.bytes_up / 1e6:,.2f} MB; tried here in {seen.seconds:.1f} s"


def describe_consent(agreed: "Consent") -> Iterator[str]:
    """Says what a site agreed to."""
    experiment = agreed.read_experiment()
    yield f"agreed: {agreed.digest}, as client {agreed.client} of {experiment.clients}"
    yield f"method: {experiment.method['name']}, {experiment.rounds} rounds; data: {agreed.data}"
    yield f"discloses more in: {', '.join(agreed.disclose) or 'nothing'}"
    yield (
        f"floors: {agreed.minimum_examples} examples to train on, {agreed.minimum_label_count} of "
        "each class whose count is told"
    )
    kept = "the server may keep them" if agreed.figures else "only in sums with others'"
    yield f"figures of this site: {kept}"
    yield "next: isthmus join start"


def describe_site(site: "SiteFolder") -> Iterator[str]:
    """Says how a site stands: consent, calls, models."""
    from isthmus.sites.audit import read_lines
    from isthmus.sites.folders import read_table
    from isthmus.sites.models import SiteModels
    from isthmus.sites.site import find_consent

    settings = read_table(site.settings)
    server = f"{settings['host']}:{settings['port']}" if "host" in settings else "none yet"
    yield f"site: {settings['name']}; server: {server}"
    agreed = find_consent(site)
    experiment = agreed.read_experiment()
    yield f"agreed: {agreed.digest}: {experiment.method['name']}, {experiment.rounds} rounds"
    lines = [facts for facts, _ in read_lines(site.audit)]
    answers = Counter(facts["refused"] or "answered" for facts in lines)
    got, sent = (sum(facts[key] for facts in lines) / 1e6 for key in ("bytes", "sent"))
    told = ", ".join(f"{name} {count:,}" for name, count in answers.items()) or "none"
    yield f"calls: {told}; got {got:,.2f} MB, sent {sent:,.2f} MB"
    if lines:
        yield f"last call: {lines[-1]['at']}, round {lines[-1].get('round', '?')}"
    for facts in SiteModels(site.state / f"{agreed.digest}.lmdb").read_figures()[-1:]:
        for name, found in facts["figures"].items():
            model, split = name.split()
            yield (
                f"{model} model after round {facts['t'] + 1}, this site's {split} part: top-1 "
                f"{found['top1']:.2%} of {found['n']:,}, loss {found['loss']:.4f}"
            )
