"""A validated document -> a model."""

from __future__ import annotations

from fractions import Fraction

from ledger.spec.architecture import STEPS
from ledger.spec.plan import MLP, Attention, Custom, Group, Model, Norm, Router, Shared, Step
from ledger.spec.view import View


def model(view: View, name: str) -> Model:
    """A decoder from its sizes, or a bare parameter count."""
    if view.has("parameters"):
        return Model(name=name, title=view.text("model", name), parameters=view.whole("parameters", "parameters"))
    embedding, norm, head = view.inner("embedding"), view.inner("norm"), view.inner("head")
    return Model(
        name=name,
        title=view.text("model", name),
        d_model=view.size("d_model"),
        vocab=view.size("vocab"),
        groups=tuple(group(entry) for entry in view.each("layers")),
        norm=Norm(norm.text("kind", "rms"), norm.flag("bias"), norm.flag("unit_offset"), norm.flag("wide")),
        tied=embedding.flag("tied"),
        learned_positions=embedding.size("learned_positions"),
        scale_embedding=embedding.flag("scale"),
        head_bias=head.flag("bias"),
        head_softcap=head.number("softcap"),
        embedding_dropout=share(embedding, "dropout"),
        residual_dropout=share(view, "residual_dropout"),
        max_seq_len=view.size("max_seq_len"),
        order=order(view),
        predictions=view.inner("multi_token").size("depth"),
    )


def order(view: View) -> tuple[str, ...]:
    """The pattern in which groups take turns: `5 local` stands for five layers of `local`."""
    if view.flag("alternating"):
        return tuple(entry.text("group") for entry in view.each("layers"))
    counted = [entry.rpartition(" ") for entry in view.words("order")]
    return tuple(name for count, _, name in counted for _ in range(int(count or 1)))


def group(view: View) -> Group:
    """A group of equal layers."""
    return Group(
        name=view.text("group"),
        repeat=view.size("repeat"),
        attention=attention(view.inner("attention")),
        mlp=mlp(view.inner("mlp")),
        norms=view.text("norms", "pre"),
        residual=view.text("residual", "sequential"),
    )


def attention(view: View) -> Attention:
    """Attention; as many key and value heads as query heads where nothing else is said."""
    kind, nope, rope = view.text("kind", "grouped_query"), view.size("nope_head_dim"), view.size("rope_head_dim")
    return Attention(
        heads=view.size("heads"),
        kv_heads=view.size("kv_heads", view.size("heads")),
        head_dim=view.size("head_dim", nope + rope),
        qkv_bias=view.flag("qkv_bias"),
        out_bias=view.flag("out_bias"),
        fused_qkv=view.flag("fused_qkv"),
        rotary=share(view, "rotary"),
        window=view.maybe_size("window"),
        softcap=view.number("softcap"),
        dropout=share(view, "dropout"),
        softmax=view.text("softmax", "fp32"),
        kind=kind,
        q_rank=view.size("q_rank"),
        kv_rank=view.size("kv_rank"),
        nope_head_dim=nope,
        rope_head_dim=rope,
        v_head_dim=view.size("v_head_dim"),
        rotary_form=view.text("rotary_form", "pairs" if kind == "latent" else "halves"),
        rotary_base=view.size("rotary_base"),
        qk_norm=view.text("qk_norm", "none"),
        chunk=view.maybe_size("chunk"),
        sinks=view.flag("sinks"),
        temperature=view.flag("temperature"),
    )


def mlp(view: View) -> MLP:
    """A plain or gated MLP, or experts."""
    router, shared = view.inner("router"), view.inner("shared")
    return MLP(
        d_ff=view.size("d_ff"),
        kind=view.text("kind"),
        activation=view.text("activation"),
        bias=view.flag("bias"),
        experts=view.size("experts"),
        top_k=view.size("top_k"),
        router=Router(
            scores=router.text("scores", "softmax"),
            normalize=router.flag("normalize"),
            dtype=router.text("dtype", "compute"),
            weights=router.text("weights", "fp32"),
            bias=router.flag("bias"),
            groups=router.size("groups", 1),
            scales=router.text("scales", "output"),
            auxiliary_loss=router.flag("auxiliary_loss"),
        ),
        shared=None
        if not view.has("shared")
        else Shared(shared.size("d_ff"), shared.size("count", 1), shared.flag("gated")),
        capacity_factor=view.exact("capacity_factor", "1") or None,
        custom=custom(view) if view.has("steps") else None,
    )


def custom(view: View) -> Custom:
    """A component from its dims, weights and steps; a step is from the one before where it does not say."""
    dims, weights, split = view.inner("dims"), view.inner("weights"), view.inner("split")
    steps: list[Step] = []
    for entry in view.each("steps"):
        kind = next((kind for kind in STEPS if entry.has(kind)), "")
        before = (steps[-1].name if steps else "x",)
        named = entry.words(kind) if kind in ("multiply", "add") else entry.words("of")
        name = entry.text("name", f"{kind}_{len(steps) + 1}")
        text = {key: entry.text(key) for key in ("einsum", "weight", "bias", "activation")}
        steps.append(Step(name, kind, tuple(named) or before, **text))
    return Custom(
        dims=tuple((name, dims.size(name)) for name in dims.node.fields),
        weights=tuple((name, tuple(weights.text(name).split())) for name in weights.node.fields),
        steps=tuple(steps),
        split=tuple((axis, tuple(split.words(axis))) for axis in split.node.fields),
    )


def share(view: View, key: str) -> Fraction:
    """A share between 0 and 1, as the decimal that was written."""
    return view.exact(key, "1")
