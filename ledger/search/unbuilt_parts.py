"""What a config.json states and transformers does not build, with the parameters of the model without and with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ledger import numbers
from ledger.books.compiled_roles import whole
from ledger.books.counts import whole_parameters
from ledger.search.first_plan import runnable
from ledger.search.first_text import Start, start_text
from ledger.spec.load import load_plan
from ledger.spec.problems import Problem, SpecError

if TYPE_CHECKING:
    from ledger.spec.imports.huggingface.config import ConfigModel


def unbuilt_notes(model: ConfigModel, file: str) -> Iterator[Problem]:
    """A note for each of them, at the field that states it."""
    for one in model.unbuilt:
        message = f"`{one.name}` is {one.value}: transformers builds no such layer, and this model has none"
        counts = [_parameters({**model.document, **part}, file) for part in ({}, one.part)]
        if all(counts):
            without, beside = (numbers.count(count).replace(numbers.THIN, " ") for count in counts)
            message += f": {without} parameters, {beside} with it"
        (part, fields), *_ = one.part.items()
        inside = ", ".join(f"{key}: {value}" for key, value in fields.items())
        yield Problem(one.where, message, f"`{part}: {{{inside}}}` in the model adds it, as it was trained")


def _parameters(document: Mapping[str, Any], file: str) -> int:
    """Parameters of a model; 0 where no plan can be made of it, which others say."""
    try:
        plan = load_plan(start_text(runnable(Start(document, 1), file)))
    except SpecError:
        return 0
    return int(whole_parameters(whole(plan)))
