"""The cases of `streams`: each kernel over several sizes, small ones that live in a cache and large ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ledger.lab.bench.cases import Case, Kind, Limits
from ledger.lab.bench.rig import SIZES, Rig, each
from ledger.lab.bench.streams import BY_NAME, STREAMS, Stream
from ledger.lab.bench.timing import Work

# (rows, width) of activations, and (rows, vocabulary) of logits.
SHAPES: Mapping[tuple[str, bool], Sequence[tuple[int, int]]] = {
    ("cuda", False): ((2048, 2048), (8192, 4096), (16384, 8192)),
    ("cuda", True): ((4096, 50304), (4096, 128256)),
    ("cpu", False): ((256, 256), (512, 768), (512, 3072), (2048, 3072)),
    ("cpu", True): ((256, 16384), (256, 50257), (512, 50257)),
}
SHARE = 0.2  # of memory that one set of buffers may take, of which a kernel needs up to five


def cases(limits: Limits) -> Iterator[Case]:
    """Kernels x sizes, in fp32 on a CPU; on a GPU in bf16, and in fp32 what runs so beside bf16 matmuls."""
    cuda = limits.sort == "cuda"
    for stream in STREAMS:
        if stream.on not in ("", limits.sort):
            continue
        shapes = SHAPES[limits.sort, stream.wide]
        dtype = "bf16" if cuda and stream.narrow else "fp32"
        for rows, width in shapes[-2:] if limits.quick else shapes:
            if rows * width * SIZES[dtype] <= SHARE * limits.memory:
                yield _case(stream, rows, width, dtype)


def _case(stream: Stream, rows: int, width: int, dtype: str) -> Case:
    sizes = {"rows": rows, "width": width, "bytes": stream.bytes(rows, width, SIZES[dtype])}
    return Case("stream", stream.what, {"operation": stream.operation, **sizes, "dtype": dtype})


def build(case: Case, rig: Rig) -> Work:
    """The kernel of a case over rotated buffers; results are allocated anew each time, as in training."""
    stream = BY_NAME[case.what, str(case.keys["operation"])]
    rows, width, dtype = int(case.keys["rows"]), int(case.keys["width"]), str(case.keys["dtype"])
    sets = rig.rotated(lambda: stream.given(rig, rows, width, dtype), int(case.keys["bytes"]))
    return Work(lambda index: stream.run(*sets[index]), len(sets), capturable=not stream.waits)


STREAM = Kind("stream", cases, each(build))
