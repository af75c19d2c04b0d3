"""Rules on models with an encoder before their decoder, and on models that read images."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.spec.loss_chunks import CHUNKED_LOSSES
from ledger.spec.paths import Places
from ledger.spec.plan import Group, Kernels, Model, Parallelism, Recompute, Run, Serve, Stack
from ledger.spec.problems import Problem

KIND = "grouped_query"  # the kind of attention whose keys and values may be those of another sequence
ADDS = ("eager",)  # kernels that add a bias of their own to scores, with a gradient for it
COUNTED = ("every", "layers", "segment")  # policies of recompute that count layers of a group
# Fields of a model that are known for one sequence only, by path.
OF_ONE_SEQUENCE = {
    "embedding.types": "token_types",
    "embedding.norm": "embedding_norm",
    "head.transform": "head_transform",
    "multi_token.depth": "predictions",
    "order": "order",
}


def encoders_have_decoders(model: Model, at: Places) -> Iterator[Problem]:
    """What an encoder gives is read by the layers of a decoder, which come after all of its own."""
    crossed = [group for group in model.groups if group.cross_attention]
    for group in crossed:
        place = at(f"model.layers.{group.name}.cross_attention")
        if group.encodes_source:
            message = f"`{group.name}` reads the source, and attends to what an encoder gives"
            yield Problem(place, message, "leave `cross_attention` out, or `reads`")
        elif not model.encoder_groups:
            message = f"`{group.name}` attends to what an encoder gives, and there is none"
            yield Problem(place, message, "`reads: source` of the groups of the encoder, before those of the decoder")
    if model.encoder_groups and not crossed:
        name = model.encoder_groups[0].name
        message = f"`{name}` is an encoder, and no group attends to what it gives"
        yield Problem(at(f"model.layers.{name}.reads"), message, "`cross_attention: true` of the decoder's groups")
    sides = [group.encodes_source for group in model.groups]
    if sides != sorted(sides, reverse=True):
        pairs = zip(model.groups[1:], sides, strict=False)
        late = next(group for group, previous_encodes in pairs if group.encodes_source > previous_encodes)
        message = f"`{late.name}` is of an encoder, and stands after groups of the decoder"
        yield Problem(at(f"model.layers.{late.name}"), message, "groups of the encoder first")


def sources_are_stated(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A source has a length where an encoder reads it; frames of sound say theirs themselves."""
    if not model.encoder_groups:
        if run.source_len:
            message = "`run.source_len` is of a model with an encoder, and this one has none"
            yield Problem(at("run.source_len"), message, "leave it out, or `reads: source` of a layer group")
        if model.sound:
            message = "`sound` is what an encoder reads, and this model has none"
            yield Problem(at("model.sound"), message, "`reads: source` of the groups of the encoder")
    elif not run.source_len:
        message = f"`{model.encoder_groups[0].name}` is an encoder, and `run` does not say how long its source is"
        yield Problem(at("run"), message, "`source_len: 512`, tokens of the source of each sequence")
    elif model.sound and run.source_len != model.sound.tokens:
        message = f"source_len = {run.source_len}, but {model.sound.frames} frames are {model.sound.tokens} tokens"
        yield Problem(at("run.source_len"), message, "leave `source_len` out: it follows from `model.sound`")


def encoders_see_all(model: Model, at: Places) -> Iterator[Problem]:
    """Layers of an encoder see all of the source; both sides are of kinds that are known of two sequences."""
    for group in model.groups if model.encoder_groups else ():
        place, seen = f"model.layers.{group.name}", group.attention
        if group.encodes_source and not seen.bidirectional:
            message = f"`{group.name}` is an encoder, and its tokens do not see those after them"
            yield Problem(at(f"{place}.attention"), message, "`bidirectional: true`")
        for path, odd, help_text in _unmodelled_parts(group):
            if odd:
                message = f"`{group.name}` of a model with an encoder: {odd} is not modelled"
                yield Problem(at(f"{place}.{path}"), message, help_text)
    for path, name in OF_ONE_SEQUENCE.items() if model.encoder_groups else ():
        if getattr(model, name):
            message = f"`{path}` of a model with an encoder is not modelled"
            yield Problem(at(f"model.{path}"), message, f"leave `{path}` out")
    if model.learned_positions and model.encoder_groups and not model.sound:
        message = "learned positions of a decoder whose encoder reads tokens are not modelled"
        yield Problem(at("model.embedding.learned_positions"), message, "leave them out, or an encoder of `sound`")


def _unmodelled_parts(group: Group) -> Iterator[tuple[str, str, str]]:
    """Parts that a layer of either side may not have: the path, what the layer has (empty: nothing), and the remedy."""
    attention = group.attention
    yield "attention.kind", f"{attention.kind} attention" * (attention.kind != KIND), f"`kind: {KIND}`"
    for key in ("window", "chunk", "rotary", "temperature", "fused_qkv"):
        yield f"attention.{key}", f"`{key}`" * bool(getattr(attention, key)), f"leave `{key}` out"
    yield "mlp.kind", f"an mlp of {group.mlp.kind}" * (group.mlp.kind not in ("plain", "gated")), "`plain` or `gated`"
    yield "residual", "a parallel residual" * (group.residual == "parallel"), "`residual: sequential`"
    yield "norms", f"norms: {group.norms}" * (group.norms != "pre"), "`norms: pre`"


def biases_have_a_table(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """One group of each side has the table of biases, and a kernel adds them to scores."""
    tabled = [group for group in model.groups if group.attention.relative_buckets]
    for group in tabled:
        same_side = [candidate for candidate in model.groups if candidate.encodes_source == group.encodes_source]
        place = at(f"model.layers.{group.name}.attention.relative_buckets")
        if len(same_side) > 1:
            message = f"`{group.name}` has a table of biases for a side of {len(same_side)} groups: not modelled"
            yield Problem(place, message, "one group of layers for each side")
        elif not model.encoder_groups:
            message = f"`{group.name}` has a table of biases, and no encoder before or after it: not modelled"
            yield Problem(place, message, "leave `relative_buckets` out")
    if tabled and kernels.attention not in ADDS:
        message = f"{kernels.attention} attention adds no biases to scores, and `{tabled[0].name}` has some"
        yield Problem(at("kernels.attention"), message, f"`kernels: {{attention: {' | '.join(ADDS)}}}`")


def two_sides_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Each device has both sides, and whole sequences of both."""
    for axis in ("tensor", "context", "pipeline") if model.encoder_groups else ():
        if getattr(parallelism, axis) > 1:
            message = f"{axis} = {getattr(parallelism, axis)} is not modelled of a model with an encoder"
            yield Problem(at(f"parallelism.{axis}"), message, f"`{axis}: 1`; data and ZeRO are")
    if model.encoder_groups and "activations" in parallelism.offload:
        message = "offload of activations of a model with an encoder is not modelled"
        yield Problem(at("parallelism.offload"), message, "leave `activations` out; optimizer and weights are")


def two_sides_are_gathered_by_layer(model: Model, stack: Stack, at: Places) -> Iterator[Problem]:
    """Weights of both sides are gathered layer by layer, and gradients are reduced as they are."""
    if model.encoder_groups and (stack.unshard == "modules" or stack.reduction_buffer):
        message = f"{stack.title} gathers and reduces module by module: not modelled of a model with an encoder"
        yield Problem(at("stack"), message, "a stack that moves layers: `pytorch-fsdp2-2025`, `transformers-2025`")


def shared_results_are_rebuilt_whole(model: Model, recompute: Recompute, at: Places) -> Iterator[Problem]:
    """The first layer of a side with biases is another one than the rest, so that layers are not counted."""
    counted = recompute.policy in COUNTED and not (recompute.policy == "every" and recompute.every == 1)
    if counted and any(group.attention.relative_buckets for group in model.groups):
        message = "recompute counts layers, and the first of each side makes the biases of the others: not modelled"
        yield Problem(at("recompute"), message, "`full`, `selective`, or parts by name")


def encoders_are_trained(model: Model, serve: Serve | None, at: Places) -> Iterator[Problem]:
    """A cache of what an encoder gives, beside that of the decoder, is not modelled."""
    if serve and model.encoder_groups:
        message = "a model with an encoder keeps keys and values of its source beside those of its answer: not modelled"
        yield Problem(at("serve"), message, "`run:` for training; what serves here is a decoder alone")


# --- models that read images ---

# Fields of a model of text, by path.
OF_TEXT = {
    "vocab": "vocab",
    "max_seq_len": "max_seq_len",
    "embedding.tied": "tied",
    "embedding.scale": "scale_embedding",
    "embedding.multiplier": "embedding_multiplier",
    "embedding.types": "token_types",
    "head.transform": "head_transform",
    "head.softcap": "head_softcap",
    "head.scale": "head_scale",
    "multi_token.depth": "predictions",
}


def images_have_classes(model: Model, at: Places) -> Iterator[Problem]:
    """A model reads tokens and predicts tokens, or reads images and tells classes apart."""
    if model.image and not model.classes:
        message = "a model of images has no `head.classes`"
        yield Problem(at("model.image"), message, "`head: {classes: 1000, bias: true}`")
    if model.classes and not model.image:
        message = "`head.classes` are of a model of images, and this one reads tokens"
        yield Problem(at("model.head.classes"), message, "leave it out, or say what is read: `image:`")
    for path, name in OF_TEXT.items() if model.image else ():
        if getattr(model, name):
            message = f"`{path}` is of a model of text, and this one reads images"
            yield Problem(at(f"model.{path}"), message, f"leave `{path}` out")


def patches_fill_the_image(model: Model, at: Places) -> Iterator[Problem]:
    """Every pixel is in a patch."""
    for edge in ("height", "width") if model.image and model.image.patch else ():
        pixels, patch = getattr(model.image, edge), model.image.patch if model.image else 1
        if pixels % patch:
            message = f"patches of {patch} pixels do not fill a {edge} of {pixels}"
            help_text = f"`{edge}: {pixels // patch * patch}`" if pixels > patch else f"`patch: {pixels}`"
            yield Problem(at(f"model.image.{edge}"), message, help_text)


def class_token_sees_patches(model: Model, at: Places) -> Iterator[Problem]:
    """The class token stands first: under a causal mask it would see none of the patches."""
    for group in model.groups if model.image and not model.of_blocks else ():
        custom = group.attention.custom
        if custom.causal if custom else not group.attention.bidirectional:
            message = f"the class token is the first, and under the causal mask of `{group.name}` it sees no patch"
            where = at(f"model.layers.{group.name}.attention")
            yield Problem(where, message, "leave `mask` out" if custom else "`bidirectional: true`")


def sequences_are_images(model: Model, run: Run, at: Places) -> Iterator[Problem]:
    """A sequence has the tokens of one image, and each of them a position."""
    if model.image is None:
        if run.images is not None:
            message = "`run.images` is of a model of images, and this one reads tokens"
            yield Problem(at("run.images"), message, "`tokens: 1T tokens`")
        return
    tokens, said = model.image.tokens, f"{model.image.patches} patches and the class token of an image"
    if not model.image.patch:
        said = "an image that a stem reads"
    if run.seq_len != tokens:
        message = f"seq_len = {run.seq_len}, but {said} counts as {tokens} token{'s' * (tokens > 1)}"
        yield Problem(at("run.seq_len"), message, "leave `seq_len` out: it follows from `model.image`")
    if model.learned_positions not in (0, tokens):
        message = f"{model.learned_positions} learned positions, but {said} are {tokens} tokens"
        yield Problem(at("model.embedding.learned_positions"), message, f"`learned_positions: {tokens}`")
    if "run.tokens" in at.origins and run.images is not None:
        message = "both `tokens` and `images` say how long the run is"
        yield Problem(at("run.tokens"), message, "leave `tokens` out: each image is a sequence")


def images_are_whole(model: Model, parallelism: Parallelism, at: Places) -> Iterator[Problem]:
    """Each device has whole images, and a classifier of all classes."""
    for axis in ("tensor", "context") if model.image else ():
        if getattr(parallelism, axis) > 1:
            message = f"{axis} = {getattr(parallelism, axis)} is not modelled of a model of images"
            yield Problem(at(f"parallelism.{axis}"), message, f"`{axis}: 1`; data, ZeRO and pipeline are")


def classes_have_one_row(model: Model, kernels: Kernels, at: Places) -> Iterator[Problem]:
    """Scores of classes are one row an image: there is no sequence of them to take part by part."""
    if model.image and kernels.loss in CHUNKED_LOSSES:
        message = f"a {kernels.loss} loss goes along a sequence, and an image has one row of scores"
        yield Problem(at("kernels.loss"), message, "`kernels: {loss: eager}`")
