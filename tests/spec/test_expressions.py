from __future__ import annotations

import ast
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.spec.expressions import ExpressionError, evaluate
from ledger.spec.kinds import schema
from ledger.spec.load import size_names
from tests.spec.shelf import loaded, problems

SIZES = {"d_model": 4096, "heads": 32}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4 * d_model", 16384),
        ("d_model / heads", 128),
        ("(8 * d_model // 3 + 255) // 256 * 256", 11008),  # Llama's d_ff: 8/3 d_model, rounded up to 256 (Touvron 2023)
        ("2**10 - 1", 1023),
        ("-d_model + 2 * d_model", 4096),
    ],
)
def test_sizes_are_exact_arithmetic(text: str, value: int) -> None:
    """Expressions over named sizes give the whole number that arithmetic gives."""
    assert evaluate(text, SIZES.__getitem__) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "d_model.bit_length()",
        "[d_model][0]",
        "d_model if heads else 1",
        "lambda: 1",
        "'a' * 3",
        "1.5",
        "True",
        "f'{d_model}'",
        "(x := 3)",
        "2 ** 2 ** 99",
        "0 * (((1 / 10 ** 20) ** 64) ** 64) ** 64",
        "((1 / 10 ** 24) ** 64) ** 64",
        "9 ** 65",
        "2 ** -1",
        "1 / 0",
        "d_model / 3",
        "1 << 80",
        "d_model; heads",
        "(" * 150 + "1" + ")" * 150,
        "1 + " * 60 + "1",
        "",
    ],
)
def test_nothing_but_arithmetic_is_evaluated(text: str) -> None:
    """A spec cannot call, index, import, or keep the machine busy: everything else is a problem."""
    with pytest.raises(ExpressionError):
        evaluate(text, SIZES.__getitem__)


@given(st.text(max_size=60))
def test_any_text_is_a_size_or_a_problem(text: str) -> None:
    """No text makes the evaluator fail in a way of its own."""
    with suppress(ExpressionError):
        assert isinstance(evaluate(text, SIZES.__getitem__), int)


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.sampled_from("+-*"))
def test_expressions_agree_with_python(left: int, right: int, operator: str) -> None:
    """The whitelist changes what may be written, never what it means."""
    text = f"({left} {operator} {right}) * 3"
    assert evaluate(text, SIZES.__getitem__) == eval(compile(ast.parse(text, mode="eval"), "", "eval"))  # noqa: S307


def test_a_size_may_name_the_sizes_around_it() -> None:
    """`head_dim: d_model / heads` and `d_ff: 4 * d_model` read the model's sizes, the nearest first."""
    group = loaded().model.groups[0]
    assert (group.attention.head_dim, group.mlp.d_ff) == (512 // 8, 4 * 512)


def test_the_batch_may_name_the_mesh() -> None:
    """A run's sizes may be given in degrees of the mesh, as `8 * data`."""
    assert loaded("run.global_batch=4 * data * micro_batch").run.global_batch == 4 * 4 * 2


def test_a_size_that_needs_itself_is_a_problem() -> None:
    """Two sizes that are defined by each other are told so, not followed for ever."""
    found = problems("model.d_model=vocab", "model.vocab=d_model")
    assert any("is defined by itself" in problem.message for problem in found)


def test_the_schemas_say_which_fields_are_sizes() -> None:
    """Expressions are allowed where the schemas have a size, and nowhere else."""
    assert {"d_model", "d_ff", "heads", "seq_len", "tensor", "devices"} <= size_names()
    assert not {"what", "kind", "title", "zero"} & size_names()
    assert schema("model")["properties"]["d_model"]["type"] == ["integer", "string"]
