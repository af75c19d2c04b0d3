"""Prices and clusters follow the device: what a plan is priced with, and what it is told of parts of another device."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.spec.inputs import spec_text
from ledger.spec.load import load_plan
from ledger.spec.plan import Plan
from ledger.spec.problems import Location
from tests.spec.shelf import LIBRARY, SMALL, loaded, messages

OWN = SMALL + "assumptions: {price: {per_device_hour: 3 USD, date: 2026-01, source: an offer of mine}}\n"
OF_H100 = SMALL + "assumptions: {price: {per_device_hour: 3 USD, accelerator: H100-SXM, date: 2026-01, source: mine}}\n"
OF_PCIE = (
    SMALL + "assumptions: {price: {per_device_hour: 1 USD, accelerator: h100-pcie, date: 2026-01, source: mine}}\n"
)
PCIE = "accelerator=h100-pcie"
TYPED = "assumptions.price={per_device_hour: 5 USD, date: 2026-02, source: a new offer}"


def price(plan: Plan) -> float | None:
    """Dollars that an hour of a device costs in a plan; None where it has no price."""
    return plan.assumptions.price.per_device_hour if plan.assumptions.price else None


def told(plan: Plan) -> list[str]:
    """The warnings of a plan."""
    return [warning.message for warning in plan.warnings]


def test_a_plan_without_a_price_takes_its_devices() -> None:
    """The library's price of the accelerator stands in the plan with its date, its source and its place."""
    plan = loaded()
    assert (price(plan), told(plan)) == (2.0, [])
    assert plan.origins["assumptions.price.per_device_hour"].source == "an offer that nobody made"
    assert plan.origins["assumptions.price.date"].where.file.endswith("prices/h100-sxm.yaml")


def test_the_rest_of_the_assumptions_stays() -> None:
    """A price from the library leaves what a plan assumes otherwise."""
    plan = loaded(text=SMALL + "assumptions: {mfu: 0.3}\n")
    assert (price(plan), plan.assumptions.mfu) == (2.0, 0.3)


def test_a_device_without_a_price_has_no_dollars_and_says_so() -> None:
    """No price is made up, and the warning stands where the device is named, with what to type."""
    plan = loaded(PCIE)
    (warning,) = plan.warnings
    assert price(plan) is None
    assert warning.where == Location("--set accelerator=h100-pcie", 1, 19)
    assert warning.message == "no price of h100-pcie is on file, so the run is not priced"
    assert "assumptions: {price: {per_device_hour: " in warning.help


def test_a_run_without_an_end_needs_no_price() -> None:
    """Where no tokens are stated nothing is priced, and nobody is asked for a price."""
    text = SMALL.replace("tokens: 1B tokens, ", "")
    assert told(loaded(PCIE, text=text)) == []


@pytest.mark.parametrize("text", [OWN, OF_H100])
def test_a_price_of_the_plan_is_used_for_its_device(text: str) -> None:
    """A plan's own price comes before the library's; it may name the device, by any spelling."""
    plan = loaded(text=text)
    assert (price(plan), told(plan)) == (3.0, [])


@pytest.mark.parametrize(("text", "device"), [(OWN, "h100-sxm"), (OF_H100, "H100-SXM")])
def test_a_price_of_another_device_is_not_used(text: str, device: str) -> None:
    """A device put over the file's own does not cost what that one does, whether the price names it or not."""
    plan = loaded(PCIE, text=text)
    assert price(plan) is None
    assert told(plan) == [f"the price is for {device}, and the plan runs on h100-pcie: the run is not priced"]


def test_a_price_of_another_device_gives_way_to_the_librarys() -> None:
    """The run is priced at what its own device costs, and the warning says that, where the plan's price stands."""
    plan = loaded(text=OF_PCIE)
    (warning,) = plan.warnings
    assert price(plan) == 2.0
    assert warning.where == Location("<text>", 9, 15)
    expected = (
        "the price is for h100-pcie, and the plan runs on h100-sxm: the run is priced at the 2 USD on file for it"
    )
    assert warning.message == expected


def test_a_device_based_on_another_costs_what_that_does(tmp_path: Path) -> None:
    """A variant of a library device is priced as that, and a price of the plan's device is for the variant too."""
    (tmp_path / "mine.yaml").write_text("spec: ledger/1\nbase: h100-sxm\nbandwidth: 3 TB/s\n", "utf-8")
    (tmp_path / "plan.yaml").write_text(OWN, "utf-8")
    plan = load_plan(tmp_path / "plan.yaml", [f"accelerator={tmp_path / 'mine.yaml'}"], library=LIBRARY)
    assert (plan.accelerator.name, price(plan), told(plan)) == ("mine", 3.0, [])
    assert price(loaded("accelerator={base: h100-sxm, bandwidth: 3 TB/s}")) == 2.0


@pytest.mark.parametrize("text", [SMALL, OWN, OF_H100])
def test_a_typed_price_is_for_the_device_at_hand(text: str) -> None:
    """Who types a price means the plan that is asked about, whichever device that has by now."""
    plan = loaded(PCIE, TYPED, text=text)
    assert (price(plan), told(plan)) == (5.0, [])


@pytest.mark.parametrize("text", [OWN, OF_H100])
def test_a_typed_figure_is_for_the_device_at_hand(text: str) -> None:
    """A figure alone takes the place of the plan's, and with it its device."""
    plan = loaded(PCIE, "assumptions.price.per_device_hour=5 USD", text=text)
    assert (price(plan), told(plan)) == (5.0, [])


def test_a_typed_figure_stands_over_the_librarys() -> None:
    """A plan without a price takes date and source of the library's beneath a typed figure, which has no source."""
    plan = loaded("assumptions.price.per_device_hour=5 USD")
    assert (price(plan), told(plan)) == (5.0, [])
    assert plan.assumptions.price
    assert plan.assumptions.price.date == "2026-05"
    assert plan.origins["assumptions.price.per_device_hour"].source == ""


def test_a_price_may_be_said_to_hold_for_another_device() -> None:
    """A typed device is what the file's price is for: the answer to the warning."""
    plan = loaded(PCIE, "assumptions.price.accelerator=h100-pcie", text=OWN)
    assert (price(plan), told(plan)) == (3.0, [])


def test_a_price_may_be_named_or_lie_beside_the_plan(tmp_path: Path) -> None:
    """A price is a part as others are: a name, a file of one's own, or one with values over it."""
    assert price(loaded(text=SMALL + "assumptions: {price: h100-sxm}\n")) == 2.0
    offer = (LIBRARY.folder("price") / "h100-sxm.yaml").read_text("utf-8").replace("2 USD", "1.90 USD")
    (tmp_path / "offer.yaml").write_text(offer, "utf-8")
    (tmp_path / "plan.yaml").write_text(SMALL + "assumptions: {price: offer.yaml}\n", "utf-8")
    assert price(load_plan(tmp_path / "plan.yaml", library=LIBRARY)) == 1.9
    assert price(loaded("assumptions.price={base: h100-sxm, per_device_hour: 1.80 USD}")) == 1.8


def test_a_price_needs_a_date_and_a_source() -> None:
    """A figure that nobody can look up is refused, also where the library has one of the device."""
    assert messages(text=SMALL + "assumptions: {price: {per_device_hour: 3 USD, source: mine}}\n") == [
        "`assumptions.price` lacks `date`"
    ]
    assert messages(text=SMALL + "assumptions: {price: {per_device_hour: 3 USD, date: 2026-01}}\n") == [
        "`assumptions.price` has `per_device_hour`, which needs `source` beside it"
    ]
    assert messages("assumptions.price=h100-sxn") == ["no price is named `h100-sxn`"]


def test_prices_are_compared_as_wholes() -> None:
    """Two prices are one change of a plan, in a person's words."""
    ours = loaded().assumptions.price
    assert spec_text(ours, "assumptions.price") == "2 USD, 2026-05"


def test_a_cluster_of_another_device_is_told() -> None:
    """Nodes of one device are not taken for those of another without a word, and the help names those there are."""
    stated = SMALL.replace("cluster: {devices", "cluster: {accelerator: h100-sxm, devices")
    assert told(loaded(text=stated)) == []
    (warning,) = loaded(PCIE, TYPED, text=stated).warnings
    assert warning.message == "the cluster describes nodes of h100-sxm, and the plan runs on h100-pcie"
    assert warning.where == Location("<text>", 4, 10)
    assert warning.help.startswith("`pcie-100g` describes nodes of h100-pcie; `accelerator: h100-pcie` in the cluster")
    assert told(loaded(PCIE, TYPED, "cluster.accelerator=h100-pcie", text=stated)) == []
    assert told(loaded(PCIE, TYPED, "cluster=pcie-100g")) == []
