from dpsep_lab.paper.printed import TABLE_1


def test_every_printed_average_is_the_mean_of_its_two_columns_to_the_last_printed_digit():
    for row in TABLE_1:
        assert abs((row.mean + row.covariance) / 2 - row.average) < 0.5001e-4, row


def test_the_ten_rows_are_told_apart_by_method_epsilon_and_clip():
    assert len({(row.method, row.epsilon, row.clip) for row in TABLE_1}) == 10


def test_every_private_row_of_the_paper_has_each_of_its_three_epsilons():
    for method in ("DP-SEP", "DP-EM"):
        assert {row.epsilon for row in TABLE_1 if row.method == method} == {1.0, 5.0, 50.0}
