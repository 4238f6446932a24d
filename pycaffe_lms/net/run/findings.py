"""Warns once per layer of bad values that device code found while it ran."""

from __future__ import annotations

import logging

from ..build.graph import Graph

_log = logging.getLogger(__name__)


class Findings:
    """Collect findings of the layers of a graph whose kernels check values (see `Layer.finding`).

    names: the user's blob names by the generated ones.
    """

    def __init__(self, graph: Graph, file: str | None, names: dict[str, str]):
        self._file, self._names = file, names
        self._silent = [node for node in graph.nodes if node.layer.declares.reports_device_errors]

    def say(self) -> None:
        """Log a warning for each layer with a new finding. Does not wait for the device: later findings come later."""
        for node in list(self._silent):
            error = node.layer.device_error()
            if error is not None:
                self._silent.remove(node)
                error.message += ": what it should name is NaN (reported once)"
                error.rename(self._names)
                _log.warning("%s", error.at(file=self._file, line=node.line))
