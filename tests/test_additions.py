"""What is added by its row: everything that knows of a kind of thing reads the table of its kind."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

import ledger
from ledger.cli import VERBS, main
from ledger.model.attention import ATTENTIONS
from ledger.model.causes import Module
from ledger.model.tape import Tape
from ledger.model.tensors import Tensor
from ledger.report import html, views
from ledger.report.views.parts import Column, Report, Table, text_cells
from ledger.report.write import as_markdown
from ledger.spec.attention import ATTENTION_KINDS, Attention, AttentionKind
from ledger.spec.kinds import definition_schema
from ledger.spec.plan import Norm
from tests.model import plans


def values_only(tape: Tape, x: Tensor, spec: Attention, norms: Norm) -> Tensor:
    """Two matrices, of values and of the output."""
    into = "batch seq d_model, heads head_dim d_model -> batch seq heads head_dim"
    value = tape.linear(Module("attention", "v"), into, x, lead=2)
    back = "batch seq heads head_dim, d_model heads head_dim -> batch seq d_model"
    return tape.linear(Module("attention", "out"), back, value)


def test_a_kind_of_attention_is_added_by_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a spec may say of it, and what it runs: published, read, refused what it lacks, and counted."""
    monkeypatch.setitem(ATTENTION_KINDS, "values_only", AttentionKind(("kv_heads", "qk_norm")))
    monkeypatch.setitem(ATTENTIONS, "values_only", values_only)
    sizes = {"kind": "values_only", "heads": 6, "head_dim": 24}
    model = {**plans.LLAMA, "layers": [{**group, "attention": sizes} for group in plans.LLAMA["layers"]]}
    assert "values_only" in definition_schema(Attention)["properties"]["kind"]["enum"]

    before, after = (plans.compiled(model=one).totals["parameters"] for one in (plans.LLAMA, model))
    each = 102 * 24  # d_model x head_dim, for each head of each matrix of each of two layers
    assert before - after == 2 * each * ((6 + 3 + 3 + 6) - (6 + 6))
    with pytest.raises(ledger.SpecError, match="`qk_norm` is no size of values_only attention"):
        plans.compiled(model=plans.layer(model, attention={"qk_norm": "head"}))


def test_a_section_is_added_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that gives a table: on the page with its heading and a line in the contents, on paper, in Markdown."""
    colours = Table("Colours of the plan", (Column("colour"),), (text_cells("vermilion"),))
    row = views.Section("colours", "Which colours?", lambda _: colours, brief=lambda found: (found,))
    monkeypatch.setattr(views, "SECTIONS", (*views.SECTIONS, row))
    report = Report(plans.compiled())
    for page in (html.render(report), html.render(report, screen=False)):
        assert re.search(r'<a href="#colours">\d+ Which colours\?</a>', page)
        assert '<section id="colours" aria-labelledby="colours-title">' in page
        assert "vermilion" in page
    assert "## Colours of the plan\n\n| colour |\n|---|\n| vermilion |" in as_markdown(report).decode()


def test_a_verb_is_added_by_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a `command`: in the help, and run; an error of the input leaves as from any other verb."""

    @click.command(name="greet")
    def command() -> None:
        """Greet whoever asks."""
        click.echo("good morning")
        ledger.compile("spec: ledger/1\nplan: nothing more\n")

    module = ModuleType("greeting")
    module.command = command  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "greeting", module)
    monkeypatch.setitem(VERBS, "greet", "greeting")
    assert "Greet whoever asks." in CliRunner().invoke(main, ["--help"]).stdout
    done = CliRunner().invoke(main, ["greet"])
    assert (done.exit_code, done.stdout) == (2, "good morning\n")
    assert "this spec lacks `model`" in done.stderr
