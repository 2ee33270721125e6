import numpy as np
import pytest

from dpsep.families import Gaussian
from dpsep_lab.theorem import clipping_kl, random_cases


def test_the_corrected_form_is_the_definition_with_one_clip_or_two():
    cases = random_cases(3, 60, seed=2)
    for place in range(60):
        q = cases.posterior(place)
        size = float(np.linalg.norm(q.precision))
        for clips in ({"C": 0.3 * size}, {"C": 2.0 * size}, {"C": 1.0, "C_precision": 0.1 * size}):
            exact = clipping_kl(q, **clips, form="general")
            # The definition subtracts d from a trace, which costs it digits that the closed form keeps.
            assert clipping_kl(q, **clips, form="corrected") == pytest.approx(exact, rel=1e-8, abs=1e-13)


def test_the_printed_form_agrees_only_where_nothing_is_clipped():
    q = Gaussian.isotropic(4, 3.0)
    assert clipping_kl(q, 100.0, form="printed") == clipping_kl(q, 100.0, form="general") == 0.0
    assert clipping_kl(q, 0.1, form="printed") > 10 * clipping_kl(q, 0.1, form="general")


def test_the_printed_form_charges_for_a_small_precision_that_no_clip_touches():
    q = Gaussian.isotropic(4, 1e-3)
    assert clipping_kl(q, 1.0, form="general") == 0.0
    assert clipping_kl(q, 1.0, form="printed") > 15.0


def test_bad_input_is_refused_by_name():
    q = Gaussian.isotropic(2)
    with pytest.raises(ValueError, match="form 'own' is unknown"):
        clipping_kl(q, 1.0, form="own")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="C is 0"):
        clipping_kl(q, 0.0)
    with pytest.raises(ValueError, match="C_precision is -1"):
        clipping_kl(q, 1.0, C_precision=-1.0)
