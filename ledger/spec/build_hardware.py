"""Validated documents -> accelerator, cluster, stack."""

from __future__ import annotations

from collections.abc import Mapping

from ledger.spec.kernel_classes import kernel_class
from ledger.spec.kinds import documents
from ledger.spec.plan import Accelerator, Cluster, Curve, Kernels, Overlap, Stack
from ledger.spec.quantities import parse_any
from ledger.spec.view import View


def accelerator(view: View, name: str) -> Accelerator:
    """An accelerator from its data sheet."""
    memory, scaleup = view.inner("memory"), view.inner("scaleup")
    return Accelerator(
        name=name,
        title=view.text("accelerator", name),
        peak=rates(view.inner("peak")),
        vector=view.amount("vector", "FLOP/s"),
        bandwidth=view.amount("bandwidth", "B/s"),
        memory=memory.whole("driver", "B"),
        memory_labelled=memory.whole("labelled", "B"),
        l2=view.whole("l2", "B"),
        multiprocessors=view.size("multiprocessors"),
        scaleup_bandwidth=scaleup.amount("bandwidth", "B/s"),
        scaleup_domain=scaleup.size("domain"),
        host_bandwidth=view.amount("host_link", "B/s"),
        power=view.amount("power", "W"),
        matmul_workspace=view.whole("matmul_workspace", "B"),
        architecture=view.text("architecture"),
        kind=view.text("kind", "gpu"),
        aliases=tuple(str(item.value) for item in view.inner("aliases").node.items),
        calibration=tuple(curve(entry) for entry in view.each("calibration")),
    )


def rates(view: View) -> Mapping[str, float]:
    """A table of peaks in FLOP/s by number format."""
    table = documents()["accelerator.schema.json"]["$defs"]["peaks"]["properties"]
    return {dtype: view.amount(dtype, "FLOP/s") for dtype in view.node.fields if dtype in table and dtype != "source"}


def curve(view: View) -> Curve:
    """A fitted price, its constants in SI base units."""
    parameters = view.inner("parameters").node.fields
    return Curve(
        what=kernel_class(view.text("what")),
        form=view.text("form"),
        parameters={key: constant(node.value) for key, node in parameters.items()},
        error=view.amount("error", "1"),
        regime=view.text("regime"),
        source=view.text("source"),
        bias=view.amount("bias", "1"),
        held_out=view.text("held_out"),
        region=view.text("region"),
        ranks=view.size("ranks"),
        head_dim=view.size("head_dim"),
    )


def constant(value: object) -> float:
    """A constant of a fit in SI base units: a bare number, a time, a bandwidth; raises QuantityError."""
    return float(parse_any(str(value))[0])


def cluster(view: View, name: str) -> Cluster:
    """Devices and the network between their nodes."""
    scaleout = view.inner("scaleout")
    return Cluster(
        devices=view.size("devices"),
        devices_per_node=view.size("devices_per_node"),
        scaleout_bandwidth=scaleout.amount("bandwidth", "B/s"),
        scaleout_latency=scaleout.amount("latency", "s"),
        scaleout_efficiency=scaleout.amount("efficiency", "1", 1.0),
        failure_rate=view.amount("failure_rate", "/s"),
        name=name,
    )


def stack(view: View, name: str) -> Stack:
    """A software stack."""
    overlap, launch, allocator = view.inner("overlap"), view.inner("launch"), view.inner("allocator")
    beside = launch.inner("beside")
    return Stack(
        name=name,
        title=view.text("stack", name),
        date=view.text("date"),
        kernels=kernels(view.inner("kernels"), Kernels()),
        overlap=Overlap(
            **{field: overlap.text(field, default) for field, default in vars(Overlap()).items()},
        ),
        compiled=view.flag("compiled"),
        graphs=launch.flag("graphs"),
        launch=launch.amount("per_operation", "s"),
        check=launch.amount("check", "s"),
        matmul_level=view.amount("matmul_level", "1", 1.0),
        context=allocator.whole("context", "B"),
        fragmentation=allocator.amount("fragmentation", "1", 1.0),
        accumulation=view.text("accumulation", "add"),
        tensor_parallel=view.text("tensor_parallel", "dtensor"),
        buckets=view.flag("buckets"),
        main_gradients=view.flag("main_gradients"),
        gathers=view.text("gathers", "in_place"),
        reduces=view.text("reduces", "share"),
        unshard=view.text("unshard", "views"),
        transfer_channels=view.size("transfer_channels", 0),
        ends=view.text("ends", "root"),
        expandable=allocator.flag("expandable"),
        recorded=allocator.flag("recorded"),
        gather_buffers=view.flag("gather_buffers"),
        transfers=view.text("transfers", "ordered"),
        beside=(beside.size("forward"), beside.size("backward")),
        call=beside.amount("each", "s"),
        recounts=view.flag("recounts"),
        update=view.text("update", "by_weight"),
        optimizer_passes=tuple(str(item.value) for item in view.inner("optimizer_passes").node.items),
        scatter_sends=view.flag("scatter_sends"),
        overlap_tax=view.amount("overlap_tax", "1"),
        source=view.text("source"),
    )


def kernels(view: View, below: Kernels) -> Kernels:
    """The kernels named here over those of `below`."""
    named = {field: view.text(field, default) for field, default in vars(below).items() if field != "loss_chunks"}
    return Kernels(**named, loss_chunks=view.size("loss_chunks", below.loss_chunks))
