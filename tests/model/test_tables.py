"""What a spec may say is what the model has a row for."""

from __future__ import annotations

from ledger.books.overlap import RULES
from ledger.model.attention import ATTENTIONS, EXCHANGES
from ledger.model.attention_cores import CORES
from ledger.model.components import MLPS
from ledger.model.dims import LETTERS
from ledger.model.experts import KERNELS
from ledger.model.losses import LOSSES
from ledger.model.rotary import FORMS
from ledger.model.routing import SCORES
from ledger.model.schedule import PIPELINES
from ledger.model.update import PASSES
from ledger.spec.attention import ATTENTION_KINDS
from ledger.spec.kinds import schema
from ledger.spec.loss_chunks import CHUNKED_LOSSES as PART_BY_PART
from ledger.spec.parallelism import AXES, INNERMOST_FIRST
from ledger.spec.plan import Parallelism
from ledger.spec.rules.layout import CHUNKS


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
    assert choices(kernels, "loss") == set(LOSSES) | set(PART_BY_PART)
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


def test_every_schedule_and_exchange_is_compiled() -> None:
    """A schedule that the schema offers has a row, as have those that a rule names; an exchange has a function."""
    mesh = schema("plan")["$defs"]["parallelism"]
    assert choices(mesh, "schedule") == set(PIPELINES) >= set(CHUNKS)
    assert choices(mesh, "context_exchange") == set(EXCHANGES) - {"none"}


def test_every_overlap_has_its_rule() -> None:
    """What a stack may say of a kind of transfer is `none` or a row that says what hides it."""
    for kind, offered in schema("stack")["$defs"]["overlap"]["properties"].items():
        if kind != "source":
            assert set(offered["enum"]) - {"none"} == {rule.choice for rule in RULES if rule.kind == kind}


def test_every_attention_is_compiled() -> None:
    """A kind of attention, and a form of rotation, that the schema offers has a function."""
    attention = schema("model")["$defs"]["attention"]
    assert choices(attention, "kind") == set(ATTENTIONS) == set(ATTENTION_KINDS)
    assert choices(attention, "rotary_form") == set(FORMS)


def test_every_axis_has_its_degree_and_its_place() -> None:
    """A row of the axes is a field of the mesh, 1 where not given, and lies between neighbours and the outermost."""
    assert all(getattr(Parallelism(), axis) == 1 for axis in AXES)
    assert sorted(INNERMOST_FIRST) == sorted(AXES)
    assert {f"parallelism.{axis}" for axis in AXES} <= {letter.path for letter in LETTERS}


def test_every_mlp_is_compiled() -> None:
    """A feed-forward layer that the schema offers has a component."""
    assert set(MLPS) in offers(schema("model"))


def test_every_way_to_run_experts_is_compiled() -> None:
    """A kernel for experts, and a way to score them, that a schema offers has a function."""
    assert choices(schema("plan")["$defs"]["kernels"], "experts") == set(KERNELS)
    assert choices(schema("model")["$defs"]["router"], "scores") == set(SCORES)


def test_every_pass_over_gradients_is_compiled() -> None:
    """A pass that a stack may list has its reads and writes."""
    assert set(PASSES) in offers(schema("stack"))
