"""Partitioned EP against rounds of one step, on made rows."""

from dpsep_lab.bench.federations import compare, one_step, partitioned


def test_fewer_rounds_reach_the_accuracy_of_one_step_rounds() -> None:
    slow, fast = compare([one_step(16), partitioned(4, 4)], rows=12_000, weights=2, sites=3, epsilon=4.0)
    assert (slow.rounds, fast.rounds) == (16, 4)
    assert fast.bytes < slow.bytes
    assert 0.5 * slow.noise < fast.noise < 2.0 * slow.noise
    assert fast.error < 4.0 * fast.noise
    assert slow.error < 4.0 * slow.noise
