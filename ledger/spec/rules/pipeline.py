"""Rules on how a pipeline cuts the layers, and in which order its devices work."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.places import Places, divisors, multiples
from ledger.spec.plan import Model, Parallelism, Run, Stages
from ledger.spec.problems import Problem
from ledger.spec.stages import chunks, depth, slots

# Schedules in which a device may have other than one chunk of layers: several, or any number.
ONE, SEVERAL, ANY = "one", "several", "any number"
CHUNKS = {"interleaved": SEVERAL, "zero_bubble": ANY}


def layers_fill_the_stages(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """The layers of all chunks are the layers of the model."""
    if model.bare or chunks(model, parallelism):
        return
    stated, layers, count = parallelism.stages, depth(model), slots(parallelism)
    if stated.each:
        yield from _listed(stated.each, layers, count, at)
    elif stated.first is not None or stated.last is not None:
        given = [number for number in (stated.first, stated.last) if number is not None]
        rest, inner = layers - sum(given), count - len(given)
        ends = " and ".join(map(str, given))
        message = f"{layers} layers less {ends} at the ends are {rest}, which do not split into {inner} equal chunks"
        if rest < 0:
            message = f"{ends} layers at the ends are more than the {layers} of the model"
        yield Problem(at("parallelism.stages"), message, _closest(rest, inner))
    elif stated.ends == "shared":
        message = f"{layers} layers do not split into pipeline x interleave = {count} equal chunks"
        yield Problem(at("parallelism.pipeline"), message, f"{divisors(layers)}; or `stages`, or `ends: layer`")
    else:
        words = {"layer": f"{layers} layers, and two ends that count as one each,", "own": f"{layers} layers"}
        inner = count if stated.ends == "layer" else count - 2
        message = f"{words[stated.ends]} do not split into {max(0, inner)} equal chunks (ends = {stated.ends})"
        yield Problem(at("parallelism.ends"), message, f"`ends: shared`, or `stages` with {count} numbers of layers")


def _listed(each: tuple[int, ...], layers: int, count: int, at: Places) -> Iterator[Problem]:
    if len(each) != count:
        message = f"`stages` lists {len(each)} chunks, but pipeline x interleave = {count}"
        yield Problem(at("parallelism.stages"), message, f"{count} numbers whose sum is {layers}")
    else:
        message = f"`stages` lists {sum(each)} layers, but the model has {layers}"
        more = layers - sum(each)
        amount = f"{abs(more)} layer{'s' if abs(more) > 1 else ''}"
        yield Problem(at("parallelism.stages"), message, f"add {amount}" if more > 0 else f"take {amount} away")


def _closest(rest: int, inner: int) -> str:
    if rest > 0 and inner > 0:
        return f"of what is left, {multiples(rest, inner)}"
    return "fewer layers at the ends"


def stages_have_layers(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Of a bare parameter count there are no layers to place."""
    if model.bare and parallelism.stages != Stages():
        key = "ends" if parallelism.stages == Stages(ends=parallelism.stages.ends) else "stages"
        message = f"`{key}` of a model of which only a count is known: it has no layers to place"
        yield Problem(at(f"parallelism.{key}"), message, f"leave `{key}` out, or a model with layers")


def stages_are_stated_once(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A list of stages says what the ends hold."""
    stated = parallelism.stages
    if stated.ends != "shared" and stated != Stages(ends=stated.ends):
        message = f"both `stages` and `ends: {stated.ends}` say how many layers the ends hold"
        yield Problem(at("parallelism.ends"), message, "leave one of them out; a stage of 0 layers has an end alone")


def interleave_needs_pipeline(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Interleaving gives a pipeline stage several chunks."""
    if parallelism.interleave > 1 and parallelism.pipeline == 1:
        message = f"interleave = {parallelism.interleave} without a pipeline"
        yield Problem(at("parallelism.interleave"), message, "`interleave: 1`, or a `pipeline` of 2 or more")


def schedule_needs_pipeline(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Without stages there is nothing to order."""
    if parallelism.schedule and parallelism.pipeline == 1:
        message = f"schedule = {parallelism.schedule} without a pipeline"
        yield Problem(at("parallelism.schedule"), message, "leave `schedule` out, or a `pipeline` of 2 or more")


def schedule_fits_the_chunks(parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """A schedule is for one chunk of layers a device, or for several."""
    name, count = parallelism.scheduled, parallelism.interleave
    allowed = CHUNKS.get(name, ONE)
    if parallelism.pipeline > 1 and allowed != ANY and (count > 1) != (allowed == SEVERAL):
        message = f"schedule = {name} is for {allowed} chunk{'s' if allowed == SEVERAL else ''} of layers a device"
        message += f", and interleave = {count}"
        fitting = ", ".join(f"`{other}`" for other in CHUNKS) if count > 1 else f"any but `{name}`"
        yield Problem(at("parallelism.schedule"), message, f"with interleave = {count}: {fitting}")


def both_ends_share_the_work(parallelism: Parallelism, run: Run, at: Places) -> Iterator[Problem]:
    """Micro-batches that enter at both ends come in pairs, and so do the stages that a device holds.

    Source: deepseek-ai/DualPipe, dualpipe/dualpipe.py, which asserts both.
    """
    mesh = parallelism
    if mesh.scheduled != "dual_pipe" or mesh.pipeline == 1:
        return
    if mesh.pipeline % 2:
        message = f"schedule = dual_pipe needs an even number of stages, not {mesh.pipeline}"
        yield Problem(at("parallelism.pipeline"), message, multiples(mesh.pipeline, 2))
    count, rest = divmod(run.global_batch, mesh.data * run.micro_batch)
    if not rest and (count % 2 or count < 2 * mesh.pipeline):
        message = f"schedule = dual_pipe needs an even number of micro-batches, at least 2 x pipeline, not {count}"
        least = 2 * mesh.pipeline * mesh.data * run.micro_batch
        yield Problem(at("run.global_batch"), message, f"`global_batch: {least}` or more, in steps of 2 micro-batches")
