"""Closed forms: the Python of every total, run in an empty interpreter, gives what the compiler gives."""

from __future__ import annotations

import re
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

import ledger
from ledger.books.closed_forms import ClosedForm, ClosedForms, PlanForms
from ledger.report.closed_form_text import latex_text, python_text, sympy_expression

# Plans of many kinds, each the library's with changes.
PLANS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "dense": ("8b", ()),
    "hybrid sharding": ("70b", ()),
    "data parallel": ("gpt2", ()),
    "experts": ("mixtral-8x7b", ()),
    "latent": ("deepseek-v3", ()),
    "pipeline": ("405b", ()),
    "uneven pipeline": ("llama-3.1-405b-meta", ()),
    "fp8": ("8b", ("precision=fp8-tensorwise", "stack=torchtitan-compile-2025", "recompute=none")),
    "offload": ("7b-8xh100", ("parallelism.offload=[optimizer]",)),
    "LoRA": ("7b-8xh100", ("train={lora: {rank: 16, targets: [q, v]}}",)),
    "encoder": ("t5-11b", ()),
    "convolution": ("resnet-50", ()),
    "images": ("vit-l", ()),
    "documents": ("7b-8xh100", ("run.documents={length: 700 tokens}",)),
    "loss in parts": ("7b-8xh100", ("stack=transformers-trainer-liger-2025",)),
    "every kind of degree": ("7b-8xh100", ("parallelism={data: 2, context: 2, pipeline: 2}",)),
}
QUICK = ("hybrid sharding", "data parallel")
RELATIVE = 1e-12
IDENTIFIER = re.compile(r"\W+")


def kinds(names: Iterable[str]) -> list[Any]:
    """Parameters of a test: the quick ones stay in `make test`."""
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long]) for name in names]


@cache
def compiled(name: str) -> tuple[Any, ClosedForms]:
    """A plan with its forms."""
    spec, changes = PLANS[name]
    found = ledger.compile(spec, changes)
    return found, ClosedForms(found)


def run_alone(forms: Mapping[str, ClosedForm], arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the Python forms give in an interpreter without site packages, each in a namespace of its own."""
    lines = ["found = {}"]
    for total, form in forms.items():
        known = {name: value for name, value in (arguments or {}).items() if name in form.letters}
        lines += ["space = {}", f"exec({python_text(form)!r}, space)"]
        lines.append(f"found[{total!r}] = space[{IDENTIFIER.sub('_', total)!r}](**{known!r})")
    program = "\n".join([*lines, "print({total: repr(value) for total, value in found.items()})"])
    done = subprocess.run([sys.executable, "-I", "-S", "-"], input=program, capture_output=True, text=True, check=True)
    return {total: literal_eval(value) for total, value in literal_eval(done.stdout).items()}


def wrong(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The totals that differ: whole numbers at all, others by more than rounding."""
    return {
        total: (value, expected[total])
        for total, value in found.items()
        if (
            value != expected[total] or not isinstance(value, int)
            if isinstance(expected[total], int)
            else abs(value - expected[total]) > RELATIVE * abs(expected[total])
        )
    }


@pytest.mark.parametrize("name", kinds(PLANS))
def test_python_forms_give_the_totals(name: str) -> None:
    """Every total that letters reach is what its form gives in an empty interpreter."""
    found, forms = compiled(name)
    every = {total: forms.form(total) for total in forms.lettered.totals}
    assert {"memory.peak", "time.step", "flops.step", "parameters"} <= every.keys()
    assert every.keys() >= {total for total in found.totals if not total.startswith("pace.")}
    assert wrong(run_alone(every), found.totals) == {}


# Other settings at which a plan is made of the same operations: letters, and the same as changes of the plan.
ELSEWHERE: tuple[tuple[str, Mapping[str, int], tuple[str, ...]], ...] = (
    ("hybrid sharding", {"S": 4096}, ("run.seq_len=4096",)),
    ("hybrid sharding", {"B": 2}, ("run.micro_batch=2", "run.global_batch=2048")),
    ("hybrid sharding", {"dp": 512}, ("parallelism.data=512", "cluster.devices=512", "run.global_batch=512")),
    ("hybrid sharding", {"L": 60}, ("model.layers.decoder.repeat=60", "expect=[]")),
    ("data parallel", {"V": 40000}, ("model.vocab=40000", "expect=[]")),
    ("dense", {"S": 4096, "F": 12288}, ("run.seq_len=4096", "model.layers.decoder.mlp.d_ff=12288", "expect=[]")),
    ("experts", {"S": 2048}, ("run.seq_len=2048",)),
    ("pipeline", {"M": 126}, ("run.global_batch=2016",)),
)


@pytest.mark.parametrize(
    ("name", "letters", "changes"),
    [pytest.param(*row, marks=[] if row[0] in QUICK else [pytest.mark.long]) for row in ELSEWHERE],
)
def test_forms_are_functions_of_their_letters(name: str, letters: dict[str, int], changes: tuple[str, ...]) -> None:
    """At other sizes that meet the conditions of a form it gives what the compiler says of that plan."""
    _, forms = compiled(name)
    spec, own = PLANS[name]
    other = ledger.compile(spec, (*own, *changes))
    totals = ("memory.peak", "memory.reserved", "flops.step", "time.step", "tokens_per_second", "mfu", "parameters")
    found = run_alone({total: forms.form(total) for total in totals}, letters)
    assert wrong(found, other.totals) == {}


def test_a_maximum_names_its_moments() -> None:
    """The peak is the largest of its candidates, in order, and each is one of the plan's moments."""
    found, forms = compiled("hybrid sharding")
    candidates = forms.form("memory.peak").candidates
    assert candidates[0].value == found.totals["memory.peak"]
    assert [each.value for each in candidates] == sorted((each.value for each in candidates), reverse=True)
    moments = {moment.title: moment.total for role in found.roles for moment in role.moments}
    assert all(moments[each.title] == each.value for each in candidates)


def test_parameters_read_like_a_formula() -> None:
    """Of a Llama: two projections of all heads and two of those of keys, three of the MLP, norms, and both ends."""
    _, forms = compiled("hybrid sharding")
    form = forms.form("parameters")
    assert form.written(python=True)[1] == "D*(L*(2*E*(H + K) + 3*F + 2) + 2*V + 1)"


@pytest.mark.parametrize("total", ["parameters", "memory.peak", "time.step"])
def test_sympy_forms_give_the_totals(total: str) -> None:
    """The expression over the letters comes to the total where each letter has the plan's value."""
    import sympy

    found, forms = compiled("hybrid sharding")
    form = forms.form(total)
    signs = [sympy.Symbol(name, positive=True, integer=True) for name in form.letters]
    known = {"ceiling": lambda x: -(-x // 1), "floor": lambda x: x // 1, "Max": max, "Min": min}
    value = sympy.lambdify(signs, sympy_expression(form), modules=[known, "math"])(*form.letters.values())
    assert value == pytest.approx(found.totals[total], rel=RELATIVE)


@pytest.mark.parametrize("total", ["memory.peak", "time.step"])
def test_latex_has_every_definition(total: str) -> None:
    """A line of LaTeX for the total, and one for each thing that it names; braces match."""
    _, forms = compiled("hybrid sharding")
    form = forms.form(total)
    text = latex_text(form)
    numbers = sum(len(each.numbers) if not each.terms else 1 for each in form.definitions)
    assert text.count("&=") == 1 + numbers
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("spec", ["serve-70b", "serve-qwen3-30b"])
def test_what_a_service_holds_has_forms(spec: str) -> None:
    """Weights and the cache of a device are sums of accounts; the totals that letters do not reach have no form."""
    found = ledger.compile(spec)
    forms = ClosedForms(found)
    every = {total: forms.form(total) for total in forms.lettered.totals}
    assert {"memory.static.weights", "serve.cache.per_device"} <= every.keys()
    assert wrong(run_alone(every), found.totals) == {}
    assert PlanForms(found)["serve.ttft"] is None


@pytest.mark.parametrize("name", kinds(name for name in PLANS if name != "hybrid sharding"))
def test_shares_of_the_step_have_forms(name: str) -> None:
    """How much each price counts for: a logarithm of two steps that are nearly the same, so rounding is absolute."""
    found = ledger.compile(*PLANS[name])
    forms = ClosedForms(found, paces=True)
    shares = {total: forms.form(total) for total in found.totals if total.startswith("pace.")}
    assert run_alone(shares) == {total: pytest.approx(found.totals[total], abs=1e-11) for total in shares}
