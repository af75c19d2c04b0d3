"""What a spec may say is what the model has a row for."""

from __future__ import annotations

from ledger.model.cores import CORES
from ledger.model.cross_entropy import LOSSES
from ledger.model.feed_forward import MLPS
from ledger.model.update import PASSES
from ledger.spec import schema


def choices(node: object, name: str) -> set[str]:
    """The values that a schema allows for the fields of this name."""
    if isinstance(node, dict):
        own = node.get("properties", {}).get(name, {})
        found = set(own.get("enum", ())) if isinstance(own, dict) else set()
        return found.union(*(choices(value, name) for value in node.values()))
    return set().union(*(choices(value, name) for value in node)) if isinstance(node, list) else set()


def test_every_attention_kernel_is_compiled() -> None:
    """A kernel that the schema offers has a core, and a core can be named."""
    kernels = schema("plan")["$defs"]["kernels"]
    assert choices(kernels, "attention") == set(CORES)
    assert choices(kernels, "loss") == set(LOSSES)
    assert choices(kernels, "optimizer") == set(schema("optimizer")["properties"]["update"]["properties"])


def offers(node: object) -> list[set[str]]:
    """Every set of texts that a schema offers, each once."""
    found: list[set[str]] = []
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict) and all(isinstance(value, str) for value in node.get("enum", [0])):
        found.append(set(node["enum"]))
    for value in values:
        found.extend(one for one in offers(value) if one not in found)
    return found


def test_every_mlp_is_compiled() -> None:
    """A feed-forward layer that the schema offers has a component."""
    assert set(MLPS) in offers(schema("model"))


def test_every_pass_over_gradients_is_compiled() -> None:
    """A pass that a stack may list has its reads and writes."""
    assert set(PASSES) in offers(schema("stack"))
