"""Lectures as specs: what may be written, and how it is refused."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import jsonschema
import pytest

from ledger.course import asks
from ledger.course.answer import answers
from ledger.course.answers import last_digit
from ledger.course.lecture import is_lecture, load_lecture
from ledger.course.questions import FORMS, LECTURE, SUBJECTS
from ledger.course.report import html, markdown, page
from ledger.model.dtypes import BLOCKS, DTYPES
from ledger.spec.kinds import json_schema
from ledger.spec.load import load_plan
from ledger.spec.problems import SpecError
from ledger.spec.quantities import parse_any
from ledger.spec.reader import read

ROOT = Path(__file__).resolve().parents[2]
HEAD = "spec: ledger/1\nlecture: A lecture\nsource: a course\n"
QUESTION = """questions:
  - id: size
    asks: How large is it?
    tensor: {shape: {rows: 3, columns: 5}, dtype: bf16}
"""


def written(folder: Path, text: str) -> Path:
    """A lecture in a file."""
    path = folder / "mine.yaml"
    path.write_text(HEAD + text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> str:
    """What is said about a lecture that cannot be read."""
    with pytest.raises(SpecError) as caught:
        load_lecture(written(folder, text))
    return "\n".join(f"{problem} {problem.help}" for problem in caught.value.problems)


def test_a_question_becomes_a_record(tmp_path: Path) -> None:
    """What is asked for is read into its kind's record; the source of the chapter is that of its questions."""
    (chapter,) = load_lecture(written(tmp_path, QUESTION)).chapters
    (question,) = chapter.questions
    assert question.about.records == {"tensor": asks.TensorAsk({"rows": 3, "columns": 5}, "bf16")}
    assert question.source == "a course"


def test_formulas_are_expectations_too(tmp_path: Path) -> None:
    """`is` is evaluated exactly over the numbers of `with`."""
    text = QUESTION + "    with: {rows: 3, columns: 5, share: 0.5}\n    is: {bytes: rows * columns / share}\n"
    (expected,) = load_lecture(written(tmp_path, text)).chapters[0].questions[0].expected
    assert expected.figure == "bytes"
    assert expected.value == 30


@pytest.mark.parametrize(
    ("text", "worth"),
    [("24", 0), ("56 GB", 0), ("53.333e9", 10**6), ("143.927", Fraction(1, 1000)), ("1.12 TB", 10**10), ("fp16", 0)],
)
def test_a_number_holds_to_its_last_digit(text: str, worth: Fraction) -> None:
    """Decimals say how exact a printed value is; a number without any is exact."""
    assert last_digit(text) == worth


def test_a_question_asks_for_one_thing(tmp_path: Path) -> None:
    """Nothing asked, and two things asked, are both told with what there is to ask for."""
    nothing = "questions:\n  - {id: a, asks: What is it?}\n"
    assert "`a` asks for nothing" in refused(tmp_path, nothing)
    assert "`size` asks for tensor and dtype" in refused(tmp_path, QUESTION + "    dtype: {name: fp16}\n")


def test_a_name_that_a_formula_lacks_is_told_with_its_place(tmp_path: Path) -> None:
    """The line is that of the formula, and near names are offered."""
    said = refused(tmp_path, QUESTION + "    with: {rows: 3}\n    is: {bytes: 2 * row}\n")
    assert "mine.yaml:9" in said
    assert "`rows`" in said


def test_an_unknown_plan_is_told_where_it_is_named(tmp_path: Path) -> None:
    """A question about a plan that does not exist points into the lecture."""
    said = refused(tmp_path, "questions:\n  - {id: a, asks: What is it?, plan: plans/none.yaml, table: moments}\n")
    assert "mine.yaml:5" in said
    assert "no such file" in said


def test_unknown_fields_are_refused(tmp_path: Path) -> None:
    """A misspelt field is not read past."""
    assert "`printd`" in refused(tmp_path, QUESTION + "    printd: 3\n")


def test_every_kind_of_question_is_in_the_schema() -> None:
    """Editors know each kind that the reader knows, and have nothing against the lectures of the library."""
    schema = json_schema(LECTURE)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert {*SUBJECTS, *FORMS} <= set(schema["properties"]["questions"]["items"]["properties"])
    for path in (ROOT / "specs" / "lecture").glob("*.yaml"):
        jsonschema.validate(read(path.read_text("utf-8"), path.name).plain(), schema)


def test_lectures_are_told_from_plans() -> None:
    """A plan is no lecture, nor is standard input, nor what is not there."""
    assert is_lecture(str(ROOT / "specs" / "lecture" / "run.yaml"))
    assert is_lecture("lecture")
    assert not is_lecture(str(ROOT / "specs" / "70b.yaml"))
    assert not is_lecture("-")
    assert not is_lecture("nowhere.yaml")


def test_a_chapter_stands_alone() -> None:
    """Each file of questions can be answered without the book that lists it."""
    chapters = load_lecture(ROOT / "specs" / "lecture" / "lecture.yaml").chapters
    alone = load_lecture(ROOT / "specs" / "lecture" / "flops.yaml").chapters
    assert next(chapter for chapter in chapters if chapter.name == "flops").title == alone[0].title


# --- operations and tensors that are none ---------------------------------------------------------

STEP = "questions:\n  - {id: a, asks: What is it?, operation: {steps: [%s], sizes: {%s}}}\n"


@pytest.mark.parametrize(
    ("step", "sizes", "said"),
    [
        ('{einsum: "a b, b c"}', "a: 2, b: 3, c: 5", "has no `->`"),
        ('{einsum: "a b -> b -> a"}', "a: 2, b: 3", "more than one `->`"),
        ('{einsum: "a b, b c -> a d"}', "a: 2, b: 3, c: 5", "`d` is in the result and in no operand"),
        ('{einsum: "a b, b c -> a c"}', "a: 2, b: 3", "`c` has no size"),
        ('{einsum: "a b, b c -> a c"}', "a: b, b: a, c: 2", "`a` has the size of itself"),
        ('{einsum: "a b, b c -> a c"}', "a: q, b: 3, c: 2", "`q` has no size"),
        ('{einsum: "a b, b c -> a c"}', "a: 2, b: 0, c: 2", "sizes.b"),
        (
            '{einsum: "a b, b c -> a c"}',
            "a: 2, b: 3, c: 5, z: 7",
            "sizes.z` is the size of no dim",
        ),
        ('{einsum: "i i -> i"}', "i: 3", "`i` stands twice"),
        ('{einsum: "a b, b c -> a+c"}', "a: 2, b: 3, c: 5", "is no name of a dim"),
        ('{einsum: "a (b c -> a b c"}', "a: 2, b: 3, c: 5", "a parenthesis that does not end"),
        ('{einsum: "(a b), b c -> a c"}', "a: 2, b: 3, c: 5", "merges dims"),
        ('{einsum: "... b, b c -> ... c"}', "b: 3, c: 5", "`...` stands for no dims"),
        ('{rearrange: "a b -> a"}', "a: 2, b: 3", "`b` is gone in the result"),
        ('{reduce: "a b, b -> a"}', "a: 2, b: 3", "this has one operand"),
        ("{over: a b, into: c}", "a: 2, b: 3, c: 5", "`c` of the result is not among"),
        ("{name: nothing}", "a: 2", "has no operation"),
        ('{einsum: "a -> a", over: a}', "a: 2", "has einsum and over"),
        ("", "a: 2", "is empty"),
    ],
)
def test_what_is_no_operation_is_told_in_its_place(tmp_path: Path, step: str, sizes: str, said: str) -> None:
    """Every odd einsum is a problem with a line and a column, none a failure of ours."""
    told = refused(tmp_path, STEP % (step, sizes))
    assert said in told
    assert re.search(r"mine\.yaml:5:\d+", told)


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ("{transpose: [rows, depth]}", "no dim `depth`"),
        ("{permute: [rows]}", "`rows` is no order of rows, columns"),
        ('{slice: {rows: "2:1"}}', "leaves nothing of the 3"),
        ("{slice: {rows: all}}", "`all` is no part of `rows`"),
        ("{select: {rows: 3}}", "`rows` has no index 3"),
        ("{expand: {rows: 9}}", "`rows` has 3 elements"),
        ("{view: {all: 14}}", "14 are not the tensor's 15 elements"),
        ("{transpose: [rows, columns]}, {view: {all: 15}}", "these strides allow no view"),
        ("{to: fp7}", "`fp7` is neither a dtype nor `device`"),
        ("{contiguous: true, clone: true}", "contiguous` and `clone"),
    ],
)
def test_what_a_tensor_does_not_allow_is_told_in_its_place(tmp_path: Path, moves: str, said: str) -> None:
    """A move that PyTorch would refuse is refused here, where it is written."""
    tensor = f"{{shape: {{rows: 3, columns: 5}}, dtype: fp32, moves: [{moves}]}}"
    told = refused(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, tensor: {tensor}}}\n")
    assert said in told
    assert "mine.yaml:5" in told


def test_an_element_is_one_of_the_tensor(tmp_path: Path) -> None:
    """An index past the end, and one of a dim that is not there, are no places in memory."""
    tensor = "{shape: {rows: 3, columns: 5}, dtype: fp32, element: {%s}}"
    for element, said in (("rows: 3", "is 3, and there are 3"), ("depth: 0", "is no dim of the tensor")):
        text = f"questions:\n  - {{id: a, asks: What is it?, tensor: {tensor % element}}}\n"
        assert said in refused(tmp_path, text)


# --- figures -------------------------------------------------------------------------------------


def unanswered(folder: Path, text: str) -> str:
    """What is said about a lecture whose questions have no answer."""
    with pytest.raises(SpecError) as caught:
        list(answers(load_lecture(written(folder, text))))
    return "\n".join(f"{problem} {problem.help}" for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ("memory.peek", "did you mean `memory.peak`"),
        ("memory.peak + time.step", "holds B against s"),
        ("memory.peak / 0", "divides by zero"),
        ("memory.peak ** 0.5", "an exponent that is not a whole number"),
        ("accelerator.title + 1", "is no number"),
        ("open('x')", "there is no `open`"),
        ("(1).real", "is no name"),
        ("forward('decoder/none')", "no product of matrices"),
        ("9**64 * 9**64", "is beyond reason"),
        ("1 +", "is no expression"),
    ],
)
def test_a_figure_without_a_value_is_told_where_it_stands(tmp_path: Path, figure: str, said: str) -> None:
    """Names, units and forms of expressions are held to what a plan has, with file, line and column."""
    text = f'questions:\n  - id: a\n    asks: What is it?\n    plan: gpt2\n    figures:\n      one: "{figure}"\n'
    told = unanswered(tmp_path, text)
    assert said in told
    assert "mine.yaml:9:12" in told


def test_every_question_without_an_answer_is_told_at_once(tmp_path: Path) -> None:
    """Two questions that have none are two problems, not the first of them."""
    operation = "{steps: [{over: n}], sizes: {n: 2}, dtype: %s, accelerator: a100-sxm-80gb}"
    one = f"  - {{id: %s, asks: What is it?, operation: {operation}}}\n"
    told = unanswered(tmp_path, "questions:\n" + one % ("a", "nvfp4") + one % ("b", "fp8_e4m3"))
    assert "mine.yaml:5" in told
    assert "mine.yaml:6" in told
    assert "does not multiply nvfp4" in told


FORMS_OF_A_PLAN = (
    "storage: {plan: %s, bandwidth: 10 GB/s}",
    "segments: {plan: %s}",
    "levels: {plan: %s, levels: {typical: []}}",
)


@pytest.mark.parametrize("form", FORMS_OF_A_PLAN)
@pytest.mark.parametrize("plan", ["gpt2", "mixtral-8x7b", "70b"])
def test_forms_of_questions_answer_for_any_plan(tmp_path: Path, form: str, plan: str) -> None:
    """One group of layers, experts, tensor parallelism, no failures stated: each has an answer."""
    question = f"questions:\n  - {{id: a, asks: What is it?, {form % plan}}}\n"
    (answer,) = answers(load_lecture(written(tmp_path, question)))
    assert answer.found.figures


@pytest.mark.parametrize("form", FORMS_OF_A_PLAN[1:])
def test_what_a_bare_count_of_parameters_cannot_say_is_told(tmp_path: Path, form: str) -> None:
    """A plan without a shape has no memory over a step: that is a problem in the place of the question."""
    plan = ROOT / "specs" / "lecture" / "plans" / "70b.yaml"
    (tmp_path / "bare.yaml").write_text(plan.read_text("utf-8"), encoding="utf-8")
    told = unanswered(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {form % 'bare.yaml'}}}\n")
    assert re.search(r"(mine|bare)\.yaml:\d+:\d+", told)


def test_a_budget_buys_tokens_of_a_plan_too(tmp_path: Path) -> None:
    """Dollars over the price of a token, as the compiled plan has it; without a price of its own the library's."""
    budget = (
        "budget: {dollars: 1000 USD, mfu: 0.35, tokens_per_parameter: 20, precision: bf16-mixed, optimizer: adamw, "
        "offers: [{accelerator: l40s, price: 0.86 USD, date: 2026-01, source: own offer}], plans: [{plan: gpt2}]}"
    )
    (answer,) = answers(load_lecture(written(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {budget}}}\n")))
    found = {figure.name: figure.value for figure in answer.found.figures}
    assert found["best"] == "l40s"
    assert float(found["gpt2.tokens"]) / 124439808 == pytest.approx(float(found["gpt2.per_parameter"]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_has_bits_and_a_size(tmp_path: Path, dtype: str) -> None:
    """The bits that are drawn, and the scales beside them, are the bytes that the books hold a value in."""
    text = f"questions:\n  - {{id: a, asks: What is it?, dtype: {{name: {dtype}}}}}\n"
    (answer,) = answers(load_lecture(written(tmp_path, text)))
    assert answer.found.bits is not None
    bits = Fraction(sum(count for _, count in answer.found.bits.parts))
    block, scale = BLOCKS.get(dtype, (1, ""))
    stored = {"tf32": 32, "bool": 8, "e5m6": 12}.get(dtype, bits)  # 19 bits in a word of 32, and 1 in a byte
    assert Fraction(stored, 8) + (DTYPES[scale].size / block if scale else 0) == DTYPES[dtype].size


@pytest.mark.parametrize(
    ("tensor", "figures"),
    [
        ("{shape: {}, dtype: fp32}", {"bytes": 4}),
        (
            "{shape: {}, dtype: fp32, moves: [{view: {a: 1, b: 1}}, {view: {}}, {to: bf16}]}",
            {"bytes": 4, "new_bytes": 2},
        ),
        ("{shape: {a: 7, b: 5}, dtype: nvfp4}", {"bytes": 25, "values": 18, "scales": 7}),
        ("{shape: {a: 7, b: 5}, dtype: int4, copies: 2}", {"bytes": 36, "as_weight": 2 * (18 + 2 + 1)}),
        ("{shape: {a: 7, b: 5}, dtype: int8}", {"bytes": 35, "as_weight": 35 + 7 * 4}),
        ("{shape: {a: 7, b: 5}, dtype: mxfp8, element: {a: 1, b: 2}}", {"bytes": 42, "address": 7}),
        ("{shape: {a: 7, b: 5}, dtype: int4, element: {a: 1, b: 2}}", {"bytes": 18, "address": 3}),
    ],
)
def test_tensors_take_whole_bytes_and_blocks(tmp_path: Path, tensor: str, figures: dict[str, int]) -> None:
    """Scalars have one element; 35 values of 4 bits are 18 bytes; the last block is short and has a scale too."""
    text = f"questions:\n  - {{id: a, asks: What is it?, tensor: {tensor}}}\n"
    (answer,) = answers(load_lecture(written(tmp_path, text)))
    found = {figure.name: figure.value for figure in answer.found.figures}
    assert figures == {name: found[name] for name in figures}


def test_a_value_is_drawn_bit_by_bit(tmp_path: Path) -> None:
    """Each bit of 0.15625 in the picture, what each part stands for in the table, the error of rounding in figures."""
    text = "questions:\n  - {id: a, asks: What is it?, dtype: {name: fp16, value: 0.15625}}\n"
    lecture = load_lecture(written(tmp_path, text))
    (answer,) = answers(lecture)
    assert answer.found.bits is not None
    assert answer.found.bits.digits == "0011000100000000"
    assert answer.found.grid is not None
    assert [row[2] for row in answer.found.grid.rows] == ["+", "2^(12 - 15)", "1 + 256/1024"]
    drawn = html(page(lecture, [answer]), [answer]).decode()
    assert "0.15625 is stored as 2^(12 - 15) × (1 + 256/1024) = 0.15625, exactly" in drawn
    picture = drawn[drawn.index("Bits of fp16: ") :]
    assert len(re.findall(r"<text[^>]*>[01]</text>", picture)) % 16 == 0
    assert "2^(12 - 15)" in markdown(page(lecture, [answer]), [answer]).decode()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("dtype: {name: bf16, value: x}", "is no number that fp64 holds: `x`"),
        ("dtype: {name: e8m0, value: -1}", "cannot be stored in e8m0"),
        ("dtype: {name: bf16, value: 1, largest: 2}", "bf16 has no scales"),
        ("dtype: {name: nvfp4, value: -2, largest: 1}", "no less than the magnitude of `value`"),
        ("dtype: {name: mxfp4, value: 1, tensor_largest: 2}", "mxfp4 has no scale of a tensor"),
        (
            "dtype: {name: nvfp4, value: 1, largest: 3, tensor_largest: 2}",
            "no less than the magnitude of `value` and `largest`",
        ),
        ("operation: {steps: [{activation: silu, over: a}], sizes: {a: 2}, dtype: int8}", "is not computed in int8"),
        ("operation: {steps: [{activation: silu}], sizes: {a: 2}}", "has no operation"),
        ("plan: gpt2", "asks nothing of its plan"),
        ("plan: gpt2, figures: {a: memory.peak}, cases: {x: []}, against: y", "there is no case `y`"),
        ("plan: gpt2, figures: {a: memory.peak}, cases: {x: []}, curve: [a, b]", "not every case has a figure `b`"),
        ("plan: gpt2, figures: {a: memory.peak}, cases: {x: []}, most: b", "no case has a figure `b`"),
        ("plan: gpt2, figures: {a: memory.peak}, cases: {x: []}, then: {c: x.b}", "no case has `x.b`"),
        ("plan: gpt2, figures: {a: memory.peak}, cases: {x: [run.micro_batch=0]}", "must be at least 1"),
        ("plan: gpt2, cases: {x: [], y: []}, table: moments", "moments are those of one plan"),
        ("plan: gpt2, figures: {a: {is: memory.peak, unit: s}}", "`a` comes out in B, not in s"),
        ("plan: gpt2, find: {for: nothing}, figures: {a: found}", "`nothing` is nothing to solve for"),
        ("plan: gpt2, find: {for: run.seq_len, subject_to: [memory.peak <= 1 B]}, figures: {a: found}", "no value of"),
        ("totals: {plan: gpt2, totals: {a: memory.peak}}", "`plan:` and `figures: {name: total}`"),
    ],
)
def test_what_has_no_answer_is_told_in_its_place(tmp_path: Path, question: str, said: str) -> None:
    """Between fields that are sound by themselves too; what a lecture once said is told with what stands for it now."""
    told = unanswered(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {question}}}\n")
    assert said in told
    assert "mine.yaml:5" in told


def test_what_is_solved_for_is_what_the_plan_then_has(tmp_path: Path) -> None:
    """The largest micro-batch under a limit: its totals meet the limit, and are those of the plan with that batch."""
    find = "find: {for: run.micro_batch, subject_to: [memory.peak <= 40 GB]}"
    question = f"plan: gpt2, {find}, figures: {{a: found, b: memory.peak}}"
    (answer,) = answers(load_lecture(written(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {question}}}\n")))
    found, peak = (figure.value for figure in answer.found.figures)
    assert isinstance(found, int)
    again = f"plan: gpt2, set: [run.micro_batch={found}], figures: {{b: memory.peak}}"
    (same,) = answers(load_lecture(written(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {again}}}\n")))
    assert same.found.figures[0].value == peak
    assert float(peak) <= 40e9


# --- figures that a device, an optimizer or a plan does not have ---------------------------------


def figures_of(folder: Path, *questions: str) -> list[dict[str, object]]:
    """The figures of each question, by name; a plan that several are about is compiled once."""
    lines = [f"  - {{id: a{at}, asks: What is it?, {question}}}\n" for at, question in enumerate(questions)]
    answered = answers(load_lecture(written(folder, "".join(("questions:\n", *lines)))))
    return [{figure.name: figure.value for figure in answer.found.figures} for answer in answered]


@pytest.mark.parametrize("path", sorted((ROOT / "specs" / "accelerators").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_sparse_peak_is_the_one_that_the_file_states(tmp_path: Path, path: Path) -> None:
    """Of each format that a device multiplies: as its file has it, in no relation to the dense one, or none."""
    document = read(path.read_text("utf-8"), path.name).plain()
    formats = {"fp8": "fp8_e4m3", "fp4": "nvfp4"} | {dtype: dtype for dtype in DTYPES}
    rates = [rate for rate in document["peak"] if rate in formats]
    ridges = (f"ridge: {{accelerator: {path.stem}, dtype: {formats[rate]}}}" for rate in rates)
    for rate, figures in zip(rates, figures_of(tmp_path, *ridges), strict=True):
        stated = document.get("sparse_peak", {}).get(rate)
        assert figures.get("sparse") == (stated and parse_any(stated)[0]), rate


def test_a_format_that_a_device_lacks_is_told_in_its_words(tmp_path: Path) -> None:
    """The device, the format as it was written, and what there is; of ridges, offers and expressions alike."""
    budget = (
        "budget: {dollars: 10 USD, mfu: 0.3, tokens_per_parameter: 20, precision: bf16-mixed, optimizer: adamw, "
        "offers: [{accelerator: v100-sxm-16gb, price: 1 USD, date: 2026-05, source: own offer}]}"
    )
    for question, dtype in (
        ("ridge: {accelerator: v100-sxm-16gb, dtype: bf16}", "bf16"),
        ("ridge: {accelerator: v100-sxm-16gb, dtype: fp8_e4m3}", "fp8_e4m3"),
        ("accelerator: v100-sxm-16gb, figures: {a: 2 * accelerator.peak.tf32}", "tf32"),
        (budget, "bf16"),
    ):
        told = unanswered(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {question}}}\n")
        assert f"V100 SXM2 16 GB has no {dtype}; it has fp16, fp32" in told
        assert "mine.yaml:5" in told


@pytest.mark.parametrize("optimizer", ["adafactor", "came", "adam-mini"])
@pytest.mark.parametrize(
    "question",
    [
        "state: {precision: fp32, optimizer: %s, parameters: 1e9}",
        "state: {precision: bf16-mixed, optimizer: %s}",
        "solve: {for: parameters, precision: fp32, optimizer: %s, devices: 8, accelerator: h100-sxm}",
    ],
)
def test_states_by_rows_and_columns_need_shapes(tmp_path: Path, question: str, optimizer: str) -> None:
    """A count of parameters has no rows: that is said, with the question that has them, and no 0 B is printed."""
    told = unanswered(tmp_path, f"questions:\n  - {{id: a, asks: What is it?, {question % optimizer}}}\n")
    assert "needs shapes" in told
    assert f"optimizer: {{name: {optimizer}, dtype: fp32, rows: " in told


def test_a_bare_plan_says_which_states_it_leaves_out() -> None:
    """A parameter count with Adafactor is warned of; with Adam, whose states are as large as weights, it is not."""
    bare = ["model={parameters: 7e9}", "recompute=none", "expect=null"]
    for optimizer, warned in (("adafactor", True), ("adamw", False)):
        plan = load_plan("7b-8xh100", [*bare, f"optimizer={optimizer}"])
        assert any("by rows and columns" in problem.message for problem in plan.warnings) == warned


@pytest.mark.parametrize("plan", ["70b", "gpt2"])
def test_saving_pays_or_is_said_not_to(tmp_path: Path, plan: str) -> None:
    """A share lies between 0 and 1, and the best interval is longer than a save, at any speed of storage."""
    speeds = ("1 kB/s", "1 MB/s", "100 MB/s", "300 MB/s", "1 GB/s", "100 GB/s")
    for found in figures_of(tmp_path, *(f"storage: {{plan: {plan}, bandwidth: {speed}}}" for speed in speeds)):
        share, interval, seconds = (found[name] for name in ("goodput", "interval", "seconds"))
        assert 0 <= float(share) <= 1  # type: ignore[arg-type]
        if isinstance(interval, str):
            assert interval.startswith("does not pay")
            assert share == 0
        else:
            assert float(interval) > float(seconds)  # type: ignore[arg-type]


def test_slow_storage_does_not_pay(tmp_path: Path) -> None:
    """16,384 devices fail every six hours, in which 4.9 TB cannot be written at 100 MB/s."""
    (found,) = figures_of(tmp_path, "storage: {plan: llama-3.1-405b-meta, bandwidth: 100 MB/s}")
    assert float(found["seconds"]) > float(found["between_failures"])  # type: ignore[arg-type]
    assert str(found["interval"]).startswith("does not pay")


def test_a_plan_that_does_not_fit_buys_nothing(tmp_path: Path) -> None:
    """Its tokens would be those of a run that cannot start; the same plan that fits, beside it, has its own."""
    budget = (
        "budget: {dollars: 1000 USD, mfu: 0.35, tokens_per_parameter: 20, precision: bf16-mixed, optimizer: adamw, "
        "offers: [{accelerator: l40s, price: 0.86 USD, date: 2026-01, source: own offer}], "
        "plans: [{plan: gpt2}, {plan: gpt2, set: [run.micro_batch=8192, run.global_batch=65536]}]}"
    )
    (found,) = figures_of(tmp_path, budget)
    assert (found["gpt2.fits"], found["gpt2_2.fits"]) == (True, False)
    assert float(found["gpt2.tokens"]) > 1e9  # type: ignore[arg-type]
    assert found["gpt2_2.tokens"] == "none: it does not fit"
    assert "gpt2_2.per_parameter" not in found
    assert float(found["gpt2_2.reserved"]) > float(found["gpt2_2.memory"])  # type: ignore[arg-type]
