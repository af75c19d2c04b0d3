"""What the notes print, number by number: answered, corrected, or no matter of accounting - and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.course.answer import answers, checked_lecture
from ledger.course.claims import ANSWERED, CORRECTED, OUTSIDE
from ledger.course.lecture import Answer, Lecture, load_lecture
from ledger.course.report import FORMATS, met_claims, page, right
from ledger.spec.problems import SpecError

LECTURE = Path(__file__).resolve().parents[2] / "specs" / "lecture" / "lecture.yaml"
D = 12288  # width of GPT-3: 96 layers of 12 D² weights, 13 D of biases and norms (Brown et al. 2020, table 2.1)
TEXT = """spec: ledger/1
lecture: A lecture
source: a course
questions:
  - id: size
    asks: How large is a matrix?
    tensor: {shape: {rows: 3, columns: 5}, dtype: bf16}
    %s
claims:
  - %s
"""


@pytest.fixture(scope="module")
def lecture() -> Lecture:
    """The lecture of the library."""
    return load_lecture(LECTURE)


@pytest.fixture(scope="module")
def answered(lecture: Lecture) -> dict[str, Answer]:
    """Its questions, each answered once."""
    return {answer.question.name: answer for answer in answers(lecture)}


def written(folder: Path, claim: str, printed: str = "why: There are 15 elements.") -> str:
    """A lecture of one question and one claim."""
    path = folder / "mine.yaml"
    path.write_text(TEXT % (printed, claim), encoding="utf-8")
    return str(path)


def test_every_number_of_the_notes_has_an_answer_or_is_outside(lecture: Lecture, answered: dict[str, Answer]) -> None:
    """No claim is contradicted in silence, and what is outside says why."""
    outcomes = [outcome for _, outcome in met_claims(lecture, answered.values())]
    assert set(outcomes) == {ANSWERED, CORRECTED, OUTSIDE}
    assert all(len(claim.outside) > 40 for claim in lecture.claims if not claim.question)


def test_every_correction_is_of_a_claim(lecture: Lecture, answered: dict[str, Answer]) -> None:
    """A question that holds what the notes print is in the list, and is met as a correction somewhere.

    `inf.gpt2_served` is a second answer to what `inf.gpt2_measured` is asked.
    """
    corrected = {claim.question for claim, outcome in met_claims(lecture, answered.values()) if outcome == CORRECTED}
    printed = {name for name, answer in answered.items() if answer.question.printed}
    assert printed - corrected == {"inf.gpt2_served"}
    assert corrected <= printed


@pytest.mark.parametrize(
    ("name", "figure", "right"),
    [
        ("run.six", "all", 2 + 2 + 2),
        ("7b.states", "16-bit,_states_in_fp32.together", 12 * 7e9),
        ("7b.states", "the_same_with_a_master_copy.together", 16 * 7e9),
        ("fl.gpt2_token", "added_up", 2 * 768 * 50257 + 12 * (13 * 768**2 + 4 * 768)),
        ("fl.gpt2_token", "right", 2 * (12 * 12 * 768**2 + 768 * 50257) + 12 * 2 * 768 * 1025),
        ("fl.softmax_maximum", "exact", 4096 * 4095),
        ("largest.gpt4", "rule", 6 * 280e9 * 13e12),
        ("largest.runs", "GPT-3.rule", 6 * (96 * (12 * D + 13) * D + (50257 + 2048 + 2) * D) * 300e9),
        ("largest.runs", "Marin_32B.rule", 6 * 32519640064 * 6.437e12),
        ("largest.runs", "Llama_3_405B.rule", 6 * 405853388800 * 15.6e12),
    ],
)
def test_what_is_right_is_derived_anew(answered: dict[str, Answer], name: str, figure: str, right: float) -> None:
    """The numbers that stand beside those of the notes, by hand."""
    assert float(answered[name].figures[figure].value) == pytest.approx(right, rel=1e-9)


def test_a_run_is_counted_from_the_shape_of_its_model(answered: dict[str, Answer]) -> None:
    """Marin 32B: six times every weight that multiplies, and scores of (s + 1)/2 keys, forward and twice backward."""
    width, hidden, keys, layers, vocab, seq = 5120, 27648, 8 * 128, 64, 128256, 4096
    matrices = layers * (2 * width * width + 2 * width * keys + 3 * width * hidden) + width * vocab
    a_token = 6 * matrices + 3 * layers * 2 * width * (seq + 1)
    counted = float(answered["largest.marin"].figures["counted"].value)
    assert counted == pytest.approx(a_token * 6.437e12, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "figure", "unit"),
    [
        ("inf.gpt2_cpu", "tokens a second, decoded", "tokens/s"),
        ("inf.gpt2_served", "tokens a second", "tokens/s"),
        ("inf.gpt2_measured", "all together, by sequences", "tokens/s"),
        ("7b.plans", "to plan for", "GB"),
    ],
)
def test_what_stands_beside_the_notes_is_in_their_unit(
    answered: dict[str, Answer], name: str, figure: str, unit: str
) -> None:
    """The figure that is asked for, by its name, in every case: not the last column of the table."""
    title, _, values = right(answered[name]).partition(": ")
    grid = answered[name].found.grid
    assert title == figure
    assert grid
    assert [value.split("\u202f")[-1].split(" (")[0] for value in values.split("; ")] == [unit] * len(grid.rows)


def test_a_number_is_held_against_a_number(lecture: Lecture, answered: dict[str, Answer]) -> None:
    """What the notes print of FLOPs of Marin, and of bytes of state and activations, meets those and is corrected."""
    met = {(claim.question, claim.of): (claim, outcome) for claim, outcome in met_claims(lecture, answered.values())}
    for place, figure, value in (
        (("largest.marin", "A run of Marin"), "rule", 6 * 32519640064 * 6.437e12),
        (("7b.one_activation_per_layer", "State and activations of 7 billion parameters"), "with_state", 129179869184),
    ):
        claim, outcome = met[place]
        assert outcome == CORRECTED
        assert [expected.figure for expected in claim.figures] == [figure]
        assert float(answered[place[0]].figures[figure].value) == pytest.approx(value, rel=1e-9)


def test_a_figure_that_the_answer_lacks_does_not_stand_beside_the_notes(tmp_path: Path) -> None:
    """It is a problem of its question, which names the figure that was meant."""
    mine = load_lecture(written(tmp_path, "{question: size, says: some bytes}", "right: [byte]"))
    with pytest.raises(SpecError) as caught:
        tuple(answers(mine))
    (problem,) = caught.value.problems
    assert problem.message == "`size` has no figure `byte`"
    assert "bytes" in problem.help


def test_inference_keeps_no_activations_of_all_layers(answered: dict[str, Answer]) -> None:
    """Weights, the cache, and what one operation of one layer needs: less than that layer keeps for backward."""
    figures = {name: float(figure.value) for name, figure in answered["inf.memory"].figures.items()}
    layer = figures["every_layer_kept.working"] / 32
    assert 0 < figures["answering.working"] < layer
    assert figures["answering.cache"] == 2 * 32 * 8 * 128 * 2 * (8192 + 256)
    assert figures["held"] == figures["answering.weights"] + figures["answering.cache"] + figures["answering.working"]


@pytest.mark.parametrize(
    ("claim", "printed", "outcome"),
    [
        ("{question: size, says: {bytes: 30 B}}", "printed: 15 bytes", ANSWERED),
        ("{question: size, says: {bytes: 15 B}}", "printed: 15 bytes", CORRECTED),
        ("{question: size, says: some bytes}", "why: There are 15 elements.", ANSWERED),
        ("{question: size, says: some bytes}", "printed: some bytes", CORRECTED),
        ("{of: colour, says: blue, outside: It weighs nothing.}", "why: There are 15 elements.", OUTSIDE),
    ],
)
def test_a_claim_is_held_against_the_answer(tmp_path: Path, claim: str, printed: str, outcome: str) -> None:
    """Equal figures are answered, others corrected where the question prints them; the page and its data say which."""
    mine = load_lecture(written(tmp_path, claim, printed))
    result = tuple(answers(mine))
    published = json.loads(FORMATS["json"](page(mine, result), result))
    assert [claim["outcome"] for claim in published["claims"]] == [outcome]
    assert f"1 {outcome}." in FORMATS["html"](page(mine, result), result).decode()
    assert f" {outcome} |" in FORMATS["md"](page(mine, result), result).decode()


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("{question: size, says: {bytes: 15 B}}", "the notes print bytes 15 B; `size` answers otherwise"),
        ("{question: size, says: {byte: 30 B}}", "`size` has no figure `byte`"),
    ],
)
def test_a_contradiction_that_nothing_says_fails_the_check(tmp_path: Path, claim: str, said: str) -> None:
    """It is told in its line, with what to write."""
    (failure,) = checked_lecture(written(tmp_path, claim)).failures
    assert failure.message == said
    assert failure.where.line == 10
    assert failure.help


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("{question: sise, says: {bytes: 30 B}}", "there is no question `sise`"),
        ("{says: blue}", "neither a question nor why none answers it"),
        ("{question: size, says: blue, outside: It weighs nothing.}", "both a question and why none answers it"),
        ("{of: size, says: {bytes: 30 B}, outside: It weighs nothing.}", "figures are those of a question"),
        ("{says: blue, outside: It weighs nothing.}", "does not say what it is about"),
        ("{question: size}", "`says`"),
    ],
)
def test_a_claim_is_about_a_question_or_outside(tmp_path: Path, claim: str, said: str) -> None:
    """Any other is a problem in its place."""
    with pytest.raises(SpecError) as caught:
        load_lecture(written(tmp_path, claim))
    (problem,) = caught.value.problems
    assert said in problem.message
    assert problem.where.line == 10
