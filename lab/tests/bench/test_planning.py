"""Forecasts against fits: a small run, and what its rows hold."""

import pytest

from dpsep_lab.bench import planning


@pytest.mark.deep
def test_forecasts_of_a_regression_come_true():
    rows = planning.regression(
        "plan/test", "linear", lambda k: planning.made("linear", 5000, 5, k), (2.0,), fits=4
    )
    found = {row["metric"]: row for row in rows}
    widening = found["interval widening, epsilon 2"]
    assert widening["ratio"] == pytest.approx(1.0, abs=0.1)
    risk = found["excess risk, quadratic, epsilon 2"]
    # Four fits of six weights: a chi-square with 24 degrees of freedom, over 24.
    assert 0.4 < risk["ratio"] < 2.0
    assert {row["ratio_to"] for row in rows} == {"forecast"}


@pytest.mark.deep
def test_the_measurement_can_fail():
    def loose(number):
        table = planning.made("linear", 5000, 5, number)
        return table._replace(declared=table.declared | {"clip": 30.0})

    rows = planning.regression("plan/test", "linear", loose, (2.0,), fits=1)
    assert rows[0]["ratio"] > 2.0


@pytest.mark.deep
def test_a_mixture_is_forecast_roughly_and_a_network_not_at_all():
    rows = planning.mixture((8.0,), fits=1)
    assert rows[0]["ratio"] == pytest.approx(1.0, abs=0.3)
    network = planning.network()
    assert network["value"] is None
    assert "not known in closed form" in network["note"]
