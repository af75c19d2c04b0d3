"""A model that is made of another: what its base is called, was taken from and is expected to count holds no more."""

from __future__ import annotations

from ledger.spec.reader import Node

LABELS = ("spec", "model", "source", "expect", "aliases")  # of a model: no shape follows from them
CHANGED = "-changed"  # ends the name of a part with values of another that are changed


def changed_model(base: Node, model: Node, name: str) -> Node:
    """The model under a title of its own, without what is stated of `base`; the same where no value is another.

    What it states itself stays. Values of the base are said to be as of `name`, with the publication that has them.
    """
    if not is_changed(base, model):
        return model
    inherited = {key for key in LABELS if key in base.fields and model.fields.get(key) is base.fields[key]}
    published = base.fields.get("source")
    told = {"model": Node(changed_title(name), model.where)} if "model" in inherited else {}
    as_of = f"as of {name}, which the model is changed from"
    if published is not None and "source" in inherited:
        stated = str(published.value)
        told["source"] = published if stated.startswith(as_of) else Node(f"{as_of} ({stated})", published.where)
    for key in inherited - {"spec"}:
        model = model.without(key)
    return model.within(told, {})


def is_changed(base: Node, model: Node) -> bool:
    """Whether a model says something else than its base, labels left out."""
    return any(_said(base, key) != _said(model, key) for key in {*base.fields, *model.fields} - {*LABELS})


def changed_title(name: str) -> str:
    """The title of a model that was changed from the one of this name, and has no title of its own."""
    return f"changed from {name}"


def name_of_base(name: str) -> str:
    """The name that a changed model was made from; any other name as it is."""
    return name.removesuffix(CHANGED)


def _said(node: Node, key: str) -> object:
    return node.fields[key].plain() if key in node.fields else None
