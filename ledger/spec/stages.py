"""The layers of each chunk of a pipeline, from the embedding to the head."""

from __future__ import annotations

from ledger.spec.plan import Model, Parallelism


def depth(model: Model) -> int:
    """Layers of the whole model."""
    return sum(group.repeat for group in model.groups)


def slots(mesh: Parallelism) -> int:
    """Chunks that the layers of a model are cut into."""
    return mesh.pipeline * mesh.interleave


def growth(model: Model, mesh: Parallelism) -> int:
    """The layers by which a model can grow under the same spec: one for each chunk that is not stated itself."""
    stated = mesh.stages
    if stated.each:
        return depth(model)
    fixed = 2 if stated.ends == "own" else (stated.first is not None) + (stated.last is not None)
    return slots(mesh) - fixed


def chunks(model: Model, mesh: Parallelism) -> tuple[int, ...]:
    """Layers of each chunk; empty where the layers do not come out even (a rule on the spec refuses such plans)."""
    count, layers, stated = slots(mesh), depth(model), mesh.stages
    if stated.each:
        return stated.each if len(stated.each) == count and sum(stated.each) == layers else ()
    if stated.ends == "layer":
        even_size, remainder = divmod(layers + 2, count)
        return (even_size - 1, *[even_size] * (count - 2), even_size - 1) if count > 1 and not remainder else ()
    first, last = (0, 0) if stated.ends == "own" else (stated.first, stated.last)
    stated_layers = (first or 0) + (last or 0)
    inner = count - (first is not None) - (last is not None)
    if inner < 1 or layers < stated_layers or (layers - stated_layers) % inner:
        return ()
    even = (layers - stated_layers) // inner
    sizes = [even] * count
    if first is not None:
        sizes[0] = first
    if last is not None:
        sizes[-1] = last
    return tuple(sizes)


def as_even(layers: int, count: int) -> list[int]:
    """The layers of each chunk, as even as can be: chunks in the middle have one more where they do not divide."""
    size, remainder = divmod(layers, count)
    if not size:
        return []
    first = (count - remainder) // 2
    return [size + (first <= place < first + remainder) for place in range(count)]
