r"""Partitioned EP: sites work on their own between rounds, and the server holds the product of their factors.

The posterior is q = p_0 prod_k t_k, one Gaussian factor a site, in natural parameters. In a round a site gets
the cavity q / t_k, takes `local` private steps with it as the prior (`dpsep.federated.site_local`) and sends
its new factor; the server puts it in the old one's place, damped if asked for. Whatever the order and pace in
which factors come, q is the product of those that are there: sites may be waited for (synchronous), or each
asked again as soon as it has answered (asynchronous).

*Fixed points.* If no clip, floor or cap is active and nothing is noisy, a site rests where its factor is the
sum of the local factors of its rows under q: the fixed point of the paper's equation (4) over all rows, as
for `dpsep.inference.sep_newton`.

*Where it pays.* A round moves a cavity and a factor instead of public values and sums, about as many bytes; a
run of R rounds of L steps costs each site what R L rounds of mode ``"own"`` cost and has the same noise. So
it saves rounds, by a factor of up to L, wherever a round is slow. It saves no privacy, and it asks that a
site's own rows say something in every direction: factors of small sites are noise.
`dpsep_lab.bench.federations` measures it.

**Privacy.** Mode ``"own"``: each site charges all of its local steps when the run begins, adds all of its own
noise and trusts nobody. The server's product is post-processing. The proof is in docs/proofs/federated.md.
"""

import math
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsep.estimators.base import LinearWeights, keep_result, prepare, task_of
from dpsep.estimators.columns import single, through_zero
from dpsep.estimators.private import sampling_of
from dpsep.estimators.run import Result, Task, blocks_of, contribution_of, settings_of
from dpsep.estimators.statement import PrivacyStatement
from dpsep.federated import wire
from dpsep.federated.codec import WireError, encode
from dpsep.federated.federation import Federation
from dpsep.federated.fitting import check_model, shape_of, terms_of
from dpsep.federated.product import Product, check_factor
from dpsep.federated.session import Session, plain_block
from dpsep.federated.statement import guarantee_of
from dpsep.federated.terms import Factor, Local, Terms, Work
from dpsep.federated.wire import Refused
from dpsep.inference import sep_newton
from dpsep.privacy.accounting import calibrate
from dpsep.privacy.mechanism import Mechanism
from dpsep.theory.glm_defaults import STEPS as USUAL_STEPS
from dpsep.theory.glm_defaults import WARMUP, Plan, weights_plan

__all__ = ["fit_partitioned"]

Array = NDArray[np.float64]
Model = TypeVar("Model", bound=LinearWeights)


class _Job(NamedTuple):
    """What all rounds of a run share."""

    session: Session
    task: Task
    settings: sep_newton.Settings
    plan: Plan
    terms: Terms
    damping: float
    product: Product


def fit_partitioned(
    model: Model,
    federation: Federation,
    *,
    rounds: int = 4,
    local: int = 4,
    damping: float = 1.0,
    asynchronous: bool = False,
) -> Model:
    """Fit an estimator of linear weights by partitioned EP.

    Parameters
    ----------
    model
        As for `dpsep.federated.fit`, with declared bounds; a `LinearRegression` with known noise precision.
    federation
        In mode ``"own"``.
    rounds
        How often each site is asked.
    local
        Private steps that a site takes in each round.
    damping
        Share of the way that a factor moves towards a new one, in (0, 1].
    asynchronous
        Whether each site is asked again as soon as it has answered, without waiting for the others; the
        transport must take questions from several threads.

    Returns
    -------
    The model, fitted.
    """
    check_model(model, federation)
    if federation.mode != "own" or federation.per_round is not None:
        raise ValueError("partitioned EP runs in mode 'own', with all sites in every round.")
    if rounds < 1 or local < 1 or not 0 < damping <= 1:
        raise ValueError("rounds and local must be at least 1, and damping in (0, 1].")
    leaks = prepare(model, lambda: shape_of(federation))
    terms = _terms(model, federation, rounds, local)
    federation.offer(terms)
    job = _job(model, federation, terms, damping)
    status = "failed"
    try:
        run = _together if not asynchronous else _apart
        run(job, rounds)
        status = "finished"
    finally:
        federation.end(status)
    mean, covariance, noise = job.product.moments()
    steps = rounds * local
    columns = job.settings.features, job.settings.outcome
    # Of the sites' releases only their products come here: there is no path.
    keep_result(model, Result(mean, covariance, noise, None, *columns, steps))
    model.privacy_ = _statement(job, leaks)
    return model


def _terms(model: LinearWeights, federation: Federation, rounds: int, local: int) -> Terms:
    task = task_of(model, shape_of(federation))
    if task.feature_scaling is None or task.outcome_scaling is None or task.learned_noise:
        raise ValueError(
            "partitioned EP needs declared bounds, and of a linear regression target_bounds and "
            "noise_precision: sites keep no common scale that could be found on the way."
        )
    if model.update == "natural":
        raise ValueError("partitioned EP takes steps of the stable update; use update='stable'.")
    if model.ledger is not None:
        raise ValueError("in partitioned EP every release is a site's own; use ledger=None on the server.")
    steps = rounds * local
    sampling = sampling_of(model)
    sigma = calibrate(
        float(model.epsilon), float(model.delta), sampling, model.relation, steps=steps, records=task.records
    )
    weights = task.dimension
    part = Mechanism(sampling, model.relation, steps, sigma, task.records)
    return terms_of(model, federation, (part,), weights * (weights + 3), local)


def _job(model: LinearWeights, federation: Federation, terms: Terms, damping: float) -> _Job:
    task = task_of(model, shape_of(federation))
    assert task.feature_scaling is not None
    assert task.outcome_scaling is not None
    columns = task.feature_scaling, single(task.outcome_scaling)
    if not task.intercept:
        columns = through_zero(columns[0]), through_zero(columns[1])
    steps = terms.parts[0].steps
    plan = _plan(task, task.records, terms, len(federation.offers))
    settings = settings_of(task, *columns, round(steps * WARMUP / USUAL_STEPS))
    session = federation.begin_run(uuid.uuid4().bytes)
    product = Product(settings.prior_mean, settings.prior_precision)
    return _Job(session, task, settings, plan, terms, damping, product)


def _plan(task: Task, records: int, terms: Terms, sites: int) -> Plan:
    """Clips in units of the posterior of so many rows, by the noise of so many sites."""
    return weights_plan(
        records,
        task.dimension,
        terms.epsilon,
        terms.delta,
        sensitivity=1.0 if terms.relation == "zero-out" else 2.0,
        reach=task.reach,
        spare=task.spare,
        steps=terms.parts[0].steps,
        clip=task.clip,
        excess=math.sqrt(sites),
    )


def _together(job: _Job, rounds: int) -> None:
    """All sites in every round; each round waits for them."""
    for number in range(rounds):
        names = tuple(job.session.sites)
        questions = {name: _question(job, name, number) for name in names}
        # A site that refused what is asked of records is out by now.
        asked = [name for name in names if name in job.session.sites]
        found = job.session.gather(asked, questions.__getitem__, _checker(job, number), f"round {number}")
        for name, factor in found.items():
            job.product.put(name, factor, job.damping)
        for name in set(names) - set(found):
            job.product.drop(name)


def _apart(job: _Job, rounds: int) -> None:
    """Each site at its own pace; its answers are folded in as they come."""

    def walk(name: str) -> None:
        for number in range(rounds):
            question = _question(job, name, number)
            asked = (name,) if name in job.session.sites else ()
            found = job.session.gather(
                asked, lambda _, question=question: question, _checker(job, number), f"round {number}"
            )
            if name not in found:
                job.product.drop(name)
                return
            job.product.put(name, found[name], job.damping)

    names = tuple(job.session.sites)
    with ThreadPoolExecutor(len(names), thread_name_prefix="dpsep-site") as pool:
        for done in [pool.submit(walk, name) for name in names]:
            done.result()


def _question(job: _Job, name: str, number: int) -> bytes:
    """Tell a site what is asked of records, where that is new, and return its question."""
    rows = job.session.hellos[name].rows
    work = _work(job, name, number)
    job.session.tell_work((name,), wire.name_of(work), work, f"round {number}")
    prior_mean, prior_precision, mean = job.product.cavity(name)
    asked = Local(
        number=number,
        work=wire.name_of(work),
        prior_mean=prior_mean,
        prior_precision=prior_precision,
        mean=mean,
        features=job.settings.features,
        outcome=job.settings.outcome,
        start=job.settings.start * (rows / job.task.records),
        warmup=job.settings.warmup,
        cap=float(min(job.settings.cap, 1e12)),
    )
    return wire.ask(wire.LOCAL, job.session.run, asked)


def _work(job: _Job, name: str, number: int) -> bytes:
    """Return what is asked of records in a round, as it travels."""
    # Alone, a site's rows are all there is; from then on they are seen in units of the whole posterior.
    rows = job.session.hellos[name].rows
    plan = job.plan if number else _plan(job.task, rows, job.terms, 1)
    blocks = tuple(plain_block(block) for block in blocks_of(job.task, plan))
    return encode(Work(0, (0, 1), blocks, contribution_of(job.task)))


def _checker(job: _Job, number: int) -> Any:
    d = job.task.dimension
    expected = float(np.max(job.settings.start))

    def check(name: str, answer: bytes) -> Factor | Refused:
        if len(answer) > 1024 + 8 * (2 * d + 2 * d * d):
            raise WireError("an answer is too long for this round.")
        heard = wire.heard(answer, job.session.run, wire.LOCAL)
        if isinstance(heard, Refused):
            if heard.code == wire.UNKNOWN_PART:
                job.session.tell_again(name, heard, _work(job, name, number))
            return heard
        good = type(heard) is tuple and len(heard) == 3 and type(heard[0]) is int and heard[0] == number
        if not good or not isinstance(heard[1], bool):
            raise WireError("the answer is none to this round.")
        factor = check_factor(heard[2], job.settings.prior_precision, expected)
        job.session.secure = job.session.secure and heard[1]
        return factor

    return check


def _statement(job: _Job, leaks: tuple[str, ...]) -> PrivacyStatement:
    part = job.terms.parts[0]
    sampling = "full batch" if part.sampling == "full" else f"Poisson sampling at rate {part.rate:g}"
    return PrivacyStatement(
        relation=job.terms.relation,
        unit="record",
        sampling=sampling,
        steps=part.steps,
        accountant="exact Gaussian composition" if part.sampling == "full" else "privacy loss distributions",
        scaling="declared bounds",
        secure=job.session.secure,
        run=job.session.run.hex(),
        leaks=leaks,
        **guarantee_of(job.session),
    )
