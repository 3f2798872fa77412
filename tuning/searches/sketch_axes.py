"""The parameters of sketches as dimensions of the search space."""

from __future__ import annotations

from collections.abc import Mapping

from tuccl.sketches.parameters import SketchParameters, SketchSpace
from tuccl.tuning.searches.space import Dimension, SketchAxes


class ParameterAxes(SketchAxes):
    """The dimensions of a `SketchSpace`; indices that name one sketch are many."""

    def __init__(self, space: SketchSpace) -> None:
        """Take the axes of ``space``."""
        self._space = space
        self.irregular = space.irregular
        self.dimensions = tuple(
            Dimension.of(name, ("no", "yes"))
            if values == (False, True)
            else Dimension(name, len(values))
            for name, values in space.axes.items()
        )

    def __contains__(self, sketch: object) -> bool:
        """Return whether the name ``sketch`` is one of the space."""
        return sketch in self._space

    def name(self, indices: Mapping[str, int]) -> str:
        """Return the name of the sketch at ``indices``."""
        values = {name: axis[indices[name]] for name, axis in self._space.axes.items()}
        return self._space.normal(SketchParameters(**values)).name

    def indices(self, sketch: str) -> dict[str, int]:
        """Return the indices of the name ``sketch``."""
        parameters = SketchParameters.of(sketch)
        return {
            name: axis.index(getattr(parameters, name)) for name, axis in self._space.axes.items()
        }
