"""How columns of a table become a model's: the one map that bounds, releases and models share."""

from typing import Any, NamedTuple

import jax.numpy as jnp


class Columns(NamedTuple):
    """Public map from a table's columns to a model's: clamp, shift, scale.

    Attributes
    ----------
    low, high
        Bounds that cells are clamped to; infinite where there are none.
    centre, scale
        A clamped cell c becomes (c - centre) / scale.

    All are arrays of NumPy or JAX.
    """

    low: Any
    high: Any
    centre: Any
    scale: Any

    def apply(self, cells: Any) -> Any:
        """Map cells; a cell that is not finite becomes NaN, it is not clamped."""
        clamped = jnp.clip(cells, self.low, self.high)
        return jnp.where(jnp.isfinite(cells), (clamped - self.centre) / self.scale, jnp.nan)
