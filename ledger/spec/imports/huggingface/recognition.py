"""The family of transformers that a model is of: the one whose configuration, read again, is the same model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any

from ledger.spec.architecture import Model
from ledger.spec.build import part_of
from ledger.spec.imports.huggingface.config import all_values, problems
from ledger.spec.imports.huggingface.families import FAMILIES
from ledger.spec.imports.huggingface.family import PLACES, Family
from ledger.spec.imports.huggingface.terms import Values
from ledger.spec.problems import Location
from ledger.spec.reader import as_node

NOWHERE = Location("")  # of values that stand in no file
# Of no class, or without a shape.
UNCOMPARED = ("name", "title", "groups", "order", "max_seq_len", "repeat", "softmax", "like")


@dataclass(frozen=True)
class FamilyMatch:
    """A family, the configuration that comes nearest to a model in it, and why it is not that model's, if it is not."""

    name: str
    family: Family
    configuration: Values
    refused: tuple[str, ...] = ()  # what the class does not take
    differences: tuple[str, ...] = ()  # what of the model it does not say

    @property
    def fits(self) -> bool:
        """Whether the family says all of the model."""
        return not (self.refused or self.differences)


@lru_cache(maxsize=256)
def nearest_family(model: Model) -> FamilyMatch:
    """The first family that can say all of a model; else the one that leaves least of it out."""
    matches = []
    for name, family in FAMILIES.items():
        if family.of_blocks != model.of_blocks:
            continue
        matches.append(_match(name, family, model))
        if matches[-1].fits:
            return matches[-1]
    return min(matches, key=lambda match: (len(match.refused), len(match.differences)))


def model_of(family: Family, configuration: Values) -> Model:
    """The model that a configuration describes, through the spec that the import makes of it."""
    values = all_values(family, as_node(configuration, NOWHERE))
    return part_of(Model, as_node(family.document(values), NOWHERE), family.architecture)


def _match(name: str, family: Family, model: Model) -> FamilyMatch:
    configuration = family.configuration(model)
    refused = tuple(problem.message for problem in problems(family, as_node(configuration, NOWHERE)))
    differences = () if refused else tuple(_differences(model, model_of(family, configuration)))
    return FamilyMatch(name, family, configuration, refused, differences)


def _differences(model: Model, described: Model) -> Iterator[str]:
    """The values of a model that differ from those of a second one, by the paths of a spec."""
    spelt = {place: path for path, place in PLACES.items()}
    layers = dict.fromkeys(zip(_names(model), _names(described), strict=True))
    ours, theirs = _groups(model), _groups(described)
    pairs = [(dict(_facts(model)), dict(_facts(described))), *((ours[name], theirs[again]) for name, again in layers)]
    differing = {
        path: ours.get(path)
        for ours, theirs in pairs
        for path in {**ours, **theirs}
        if ours.get(path) != theirs.get(path)
    }
    return (f"{spelt.get(path, path)} = {value}" for path, value in differing.items())


def _names(model: Model) -> list[str]:
    return [group.name for group in model.layers]


def _groups(model: Model) -> dict[str, dict[str, Any]]:
    """Facts of each group, without what tells equal layers apart: a base that all have, the form of no rotation."""
    one_base = len({group.attention.rotary_base for group in model.groups}) == 1
    groups = {group.name: dict(_facts(group)) for group in model.groups}
    for group in model.groups:
        facts = groups[group.name]
        if one_base:
            facts["attention.rotary_base"] = 0
        if not (group.attention.rotary or group.attention.rope_head_dim):
            facts["attention.rotary_form"] = "halves"
        if group.mlp.shared:
            facts |= {"mlp.shared.d_ff": group.mlp.shared_d_ff, "mlp.shared.count": 1}
    return groups


def _facts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not is_dataclass(value):
        yield path.removeprefix("."), value
        return
    for field in fields(value):
        if field.name not in UNCOMPARED:
            yield from _facts(getattr(value, field.name), f"{path}.{field.name}")
