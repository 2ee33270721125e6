"""Draws as ArviZ inference data, for both of its interfaces: 0.2x (InferenceData) and 1.x (a data tree)."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any, cast

__all__ = ["inference_data"]


def inference_data(groups: dict[str, dict[str, Any]], dims: dict[str, list[str]] | None = None) -> Any:
    """Return groups of arrays as ArviZ inference data (extra ``truth``).

    Parameters
    ----------
    groups
        By ArviZ's names (``posterior``, ``posterior_predictive``, ``log_likelihood``, ``observed_data``);
        arrays are (chains, draws, ...), without these two in ``observed_data``.
    dims
        Names of the dimensions after chain and draw, for each variable that has them named.
    """
    try:
        with warnings.catch_warnings():
            # On its first import of a day ArviZ 0.2x announces its next version, which we support as well.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'dpsep[truth]'.") from error
    convert = cast(Callable[..., Any], arviz.from_dict)
    if "posterior" in inspect.signature(convert).parameters:
        return convert(**groups, dims=dims)
    return convert(groups, dims=dims)  # ArviZ 1.x takes the groups as one dictionary
