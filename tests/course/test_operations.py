"""Operations of questions: products without sums, elementwise steps, mixed formats, inputs of convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ledger.course.answer import answers
from ledger.course.answers import AnswerContent
from ledger.course.lecture import load_lecture
from ledger.spec.problems import SpecError
from ledger.spec.quantity_expressions import Value

HEAD = "spec: ledger/1\nlecture: A lecture\nsource: a course\n"
QUESTION = "questions:\n  - {id: a, asks: What is it?, operation: {steps: [%s], sizes: {%s}%s}}\n"


def answered(folder: Path, steps: str, sizes: str, more: str = "") -> AnswerContent:
    """The answer to a question on steps."""
    path = folder / "mine.yaml"
    path.write_text(HEAD + QUESTION % (steps, sizes, more and f", {more}"), encoding="utf-8")
    (answer,) = answers(load_lecture(path))
    return answer.found


def figures(folder: Path, steps: str, sizes: str, more: str = "") -> Mapping[str, Value]:
    """Its figures by name."""
    return {figure.name: figure.value for figure in answered(folder, steps, sizes, more).figures}


# --- a step alone may have a name -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "sizes"),
    [
        ('einsum: "B D, D K -> B K"', "B: 19, D: 23, K: 29"),
        ('einsum: "s d, d r, r o -> s o"', "s: 19, d: 23, r: 2, o: 29"),
        ('reduce: "m n -> m", by: max', "m: 19, n: 23"),
        ('rearrange: "m n -> n m"', "m: 19, n: 23"),
        ('einsum: "n (2*h+r-1) c, r c k -> n h k"', "n: 2, h: 7, c: 3, k: 5, r: 3"),
        ("over: m n", "m: 19, n: 23"),
        ("activation: silu, over: n", "n: 23"),
    ],
)
def test_a_name_changes_nothing_of_a_lone_step(tmp_path: Path, step: str, sizes: str) -> None:
    """Every kind of step is answered alike with a name and without one."""
    named, plain = (answered(tmp_path, f"{{{name}{step}}}", sizes) for name in ("name: linear, ", ""))
    assert named.figures == plain.figures
    assert named.grid == plain.grid


# --- products that sum nothing, and operands that are read ---------------------------------------


@pytest.mark.parametrize(
    ("einsum", "sizes", "forward", "backward", "elements"),
    [
        ("m n, m n -> m n", "m: 19, n: 23", 19 * 23, 2 * 19 * 23, 3 * 19 * 23),
        ("i, j -> i j", "i: 19, j: 23", 19 * 23, 4 * 19 * 23, 19 + 23 + 19 * 23),  # two products, and their sums
        ("m n, n -> m n", "m: 19, n: 23", 19 * 23, 3 * 19 * 23, 2 * 19 * 23 + 23),
        ("m n, m n, m n -> m n", "m: 19, n: 23", 2 * 19 * 23, 4 * 19 * 23, 6 * 19 * 23),
        ("m k, n -> m n", "m: 3, n: 5, k: 7", 3 * 7 + 3 * 5, 4 * 3 * 5, 3 * 7 + 3 + 3 + 5 + 3 * 5),
        ("m k, k n -> m n", "m: 3, n: 5, k: 7", 2 * 3 * 5 * 7, 4 * 3 * 5 * 7, 3 * 7 + 7 * 5 + 3 * 5),
    ],
)
def test_a_product_without_a_sum_has_one_flop_an_element(
    tmp_path: Path, einsum: str, sizes: str, forward: int, backward: int, elements: int
) -> None:
    """A multiplication for each element, to which nothing is added; each operand is read, the result written."""
    found = figures(tmp_path, f'{{einsum: "{einsum}", right: activation}}', sizes)
    assert (found["forward"], found["backward"], found["bytes"]) == (forward, backward, 2 * elements)


@pytest.mark.parametrize("einsum", ["m k, n -> m n", "a b, b c, a c -> a c", "i, j, k -> i j k", "a b, c -> a c b"])
def test_the_best_order_takes_what_is_counted(tmp_path: Path, einsum: str) -> None:
    """The first row of the table of orders, and no later one, is what the answer counts."""
    sizes = {name: size for name, size in zip("abcijkmn", (2, 3, 5, 7, 11, 13, 17, 19), strict=True) if name in einsum}
    content = answered(tmp_path, f'{{einsum: "{einsum}"}}', ", ".join(f"{k}: {v}" for k, v in sizes.items()))
    if content.grid is None:  # of two operands there is one order
        return
    counted = [row[1] for row in content.grid.rows]
    assert next(figure.value for figure in content.figures if figure.name == "forward") == min(counted) == counted[0]  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("step", "elements"),
    [
        ("name: residual add, over: m n", 3 * 19 * 23),
        ("name: Add_bias_and_gate, over: m n", 3 * 19 * 23),
        ("name: x + y, over: m n", 3 * 19 * 23),
        ("name: q-norm, over: m n", 2 * 19 * 23),
        ("name: x * 2, over: m n", 2 * 19 * 23),
        ("name: address, over: m n", 2 * 19 * 23),
        ('name: gate, over: "m n, m n"', 3 * 19 * 23),
        ('name: bias add, over: "m n, n"', 2 * 19 * 23 + 23),
        ('name: where, over: "m n, m n, m n"', 4 * 19 * 23),
        ("name: relu, over: m n", 2 * 19 * 23),
        ("name: padding, over: m n", 2 * 19 * 23),
    ],
)
@pytest.mark.parametrize(("dtype", "size"), [("bf16", 2), ("fp32", 4)])
def test_each_operand_of_an_elementwise_step_is_read(
    tmp_path: Path, step: str, elements: int, dtype: str, size: int
) -> None:
    """x + y reads both and writes the sum: 6 bytes an element in bf16, for one FLOP."""
    found = figures(tmp_path, f"{{{step}}}", "m: 19, n: 23", f"dtype: {dtype}")
    assert found["bytes"] == size * elements
    assert found["forward"] == 19 * 23


# --- both passes count the same steps -------------------------------------------------------------


def test_backward_counts_elementwise_steps_too(tmp_path: Path) -> None:
    """Of two layers with a ReLU between: twice each step, but for the gradient of what is data."""
    steps = '{einsum: "b d, d f -> b f"}, {name: relu, over: b f}, {einsum: "b f, f d -> b d"}'
    found = figures(tmp_path, steps, "b: 5, d: 7, f: 11")
    assert found["forward"] == 2 * 2 * 5 * 7 * 11 + 5 * 11
    assert found["backward"] == 2 * (2 * 2 * 5 * 7 * 11 + 5 * 11)
    assert found["backward_of_data"] == 2 * (2 * 2 * 5 * 7 * 11 + 5 * 11) - 2 * 5 * 7 * 11


def test_what_follows_from_data_alone_needs_no_gradient(tmp_path: Path) -> None:
    """A ReLU of data, before the first weight, is not gone through again; that weight's gradient is computed."""
    found = figures(tmp_path, '{name: relu, over: b d}, {einsum: "b d, d f -> b f"}', "b: 5, d: 7, f: 11")
    assert found["backward"] == 2 * 5 * 7 + 2 * 2 * 5 * 7 * 11
    assert found["backward_of_data"] == 2 * 5 * 7 * 11


@pytest.mark.parametrize("reduction", ["{over: s t, into: s}", '{reduce: "s t -> s"}', '{einsum: "s t -> s"}'])
def test_a_sum_of_so_many_terms_has_one_addition_less(tmp_path: Path, reduction: str) -> None:
    """A softmax written out, exactly; the gradient of its sum is seen again along the row, without arithmetic."""
    steps = f"{{name: exponential, over: s t}}, {reduction}, {{name: division, over: s t}}"
    found = figures(tmp_path, steps, "s: 50, t: 31")
    assert found["forward"] == 3 * 50 * 31
    assert found["exact"] == 3 * 50 * 31 - 50
    assert found["backward"] == 2 * 2 * 50 * 31


def test_a_mean_divides_once(tmp_path: Path) -> None:
    """n - 1 additions and a division; backward divides the upstream gradient and sees it again."""
    found = figures(tmp_path, '{reduce: "a b -> a", by: mean}', "a: 5, b: 7")
    assert (found["exact"], found["backward"]) == (5 * 7, 5)


# --- formats of operands and results --------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtypes", "bytes_of_n2", "multiplied", "peak"),
    [
        ("fp8_e4m3, fp8_e4m3, bf16", 4, "fp8_e4m3", 1979e12),
        ("fp8_e4m3, fp8_e5m2, fp32", 6, "fp8_e5m2", 1979e12),
        ("bf16, int8, bf16", 5, "bf16", 989.5e12),
        ("bf16, bf16, fp32", 8, "bf16", 989.5e12),
    ],
)
def test_each_tensor_has_its_format(
    tmp_path: Path, dtypes: str, bytes_of_n2: int, multiplied: str, peak: float
) -> None:
    """A square product of fp8 with a bf16 result: 2 n^3 FLOPs over 4 n^2 bytes; the wider operand sets the rate."""
    step = f'{{einsum: "n k, k m -> n m", dtypes: [{dtypes}]}}'
    found = figures(tmp_path, step, "n: 512, k: n, m: n", "accelerator: h100-sxm")
    assert found["bytes"] == bytes_of_n2 * 512**2
    assert found["intensity"] * bytes_of_n2 == 2 * 512  # type: ignore[operator]
    assert found["ridge"] == pytest.approx(peak / 3.35e12), multiplied


def test_a_cast_reads_one_format_and_writes_another(tmp_path: Path) -> None:
    """Elementwise steps, sums and copies have formats too; a rearrangement that converts is no view."""
    steps = (
        "{over: n, flops: 0, dtypes: [fp32, bf16]}, "
        '{rearrange: "n -> n", dtypes: [bf16, fp8_e4m3]}, {reduce: "n -> ", dtypes: [fp8_e4m3, fp32]}'
    )
    assert figures(tmp_path, steps, "n: 512")["bytes"] == (4 + 2 + 2 + 1 + 1) * 512 + 4


# --- the size of an input -------------------------------------------------------------------------

CONVOLUTION = '{einsum: "n (2*h+r-1) (2*w+s-1) c, r s c k -> n h w k"}'
LEAST, STATED = 223, 224


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        ("h: 112, w: h", LEAST),
        ('"(2*h+r-1)": 224, "(2*w+s-1)": 224', STATED),
        ('"(2*h+r-1)": 224, w: h', STATED),
        ('"(2*h+r-1)": 224, "(2*w+s-1)": "(2*h+r-1)"', STATED),
        ('"2*h + r - 1": 224, "2*w+s-1": 224, h: 112, w: h', STATED),
    ],
)
def test_an_input_is_as_large_as_it_is_said_to_be(tmp_path: Path, sizes: str, side: int) -> None:
    """3 x 3 with stride 2 over 224 pixels makes 112, and the input has 224 pixels, though 223 would do."""
    found = figures(tmp_path, CONVOLUTION, f"n: 1, c: 3, k: 64, r: 3, s: r, {sizes}", "dtype: fp32")
    assert found["forward"] == 2 * 112**2 * 64 * 27
    assert found["bytes"] == 4 * (side**2 * 3 + 27 * 64 + 112**2 * 64)


@pytest.mark.parametrize(
    ("steps", "sizes", "said"),
    [
        (CONVOLUTION, '"(2*h+r-1)": 224, h: 100, w: 100, n: 1, c: 3, k: 2, r: 3, s: r', "over 224 places are 112"),
        (CONVOLUTION, '"(2*h+r-2)": 224, h: 112, w: h, n: 1, c: 3, k: 2, r: 3, s: r', "is the size of no dim"),
        (CONVOLUTION, '"(2*h+r-1)": 1, w: 2, n: 1, c: 3, k: 2, r: 5, s: r', "less than a window"),
        (CONVOLUTION, '"(2*h+r-1)": 224, w: 112, n: 1, c: 3, k: 2, s: 3', "`r` has no size"),
        ('{einsum: "n k, k m -> n m", dtypes: [bf16, bf16]}', "n: 2, k: 3, m: 5", "2 dtypes, and there are 3 tensors"),
        ("{activation: silu, over: n, dtypes: [bf16, fp32]}", "n: 2", "an activation has one format"),
        ('{over: "m n, k", into: m}', "m: 2, n: 3, k: 5", "no operand has all of `m n k`"),
    ],
)
def test_what_contradicts_itself_is_told_in_its_place(tmp_path: Path, steps: str, sizes: str, said: str) -> None:
    """Sizes that windows cannot have, formats of too few tensors, sums over dims that no operand has together."""
    with pytest.raises(SpecError) as caught:
        answered(tmp_path, steps, sizes)
    told = "\n".join(str(problem) for problem in caught.value.problems)
    assert said in told
    assert "mine.yaml:5" in told
