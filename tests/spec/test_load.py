from __future__ import annotations

import io
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.spec.inputs import changes
from ledger.spec.load import load_plan, read_with_overrides
from ledger.spec.plan import Expectation, Kernels, Model, Recompute
from ledger.spec.problems import Location, SpecError
from tests.spec.shelf import LIBRARY, SMALL, loaded, messages, problems


def test_a_plan_holds_what_its_files_say() -> None:
    """Values arrive in SI base units, whole where they count things."""
    plan = loaded()
    assert plan.title == "Tiny on eight H100"
    assert (plan.accelerator.memory, plan.accelerator.memory_labelled) == (81559 * 2**20, 80 * 10**9)
    assert plan.accelerator.peak["fp8"] == 1979e12
    assert plan.accelerator.calibration[0].parameters["t0"] == pytest.approx(2.9e-6, rel=1e-15)
    assert plan.accelerator.calibration[1].parameters["B"] == 475e9
    assert plan.accelerator.calibration[0].bias == -0.016
    assert (plan.run.tokens, plan.run.seq_len) == (10**9, 2048)
    assert plan.model.groups[0].attention.rotary == Fraction(1)
    assert (plan.parallelism.zero, plan.parallelism.pipeline) == (1, 1)


def test_a_models_own_expectation_is_the_plans() -> None:
    """What a published model is known to count is asserted of every plan that uses it as it is."""
    layer = 2 * 512 * 512 + 2 * 512 * 256 + 3 * 512 * 2048 + 2 * 512  # q and out, k and v, gated MLP, two norms
    count = 2 * 32000 * 512 + 4 * layer + 512
    assert loaded().expect == (Expectation("parameters", count, 0.0, "derived in test_load", of_model=True),)


@pytest.mark.parametrize("setting", ["model.vocab=64000", "model={base: tiny, max_seq_len: 8192}"])
def test_a_changed_model_owes_nothing(setting: str) -> None:
    """An overridden model is another model: the published count says nothing of it."""
    assert loaded(setting).expect == ()


def test_expectations_have_units() -> None:
    """An asserted total has the unit of its key, and is held in SI base units."""
    text = SMALL + "expect:\n  - {memory.peak: 60 GB, tolerance: 1 %, source: a plan}\n  - {mfu: 0.4, time.step: 2 s}\n"
    assert loaded(text=text).expect[:3] == (
        Expectation("memory.peak", 60 * 10**9, 0.01, "a plan"),
        Expectation("mfu", 0.4),
        Expectation("time.step", 2),
    )
    assert messages(text=SMALL + "expect: [{memory.peak: 60}]\n") == ["`memory.peak`: `60` has no unit"]
    assert messages(text=SMALL + "expect: [{time.step: 60 GB}]\n") == ["`time.step`: `60 GB` is a size, not a time"]
    assert messages(text=SMALL + "expect: [{source: nobody}]\n") == ["the line asserts nothing"]


def test_every_value_has_its_origin() -> None:
    """`explain` can say of every symbol which file, line and publication it comes from."""
    origins = loaded().origins
    assert origins["run.micro_batch"].where == Location("<text>", 8, 54)
    assert origins["accelerator.peak.fp8"].source == "NVIDIA H100 whitepaper, table 1"
    assert origins["accelerator.bandwidth"].source == "NVIDIA H100 Tensor Core GPU datasheet, 2024"
    assert origins["model.layers.decoder.attention.heads"].where.file.endswith("models/tiny.yaml")
    assert origins["model"].where == Location("<text>", 5, 8)


@pytest.mark.parametrize(
    ("stated", "key", "left"),
    [
        ("parallelism={tensor: 2, zero: 1}", "parallelism.zero", "parallelism={tensor: 2}"),
        ("kernels={attention: math, norm: eager}", "kernels.attention", "kernels={norm: eager}"),
        ("run.tokens=2B tokens", "assumptions.mfu", "run.tokens=2B tokens"),
        ("model.layers.decoder.attention.window=128", "model.layers.0.attention.window", "run.micro_batch=2"),
        ("cluster={base: h100-400g, failure_rate: 0.001 /d}", "cluster.failure_rate", "cluster={base: h100-400g}"),
        ("recompute=full", "parallelism.stages", "recompute=full"),
    ],
)
@pytest.mark.parametrize("null", ["null", "~"])
def test_null_unsets_what_is_stated(stated: str, key: str, left: str, null: str) -> None:
    """A value that is taken back is as if it had never been written, whether the file states it or not."""
    assert loaded(stated, f"{key}={null}").digest == loaded(left).digest


def test_null_gives_what_a_plan_has_where_nothing_is_said() -> None:
    """The plan is the one whose file lacks the line."""
    without = SMALL.replace("tokens: 1B tokens, ", "")
    assert loaded("run.tokens=null").digest == loaded(text=without).digest
    assert loaded("run.tokens=null").run.tokens is None
    assert loaded("train.lora=null").digest == loaded().digest


def test_null_unsets_an_entry_of_a_list() -> None:
    """An expectation that does not hold of a changed plan can be left out."""
    expected = SMALL + "expect: [{parameters: 1, source: nowhere}, {devices: 8, source: this plan}]\n"
    assert loaded("expect.0=null", text=expected).expect[0].key == "devices"


def test_null_of_what_must_be_stated_is_missing() -> None:
    """A key that a plan cannot do without is missed as if the file lacked it; one that no plan has is no key."""
    assert messages("run=null") == ["this spec lacks `run`"]
    assert messages("accelerator.bandwidth=null") == ["`accelerator` lacks `bandwidth`"]
    assert messages("model=null") == ["this spec lacks `model`"]
    (found,) = problems("parallelism.tensr=null")
    assert found.message == "`tensr` is no field of `parallelism`"
    assert found.where == Location("--set parallelism.tensr=null", 1, 7)
    assert messages("model.layers.encoder.repeat=null") == ["the list has no entry `encoder`"]


def test_an_override_has_no_source_it_was_not_given() -> None:
    """A number that the user put over a data sheet's is not the data sheet's."""
    origin = loaded("accelerator.bandwidth=3 TB/s").origins["accelerator.bandwidth"]
    assert origin.source == ""
    assert origin.where == Location("--set accelerator.bandwidth=3 TB/s", 1, 29)


def test_a_typed_path_is_relative_to_where_it_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--set accelerator=mine.yaml` names the file that the shell would, wherever the plan is kept."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "tiny.yaml").write_text(SMALL)
    (tmp_path / "mine.yaml").write_text((LIBRARY.folder("accelerator") / "h100-sxm.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    plan = load_plan("plans/tiny.yaml", ["accelerator=mine.yaml"], library=LIBRARY)
    assert plan.origins["accelerator.bandwidth"].where.file == "mine.yaml"


def test_an_unstated_network_is_an_assumption() -> None:
    """A cluster of devices alone takes 400 Gb/s per device, and says that this is assumed."""
    plan = loaded()
    assert plan.cluster.scaleout_bandwidth == 400e9 / 8
    assert plan.origins["cluster.scaleout.bandwidth"].source.startswith("assumed, since the plan does not state it")


def test_a_stated_line_rate_keeps_the_rest_of_the_default() -> None:
    """`scaleout: 200 Gb/s` states the rate; latency and efficiency stay assumptions."""
    for setting in ("cluster.scaleout=200 Gb/s", "cluster={devices: 8, devices_per_node: 8, scaleout: 200 Gb/s}"):
        plan = loaded(setting)
        cluster, rate = plan.cluster, plan.origins["cluster.scaleout.bandwidth"]
        assert (cluster.scaleout_bandwidth, cluster.scaleout_latency, cluster.scaleout_efficiency) == (25e9, 5e-6, 0.9)
        assert (rate.where.file, rate.source) == (f"--set {setting}", "")
        assert plan.origins["cluster.scaleout.latency"].source.startswith("assumed")


@pytest.mark.parametrize(
    ("given", "recompute"),
    [
        ("none", Recompute()),
        ("full", Recompute("full")),
        ("{every: 2}", Recompute("every", every=2)),
        ("{keep: [matmul, attention]}", Recompute("keep", keep=("matmul", "attention"))),
    ],
)
def test_recompute_is_a_word_or_a_mapping(given: str, recompute: Recompute) -> None:
    """Each way to say what backward rebuilds has its own meaning."""
    assert loaded(f"recompute={given}").recompute == recompute


def test_kernels_of_the_plan_override_the_stacks() -> None:
    """A plan names single kernels; the stack serves the others, and stays what it is."""
    plan = loaded("kernels.attention=math")
    stack = Kernels("flash", "fused", "fused", "eager", optimizer="fused")
    assert plan.stack.kernels == stack
    assert plan.kernels == Kernels("math", "fused", "fused", "eager", optimizer="fused")


@pytest.mark.parametrize("given", ["70e9", "70B parameters", "70000000000"])
def test_a_model_may_be_a_count(given: str) -> None:
    """A bare count is enough for what follows from it, and needs no sequences."""
    text = SMALL.replace("model: tiny", f"model: {{parameters: {given}}}")
    text = text.replace(", seq_len: 2048, micro_batch: 2, global_batch: 64", "").replace("sequence: regather, ", "")
    model = loaded(text=text).model
    assert model.bare
    assert model == Model("inline", "inline", parameters=70 * 10**9)


def test_a_stack_left_out_is_the_default() -> None:
    """The small plan names no stack, and has PyTorch's FSDP2 of 2025 with where that stands."""
    plan = loaded()
    assert plan.stack.name == "pytorch-fsdp2-2025"
    assert plan.origins["stack.launch.per_operation"].where.file.endswith("stacks/pytorch-fsdp2-2025.yaml")


def test_a_data_degree_left_out_is_the_rest() -> None:
    """Devices that no other degree uses are replicas."""
    assert loaded("parallelism={tensor: 2}").parallelism.data == 8 // 2


def test_the_digest_is_of_the_content() -> None:
    """Layout, comments and order of keys leave the digest; a value changes it, also one of a named part."""
    lines = SMALL.splitlines()
    shuffled = "\n".join([lines[0], "# a comment", *reversed(lines[1:])])
    assert loaded(text=shuffled).digest == loaded().digest
    assert loaded("accelerator.power=600 W").digest != loaded().digest


def test_standard_input_is_a_plan() -> None:
    """`-` reads standard input, and places in it are named so."""
    plan = load_plan("-", stdin=io.StringIO(SMALL), library=LIBRARY)
    assert plan.origins["run"].where.file == "<stdin>"


def test_settings_apply_before_the_checks() -> None:
    """An override is held to schema and rules like any value, and a problem points into its text."""
    (found,) = problems("run.micro_batch=3")
    assert found.message.startswith("global_batch = 64 is no multiple of data x micro_batch = 4 x 3 = 12")
    (found,) = problems("run.micro_btch=3")
    assert found.where == Location("--set run.micro_btch=3", 1, 7)
    assert found.help == "did you mean `micro_batch`?"


def test_null_leaves_a_key_out() -> None:
    """As if it had never been written: the default holds, or what follows from other values; a needed key is missed."""
    assert loaded("parallelism.zero=null").parallelism.zero == 0
    assert loaded("parallelism.offload=null") == loaded("parallelism.offload=null", "kernels.attention=null")
    assert changes(loaded("parallelism.data=null"), loaded()) == ()
    assert any("`accelerator`" in message for message in messages("accelerator=null"))


def test_a_plan_is_read_again_with_further_overrides() -> None:
    """From its own text, after its own overrides; of one that rules refuse the draft is there with the problems."""
    plan = load_plan("-", ["run.micro_batch=2"], stdin=io.StringIO(SMALL), library=LIBRARY)
    draft = read_with_overrides(plan, ["run.tokens=2B tokens"])
    assert draft.plan == load_plan(
        "-", ["run.micro_batch=2", "run.tokens=2B tokens"], stdin=io.StringIO(SMALL), library=LIBRARY
    )
    refused = read_with_overrides(plan, ["run.micro_batch=3"])
    assert refused.plan is not None
    assert refused.plan.run.micro_batch == 3
    assert [problem.message for problem in refused.problems] == messages("run.micro_batch=3")
    strange = read_with_overrides(plan, ["accelerator=nothing-like-it"])
    assert strange.plan is None
    assert strange.problems[0].message == "no accelerator is named `nothing-like-it`"
    with pytest.raises(ValueError, match="cannot be read again"):
        read_with_overrides(replace(plan, reading=None), [])


@pytest.mark.parametrize(
    "setting", ["", "run.micro_batch", "=3", "run..x=1", "run.micro_batch=", "model.layers.7.repeat=2"]
)
def test_a_setting_that_is_none_is_a_problem(setting: str) -> None:
    """`--set` without key, value or target is told with a place in what was typed."""
    (found,) = problems(setting)
    assert found.where.file == f"--set {setting}"


def test_one_part_that_is_broken_hides_no_rule_of_the_others() -> None:
    """A typing error in `run` and a mesh that does not fit are told together."""
    said = messages("run.tokens=80", "cluster.devices=16")
    assert len(said) == 2


@pytest.mark.parametrize("kind", ["accelerator", "cluster", "model", "precision", "optimizer", "stack"])
def test_a_base_that_is_not_there_is_told_once(kind: str) -> None:
    """Where only a base is named, and wrongly, nothing of the part is stated: that is the one problem."""
    with pytest.raises(SpecError) as raised:
        loaded(f"{kind}={{base: nowhere}}")
    assert [problem.message for problem in raised.value.problems] == [f"no {kind} is named `nowhere`"]
