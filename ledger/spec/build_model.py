"""A validated document -> a model."""

from __future__ import annotations

from fractions import Fraction

from ledger.spec.plan import MLP, Attention, Group, Model, Norm
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
        norm=Norm(norm.text("kind", "rms"), norm.flag("bias"), norm.flag("unit_offset")),
        tied=embedding.flag("tied"),
        learned_positions=embedding.size("learned_positions"),
        scale_embedding=embedding.flag("scale"),
        head_bias=head.flag("bias"),
        head_softcap=head.number("softcap"),
        embedding_dropout=share(embedding, "dropout"),
        residual_dropout=share(view, "residual_dropout"),
        max_seq_len=view.size("max_seq_len"),
        alternating=view.flag("alternating"),
    )


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
    return Attention(
        heads=view.size("heads"),
        kv_heads=view.size("kv_heads", view.size("heads")),
        head_dim=view.size("head_dim"),
        qkv_bias=view.flag("qkv_bias"),
        out_bias=view.flag("out_bias"),
        fused_qkv=view.flag("fused_qkv"),
        rotary=share(view, "rotary"),
        window=view.maybe_size("window"),
        softcap=view.number("softcap"),
        dropout=share(view, "dropout"),
        softmax=view.text("softmax", "fp32"),
        kind=view.text("kind", "grouped_query"),
    )


def mlp(view: View) -> MLP:
    """A plain or gated MLP."""
    return MLP(view.size("d_ff"), view.text("kind"), view.text("activation"), view.flag("bias"))


def share(view: View, key: str) -> Fraction:
    """A share between 0 and 1, as the decimal that was written."""
    return view.exact(key, "1")
