"""What the people of a site are shown before and after they agree."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isthmus.sites.consent import Consent
    from isthmus.sites.preparation import Preview


def describe_preview(seen: "Preview") -> Iterator[str]:
    """Says what taking part would mean."""
    from isthmus.config import registry
    from isthmus.report.tables.formats import format_bytes

    train, validation, test = seen.data.sizes(seen.client)
    about = registry.build("method", seen.experiment.method).about()
    counts = seen.data.label_counts(seen.client).tolist()
    yield f"examples: {train:,} to train on, {validation:,} to choose on, {test:,} to test on"
    names = seen.data.arrays.labels or range(len(counts))
    held = (f"{name}: {n:,}" for name, n in zip(names, counts, strict=True) if n)
    yield f"classes: {', '.join(held)}"
    yield from (f"note: {note}" for note in seen.data.notes)
    yield f"method: {seen.experiment.method['name']}, {seen.experiment.rounds} rounds"
    yield f"would leave this site: {about.up}; its counts of examples; how its models do"
    yield f"would stay: the data; {about.home}; the personal models"
    for function, told in seen.discloses.items():
        yield f"would disclose, in {function}: {told}; only with --disclose {function}"
    yield f"a round sends {format_bytes(seen.bytes_up)}; tried here in {seen.seconds:.1f} s"


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
