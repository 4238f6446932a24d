"""Build the nets of a solver for `plan -solver`, after the checks that `train` makes, in its order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import UsageError
from ...formats.prototxt.parser import Parsed, read_solver
from ...solvers import settings, solver_class
from ...solvers.nets import NetRequest, test_requests, train_request
from ...solvers.rules import Rule
from .plan_nets import Nets

Make = Callable[..., Nets]  # of (parsed, shape, level=, rule=)


def nets_of(path: str, given: Sequence[str], level: int, stages: Sequence[str], make: Make) -> Nets:
    """Return the train net of a solver file, after checking that `train` would begin with it.

    Its settings, train net and test nets are checked; the device's memory and the file system are not looked at.

    Args:
        given: each -shape, for the nets that have its blob.

    Raises:
        CaffeError: what `train` raises before its first iteration.
        UsageError: no net has the blob of a shape.
    """
    solver = read_solver(path)
    param, file, lines = solver.message, solver.filename, solver.lines
    param.train_state.level = level
    param.train_state.stage.extend(stages)
    rule = solver_class(param, file, lines).rule
    settings.check_file(param, rule, file, lines)
    request = train_request(param, file, lines)
    unused = set(given)

    def made(request: NetRequest, rule: Rule | None) -> Nets:
        tops = {top for layer in request.message.layer for top in layer.top}
        shapes = [shape for shape in given if "=" not in shape or shape.partition("=")[0] in tops]
        unused.difference_update(shapes)
        level = request.message.state.level
        nets = make(Parsed(request.message, request.lines, request.file), shapes, level=level, rule=rule)
        nets.build(nets.lms)
        return nets

    train = made(request, rule)
    for test in test_requests(param, file, lines):
        made(test, None)
    if unused:
        raise UsageError(f"-shape {min(unused)}: no net of {path} has that blob", fix="name a top of a data layer")
    return train
