"""Figures over a job's steps, in bounded space: beyond the limit two neighbours become their mean."""

from collections.abc import Mapping

POINT_LIMIT = 600  # more than a curve has pixels to show on most screens


class Curves:
    """Several figures over one axis of steps; points are means over `stride` steps each."""

    def __init__(self, names: tuple[str, ...], limit: int = POINT_LIMIT) -> None:
        self._names, self._limit = names, limit
        self.stride = 1
        self._points: list[tuple[int, tuple[float, ...]]] = []
        self._bucket: list[tuple[int, tuple[float, ...]]] = []

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Notes the figures of a step; one that was made before takes back what followed it."""
        if step <= self.last_step:
            self._points = [point for point in self._points if point[0] < step]
            self._bucket = [point for point in self._bucket if point[0] < step]
        self._bucket.append((step, tuple(figures[name] for name in self._names)))
        if len(self._bucket) >= self.stride:
            self._points.append(_mean(self._bucket))
            self._bucket = []
        if len(self._points) > self._limit:
            self._points = [_mean(self._points[i : i + 2]) for i in range(0, len(self._points), 2)]
            self.stride *= 2

    @property
    def last_step(self) -> int:
        """The newest step, 0 before the first."""
        newest = self._bucket or self._points
        return newest[-1][0] if newest else 0

    def columns(self) -> dict[str, list[float]]:
        """`step` and each figure as lists of one length, in the order of steps."""
        points = [*self._points, *([_mean(self._bucket)] if self._bucket else [])]
        columns: dict[str, list[float]] = {"step": [step for step, _ in points]}
        for place, name in enumerate(self._names):
            columns[name] = [figures[place] for _, figures in points]
        return columns


def _mean(points: list[tuple[int, tuple[float, ...]]]) -> tuple[int, tuple[float, ...]]:
    """The mean of some points' figures, at the last one's step."""
    figures = zip(*(figures for _, figures in points), strict=True)
    return points[-1][0], tuple(sum(column) / len(points) for column in figures)
