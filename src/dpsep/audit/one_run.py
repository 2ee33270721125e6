"""One fit with many canaries: an audit for runs that are too long to repeat.

Steinke, Nasr and Jagielski (2023). Every canary is in or out by a fair coin; after the one run the attacker
guesses the coins of those canaries that he is most sure of. A mechanism that is (epsilon, delta)-DP bounds
how many guesses can be right, however canaries depend on each other (`dpsep.audit.bounds.one_run_bound`).

**Privacy.** None: as `dpsep.audit.canary`. The bound assumes nothing of the mechanism; it is looser than that
of many runs, because one run's canaries must all be guessed from one draw of the noise.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsep.audit.bounds import Bound, Counts, one_run_bound
from dpsep.audit.canary import Audit, trials

Array = NDArray[np.float64]


def one_run_audit(
    estimator: Any,
    X: Array,
    y: Array | None = None,
    *,
    canaries: int = 200,
    share: float = 0.25,
    confidence: float = 0.999,
    seed: int = 0,
) -> Audit:
    """Audit a private estimator by one fit with many canaries.

    Parameters
    ----------
    estimator, X, y
        As in `dpsep.audit.canary_audit`.
    canaries
        At most as many as the largest block of a release has coordinates; more see nothing.
    share
        Of the canaries that are guessed: those whose likelihood ratios are farthest from one.
    confidence, seed
        Of the bound, and of the run.

    Examples
    --------
    >>> from dpsep import LogisticRegression
    >>> X, y = np.zeros((10, 40)), np.where(np.arange(10) % 2, 1.0, -1.0)
    >>> model = LogisticRegression(epsilon=1.0, delta=1e-2, bounds=(-1, 1), classes=[-1, 1], steps=2)
    >>> one_run_audit(model, X, y, canaries=40).caught
    False
    """
    seen = trials(estimator, X, y, canaries=canaries, runs=1, seed=seed)
    scores = np.concatenate([seen.inside, seen.outside])
    truth = np.arange(len(scores)) < len(seen.inside)
    # Whoever was in comes first in these arrays; ties must not be broken by that.
    order = np.random.default_rng([seed, 1]).permutation(len(scores))
    scores, truth = scores[order], truth[order]
    guesses = min(max(2, round(share * len(scores))), len(scores))
    sure = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    guessed = scores[sure] > 0
    correct = int((guessed == truth[sure]).sum())
    epsilon = one_run_bound(correct, guesses, len(scores), seen.delta, confidence)
    counts = Counts(
        int((guessed & truth[sure]).sum()),
        int(truth[sure].sum()),
        int((guessed & ~truth[sure]).sum()),
        int((~truth[sure]).sum()),
    )
    return Audit(
        f"{canaries} canaries in one run, {correct} of {guesses} guesses right",
        seen.epsilon,
        seen.delta,
        Bound(epsilon, 0.0, 0.0, seen.delta, confidence),
        counts,
        1,
        math.nan,
        math.nan,
        seen.full,
        (seen.inside, seen.outside),
    )
