"""Partitioned EP against rounds of one step, on made rows."""

from dpsep_lab.bench.federations import compare, one_step, partitioned


def test_fewer_rounds_cost_accuracy_and_their_errors_are_as_said() -> None:
    slow, fast = compare([one_step(6), partitioned(4, 4)], rows=12_000, weights=2, sites=3, epsilon=4.0)
    assert (slow.rounds, fast.rounds) == (20, 4)
    assert fast.bytes < slow.bytes
    assert slow.noise < fast.noise < 8.0 * slow.noise
    assert fast.error < 4.0 * fast.noise
    assert slow.error < 4.0 * slow.noise
