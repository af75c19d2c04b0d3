"""A model that is made of another: what its base is called, was taken from and is expected to count holds no more."""

from __future__ import annotations

from ledger.spec.reader import Node

LABELS = ("spec", "model", "source", "expect", "aliases")  # of a model: no shape follows from them
CHANGED = "-changed"  # ends the name of a model with another's values changed


def changed_model(base: Node, model: Node, name: str) -> Node:
    """The model under a title of its own, without what is stated of `base`; the same where no value is another.

    What it states itself stays. Values of the base are said to be as of `name`, with the publication that has them.
    """
    keys = changed_keys(base, model)
    if not keys:
        return model
    inherited = {key for key in LABELS if key in base.fields and model.fields.get(key) is base.fields[key]}
    published = base.fields.get("source")
    told = {"model": Node(f"changed from {name} ({', '.join(keys)})", model.where)} if "model" in inherited else {}
    if published is not None and "source" in inherited:
        told["source"] = Node(f"as of {name}, which the model is changed from ({published.value})", published.where)
    for key in inherited - {"spec"}:
        model = model.without(key)
    return model.within(told, {})


def changed_keys(base: Node, model: Node) -> tuple[str, ...]:
    """The keys under which a model says something else than its base, in the model's order; labels left out."""
    keys = dict.fromkeys((*model.fields, *base.fields))
    return tuple(key for key in keys if key not in LABELS and _said(base, key) != _said(model, key))


def name_of_base(name: str) -> str:
    """The name that a changed model was made from; any other name as it is."""
    return name.removesuffix(CHANGED)


def _said(node: Node, key: str) -> object:
    return node.fields[key].plain() if key in node.fields else None
