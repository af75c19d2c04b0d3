"""Convolutional networks in stages. Defaults: transformers 5.23, configuration_resnet.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ledger.spec.architecture import Group, Model
from ledger.spec.imports.huggingface import terms
from ledger.spec.imports.huggingface.families.images import NAMES, SIDES, classes, names_differ, side
from ledger.spec.imports.huggingface.family import Family
from ledger.spec.imports.huggingface.terms import ConfigField, FieldKind, Values
from ledger.spec.imports.text import Part
from ledger.spec.windows import Window

USUAL_SIDE = 224  # of the images of ImageNet-1k, as its models are trained
REDUCTION = 4  # of the width of a bottleneck (ResNetBottleNeckLayer)
TAPS = {1: ("point_row", "point_column"), 3: ("tap_row", "tap_column"), 7: ("wide_tap_row", "wide_tap_column")}
SIZES = terms.lists(terms.sizes.schema, "a list of whole numbers of at least 1", minItems=1)
KINDS = ("bottleneck", "basic")


@dataclass(frozen=True)
class Convolution:
    """A convolution without a bias, and the batch norm after it: channels before and after, places, filter, stride."""

    name: str
    channels: tuple[str, str]
    places: tuple[str, str]  # of the result
    size: int
    stride: int = 1
    of: str = ""  # what it starts from, if not from the step before

    @property
    def filter(self) -> str:
        """The dims of its filters."""
        return " ".join((self.channels[1], self.channels[0], *TAPS[self.size]))

    @property
    def weights(self) -> dict[str, str]:
        """Its filters, and the factor and the addend of its norm."""
        factors = dict.fromkeys((f"{self.name}_factor", f"{self.name}_addend"), self.channels[1])
        return {f"{self.name}_filter": self.filter} | factors

    def steps(self, *, active: bool) -> Iterator[Part]:
        """The convolution and its norm; `active`: with a ReLU behind them."""
        indices = " ".join(
            index(place, tap, self.stride, self.size // 2)
            for place, tap in zip(self.places, TAPS[self.size], strict=True)
        )
        before, after = self.channels
        einsum = f"batch {before} {indices}, {self.filter} -> batch {after} {' '.join(self.places)}"
        operands = {"of": [self.of]} if self.of else {}
        yield {"name": self.name, **operands, "einsum": einsum, "weight": f"{self.name}_filter"}
        factors = {"weight": f"{self.name}_factor", "bias": f"{self.name}_addend"}
        yield {"name": f"{self.name}_norm", "norm": "batch", **factors}
        if active:
            yield {"name": f"{self.name}_active", "activation": "relu"}


def index(over: str, tap: str, stride: int, padding: int) -> str:
    """A window as an einsum has it."""
    return f"({f'{stride}*' if stride > 1 else ''}{over}+{tap}{f'-{padding}' if padding else ''})"


def part_text(takes: str, dims: Mapping[str, int], parts: Sequence[Convolution], steps: Sequence[Part]) -> Part:
    """A block or a stem of its steps, with the taps of its filters among its dims."""
    taps = {tap: part.size for part in parts for tap in TAPS[part.size]}
    weights = {name: dims_of_weight for part in parts for name, dims_of_weight in part.weights.items()}
    return {"input": takes, "dims": {**dims, **taps}, "weights": weights, "steps": list(steps)}


# --- configuration to spec ---


def stem(values: Values, sides: Sequence[int], stem_places: Sequence[int]) -> Part:
    """A convolution of 7 x 7 with stride 2, and the largest in every second window of 3 x 3."""
    halves = [Window("", "", 2, 1, 3).windows(pixels, 7) for pixels in sides]
    dims = dict(zip(("height", "width", "rows", "columns"), (*sides, *halves), strict=True))
    channels = {"colours": values["num_channels"], "wide": values["embedding_size"]}
    pooled = dict(zip(("pooled_rows", "pooled_columns"), stem_places, strict=True))
    first = Convolution("embed", ("colours", "wide"), ("rows", "columns"), 7, 2)
    indices = " ".join(index(place, tap, 2, 1) for place, tap in zip(pooled, TAPS[3], strict=True))
    steps = [
        *first.steps(active=True),
        {"name": "pooled", "max": f"batch wide {indices} -> batch wide {' '.join(pooled)}"},
    ]
    taps = dict.fromkeys(TAPS[3], 3)
    return part_text("batch colours height width", {**channels, **dims, **pooled, **taps}, [first], steps)


@dataclass(frozen=True)
class ResidualStage:
    """A layer in its place: the sizes of what it reads (channels rows columns), those of its result, its stride."""

    read: tuple[int, ...]
    made: tuple[int, ...]
    stride: int

    @property
    def projects(self) -> bool:
        """Whether what goes around it must be made as wide and as small as its result."""
        return self.read[0] != self.made[0] or self.stride > 1


def block(values: Values, stage: ResidualStage) -> Part:
    """A bottleneck, or two convolutions, beside a stream that is projected where its sizes change."""
    source = ("source", "source_rows", "source_columns") if stage.projects else ("wide", "rows", "columns")
    places, places_before = ("rows", "columns"), source[1:]
    if values["layer_type"] == "bottleneck":
        first = stage.stride if values["downsample_in_bottleneck"] else 1
        middle_places = places if first > 1 else places_before
        parts = [
            Convolution("reduce", (source[0], "reduced"), middle_places, 1, first),
            Convolution("mix", ("reduced", "mixed"), places, 3, stage.stride // first),
            Convolution("expand", ("mixed", "wide"), places, 1),
        ]
        inner = dict.fromkeys(("reduced", "mixed"), stage.made[0] // REDUCTION)
    else:
        parts = [
            Convolution("mix", (source[0], "mixed"), places, 3, stage.stride),
            Convolution("expand", ("mixed", "wide"), places, 3),
        ]
        inner = {"mixed": stage.made[0]}
    steps = [step for part in parts for step in part.steps(active=part is not parts[-1])]
    stream = "x"
    if stage.projects:
        parts.append(Convolution("project", (source[0], "wide"), places, 1, stage.stride, "x"))
        steps += parts[-1].steps(active=False)
        stream = "project_norm"
    steps += [
        {"name": "added", "add": ["expand_norm", stream], "in_place": True},
        {"name": "active", "activation": "relu"},
    ]
    outer = dict(zip((*source, "wide", *places), (*stage.read, *stage.made), strict=True))
    dims = {**outer, **inner}
    return part_text(" ".join(("batch", *source)), dims, parts, steps)


def stages(values: Values, stem_sizes: Sequence[int]) -> Iterator[tuple[int, ResidualStage, int]]:
    """The layers of each stage in its places: its number, the layer, how often it follows itself."""
    sizes = tuple(stem_sizes)
    for number, (width, depth) in enumerate(zip(values["hidden_sizes"], values["depths"], strict=True)):
        stride = 2 if number or values["downsample_in_first_stage"] else 1
        result = (width, *(Window("", "", stride, 1, 1).windows(places, 3) for places in sizes[1:]))
        first, further = ResidualStage(sizes, result, stride), ResidualStage(result, result, 1)
        if first == further:
            yield number, further, depth
        else:
            yield number, first, 1
            if depth > 1:
                yield number, further, depth - 1
        sizes = result


def layers(values: Values, stem_sizes: Sequence[int]) -> Iterator[Part]:
    """The groups of layers; one whose steps another has says so, with its own sizes."""
    blocks: list[tuple[str, Part]] = []
    for number, stage, repeat in stages(values, stem_sizes):
        name, part = f"stage_{number + 1}{'_entry' if stage.projects else ''}", block(values, stage)
        template = next((group for group, earlier in blocks if earlier["steps"] == part["steps"]), "")
        blocks.append((name, part))
        dims = {
            key: size
            for key, size in part["dims"].items()
            if key not in {tap for taps in TAPS.values() for tap in taps}
        }
        yield {"group": name, "repeat": repeat, "block": {"like": template, "dims": dims} if template else part}


# --- the family ---


@dataclass(frozen=True)
class StagedFamily(Family):
    """An architecture whose layers are blocks in stages, each with sizes of its own."""

    of_blocks: bool = True

    def depth(self, values: Values) -> int:
        """Layers of all stages."""
        return sum(values["depths"])

    def document(self, values: Values) -> Part:
        """The parts of the model spec that these values of all fields describe."""
        sides = [side("image_size", index)(values) for index in range(2)]
        halves = [Window("", "", 2, 1, 3).windows(pixels, 7) for pixels in sides]
        stem_places = [Window("", "", 2, 1, 1).windows(places, 3) for places in halves]
        return {
            "d_model": values["hidden_sizes"][-1],
            "image": {"height": sides[0], "width": sides[1], "channels": values["num_channels"]},
            "head": {"classes": classes(values), "bias": True},
            "stem": stem(values, sides, stem_places),
            "layers": list(layers(values, (values["embedding_size"], *stem_places))),
        }

    def configuration(self, model: Model) -> Values:
        """The fields whose values describe a model, as far as its sizes say it."""
        image, parts = model.image, [group for group in model.groups if group.block]
        if image is None or model.stem is None or not parts:
            return {"hidden_sizes": []}
        stem_sizes = model.stem.sizes_of(model.stem.gives)
        stage_sizes = list(_stage_sizes(parts))
        strides = [step.einsum for group in parts if group.block for step in group.block.steps if step.name == "reduce"]
        return {
            "num_channels": image.channels,
            "image_size": [image.height, image.width],
            "embedding_size": stem_sizes[0],
            "hidden_sizes": [sizes[0] for sizes, _ in stage_sizes],
            "depths": [depth for _, depth in stage_sizes],
            "layer_type": KINDS[0] if strides else KINDS[1],
            "downsample_in_first_stage": stage_sizes[0][0][1:] != stem_sizes[1:],
            "downsample_in_bottleneck": any("2*" in einsum for einsum in strides),
            "num_labels": model.classes,
        }


def _stage_sizes(groups: Sequence[Group]) -> Iterator[tuple[tuple[int, ...], int]]:
    """The sizes of what the layers of each stage give, and how many they are."""
    sizes, depth = tuple[int, ...](), 0
    for group in groups:
        result = group.block.sizes_of(group.block.gives) if group.block else ()
        if depth and result != sizes:
            yield sizes, depth
            depth = 0
        sizes, depth = result, depth + group.repeat
    yield sizes, depth


def _depths_differ(values: Values) -> str:
    stages_of, depths = len(values["hidden_sizes"]), len(values["depths"])
    return f"{depths} depths of {stages_of} stages" if stages_of != depths else ""


def _bottleneck_too_narrow(values: Values) -> str:
    least = min(values["hidden_sizes"])
    return f"a bottleneck of {least} channels" if values["layer_type"] == KINDS[0] and least < REDUCTION else ""


RESIDUAL: Mapping[str, Family] = {
    "resnet": StagedFamily(
        config="ResNetConfig",
        architecture="ResNetForImageClassification",
        fields={
            **terms.sizes(num_channels=3, embedding_size=64),
            **SIZES(hidden_sizes=[256, 512, 1024, 2048], depths=[3, 4, 6, 3]),
            **SIDES(image_size=USUAL_SIDE),
            "layer_type": ConfigField(KINDS[0], FieldKind({"enum": list(KINDS)}, " or ".join(KINDS))),
            "hidden_act": terms.only("relu"),
            **terms.flags(downsample_in_first_stage=False, downsample_in_bottleneck=False),
            **terms.wholes(2).or_null()(num_labels=None),
            "id2label": ConfigField(None, NAMES),
        },
        terms=(),
        ignored=frozenset({"out_features", "out_indices", "stage_names", "reshape_last_stage"}),
        clashes={"num_labels": names_differ, "depths": _depths_differ, "hidden_sizes": _bottleneck_too_narrow},
        stack="stage",
        layers="resnet.encoder.stages",
        assumed={"image_size": f"images of {USUAL_SIDE} pixels, as the file says nothing of them"},
    )
}
