"""What the first page says that is to be decided, and of which run."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import ledger
from ledger.books import compile_plan
from ledger.report import html
from ledger.report.seals.opening import sealed, with_books
from ledger.report.views.glance import question, run_lines
from ledger.report.views.origin import made_from
from ledger.report.views.parts import Report
from ledger.report.views.verdict import fit_sentence, verdict
from ledger.report.write import as_markdown, assemble_report
from ledger.spec.inputs import changes
from ledger.spec.problems import SpecError

THIN = "\u202f"


def told(spec: str, *settings: str) -> tuple[str, dict[str, str]]:
    """The question and the lines of a plan of the library."""
    compiled = ledger.compile(spec, settings)
    return question(compiled.plan, compiled.totals), dict(run_lines(compiled.plan, compiled.totals))


def test_a_dense_model_is_told_by_its_parameters_steps_and_tokens() -> None:
    """nanoGPT's recipe: 600 000 steps of 12 x 5 x 8 sequences of 1024; 294.912e9 tokens / 124 439 808 = 2369.9."""
    asked, lines = told("gpt2")
    assert asked == f"Shall we train GPT-2 small on 295{THIN}billion tokens with 8 × NVIDIA H100 SXM5 80 GB?"
    assert lines == {
        "model": f"124{THIN}million parameters, all active in each token",
        "run": f"295{THIN}billion tokens, 2{THIN}370 a parameter, in 600{THIN}000 steps",
        "batch": f"491{THIN}520 tokens a step: 480 sequences of 1{THIN}024 tokens, 12 in a micro-batch",
    }


def test_experts_are_told_by_what_a_token_uses() -> None:
    """Jiang et al. 2024, arXiv 2401.04088: 47B parameters, of which a token uses 13B."""
    assert told("mixtral-8x7b")[1]["model"] == (f"46.7{THIN}billion parameters, 12.9{THIN}billion active in each token")


def test_adapters_are_told_by_what_is_trained() -> None:
    """Rank 8 on the queries of Llama 3 8B: 2 x 4096 x 8 weights in each of 32 layers, 2 097 152 in all."""
    line = told("8b", "train={lora: {rank: 8, targets: [q]}}")[1]["model"]
    assert line.endswith(f", 2.10{THIN}million of them trained")


def test_packed_documents_are_told_beside_the_sequences_that_hold_them() -> None:
    """Of one length by it, of several by each with its share."""
    assert told("8b", "run.documents={length: 700 tokens}")[1]["batch"].endswith("; packed documents of 700 tokens")
    two = "[{tokens: 300 tokens, share: 75 %}, {tokens: 1900 tokens, share: 25 %}]"
    line = told("8b", f"run.documents={{lengths: {two}}}")[1]["batch"]
    assert line.endswith(f"; packed documents of 300 (75.0{THIN}%), 1{THIN}900 (25.0{THIN}%) tokens")
    assert "packed" not in told("8b")[1]["batch"]


def test_a_model_without_a_title_is_told_by_what_is_known_of_it() -> None:
    """A changed model by what it was; a bare count by the count, with no steps, which follow from no shapes."""
    assert told("gpt2", "model.vocab=50304")[0].startswith("Shall we train gpt2 with changes on ")
    asked, lines = told("gpt2", "model={parameters: 70e9}", "run={tokens: 1.4T tokens}", "parallelism={data: 8}")
    assert asked.startswith(f"Shall we train a model of 70.0{THIN}billion parameters on 1.4{THIN}trillion tokens with ")
    assert set(lines) == {"model", "run"}
    assert lines["run"] == f"1.4{THIN}trillion tokens, 20.0 a parameter"


def test_a_plan_asks_in_its_own_words() -> None:
    """`decision:` stands at the top of the page and of the Markdown, and changes no figure and no diff."""
    words = "Do we reserve one node for two weeks?"
    asking = ledger.compile("gpt2", [f"decision={words}"])
    report = Report(asking)
    assert question(asking.plan, asking.totals) == words
    assert words in html.render(report)
    assert words in as_markdown(report).decode()
    assert asking.totals == ledger.compile("gpt2").totals
    assert changes(ledger.compile("gpt2").plan, asking.plan) == ()


def test_the_head_of_a_page_says_who_when_and_with_which_compiler() -> None:
    """By whom, which revision of which day, which ledger; a plan outside version control says so."""
    plan = ledger.compile("gpt2").plan
    with sealed(plan) as (same, seal):
        compiled = compile_plan(same)
        report = assemble_report(compiled, ("md",), None, with_books(seal, compiled, None))
    assert report.seal is not None
    line = made_from(report)
    assert f"compiled by ledger {ledger.__version__} with library " in line
    revision = report.seal.revision
    assert revision is None or (revision.commit[:12] in line and revision.date[:10] in line)
    unversioned = replace(report, seal=replace(report.seal, revision=None))
    assert made_from(unversioned).startswith("not in version control; compiled by ledger ")
    assert made_from(replace(report, seal=None)) == ""


def test_a_run_that_data_sheets_price_says_so_beside_its_days() -> None:
    """No kernel of an L4 was measured; one of an H100 was."""
    settings = ["accelerator=l4", "cluster={base: h100-400g, devices: 8, accelerator: l4}", "run.micro_batch=1"]
    sentence = fit_sentence(Report(ledger.compile("gpt2", settings)))
    assert sentence.endswith(f"; data sheets, not measurements, price 100.0{THIN}% of the step.")
    assert "data sheets" not in fit_sentence(Report(ledger.compile("gpt2")))


def test_what_does_not_fit_has_no_length_or_price_on_its_first_page() -> None:
    """Neither its own estimate nor the one by 6ND: a run that cannot be made takes no days."""
    numbers = verdict(Report(ledger.compile("llama-3.1-405b-meta"))).numbers
    assert not {"time.calendar", "cost.run", "napkin.days"} & {one.total.key for one in numbers}
    assert {"time.calendar", "cost.run"} <= {one.total.key for one in verdict(Report(ledger.compile("gpt2"))).numbers}


@pytest.mark.parametrize("words", ["# Approved", "- one", "1. one", "> said", "    code"])
def test_words_of_a_plan_begin_no_block_of_markdown(words: str) -> None:
    """A decision that looks like a heading or a list stays a sentence within its paragraph."""
    lines = as_markdown(Report(ledger.compile("gpt2", [f"decision={json.dumps(words)}"]))).decode().splitlines()
    assert not [line for line in lines if line.startswith(words)]


def test_words_of_a_plan_are_no_markup_of_markdown() -> None:
    """Neither a link nor an image, and no cell of a table."""
    text = as_markdown(Report(ledger.compile("gpt2", ['decision="see [a](http://b) ![c](d) | e"']))).decode()
    question = next(line for line in text.splitlines() if line.startswith("**Asked:**"))
    assert not re.search(r"(?<!\\)[\[\]|]", question)


def test_a_decision_without_a_word_is_refused() -> None:
    """White space decides nothing."""
    with pytest.raises(SpecError, match="decision"):
        ledger.compile("gpt2", ['decision="  "'])


def test_what_was_set_over_a_plan_stands_at_its_head() -> None:
    """A reader who opens the plan's file must not look for a layout that it does not have."""
    plan = ledger.compile("gpt2", ["run.micro_batch=6"]).plan
    with sealed(plan) as (same, seal):
        compiled = compile_plan(same)
        report = assemble_report(compiled, ("md",), None, with_books(seal, compiled, None))
    assert made_from(report).startswith("with run.micro_batch=6 set over it; ")


@pytest.mark.parametrize(
    ("model", "said"),
    [("{parameters: 7e9}", "What limits it is not known from a parameter count."), ("llama-2-7b", "Limited by ")],
)
def test_what_limits_a_plan_is_a_sentence(model: str, said: str) -> None:
    """Of a bare count of parameters nothing limits that is known, and it is not limited by that."""
    compiled = ledger.compile("7b-8xh100", [f"model={model}", "recompute=none", "expect=null"])
    text = as_markdown(Report(compiled)).decode()
    assert f"\n{said}" in text
    assert "Limited by not known" not in text
