"""Policies that layers request from Large Model Support with `lms_param { policy: ... }`. Pure.

`asked_by_layers` says which buffers are managed or kept; `wanted_remats` and `remat_requests_of` say what a program may
and must rematerialize.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import CaffeError
from ...layers.base import Lives
from ...lms.config import LMSConfig
from ...lms.program import Mode
from ...lms.remat.requested import CannotRemat, RematRequests
from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph, Node
from .programs import AnyStep, Sequenced
from .steps import LayerStep, finish_step, forward_step, node_of, remat_step

RematSteps = Mapping[int, LayerStep]
"""Remat steps by the index of their forward in the program."""
_INSTEAD = "use AUTO, KEEP or SWAP, or leave lms_param out"


def policy_of(node: Node) -> int:
    """Return the policy of a layer, or of a group, whose layers all have the same."""
    return node.layer.param.lms_param.policy


def asked_by_layers(graph: Graph, config: LMSConfig) -> dict[int, bool]:
    """Return {buffer: True to manage it (SWAP, RECOMPUTE), False to keep it on the device} for layers with a policy.

    KEEP and SWAP apply to the data and diffs of a layer's tops, its parameters and its saved scratch; RECOMPUTE to what
    its remat step makes.

    Raises:
        LayerParamError: a RECOMPUTE is impossible.
    """
    asked: dict[int, bool] = {}
    for node in graph.nodes:
        policy = policy_of(node)
        if policy not in (LMSParameter.KEEP, LMSParameter.SWAP):
            continue
        ids = {b for t in node.tops for b in (graph.values[t].data, graph.values[t].diff)}
        ids |= {b for p in node.params for b in (graph.params[p].data, graph.params[p].diff)}
        for owner in (node, *(g for g in graph.groups if node.index in g.members)):
            ids |= {owner.scratch[s.name] for s in owner.layer.scratches.values() if s.lives is not Lives.CALL}
        asked.update(dict.fromkeys(ids, policy == LMSParameter.SWAP))
    if config.enabled:
        for node in graph.units():
            if policy_of(node) == LMSParameter.RECOMPUTE:
                asked.update(dict.fromkeys(_rematerialized(graph, node, config), True))
    return asked


def _rematerialized(graph: Graph, node: Node, config: LMSConfig) -> set[int]:
    """Return the buffers that the remat step of a layer with RECOMPUTE makes.

    Raises:
        LayerParamError: RECOMPUTE is impossible for the layer.
    """
    layer = node.layer
    if config.recompute is False:
        raise layer.error("lms_param { policy: RECOMPUTE } contradicts -lms_recompute off", fix="leave one of them out")
    forward = finish_step(graph, node) or forward_step(graph, node)
    remat = remat_step(graph, forward) if forward is not None else None
    if remat is None:
        raise layer.error(
            "lms_param { policy: RECOMPUTE }: a second forward would not make the same values, or runs on the host",
            fix=_INSTEAD,
        )
    workspace = {node.scratch[s.name] for s in layer.scratches.values() if s.lives is Lives.CALL}
    changed = [a.buffer for a in remat.step.accesses if a.mode is Mode.UPDATE]
    made = {a.buffer for a in remat.step.accesses if a.mode is Mode.OVERWRITE} - workspace
    tops = {graph.values[t].data: graph.values[t].name for t in node.tops}
    for b in changed:
        raise layer.error(
            f'lms_param {{ policy: RECOMPUTE }}: it runs in place on "{tops.get(b, "a buffer")}", so what it reads is '
            "gone",
            fix="give its top a name of its own, or " + _INSTEAD,
        )
    if not made & tops.keys():
        raise layer.error("lms_param { policy: RECOMPUTE }: it makes no value of its own", fix=_INSTEAD)
    for other in graph.nodes:
        shared = other.layer.shares_data()
        for j, t in enumerate(other.tops):
            value = graph.values[t]
            if value.data in made and j not in shared and other.index > node.index and other.index not in node.members:
                raise layer.error(
                    f'lms_param {{ policy: RECOMPUTE }}: layer "{other.name}" changes its top "{value.name}" in place, '
                    "so running it again does not make what is read",
                    fix=f'give the top of "{other.name}" a name of its own, or {_INSTEAD}',
                )
    return made


def wanted_remats(graph: Graph, remats: RematSteps, config: LMSConfig) -> dict[int, LayerStep]:
    """Return the remat steps of a program that may run: those of layers with RECOMPUTE and, if the configuration
    rematerializes, of all others without SWAP."""
    found = {}
    for s, step in remats.items():
        policy = policy_of(node_of(graph, step))
        if policy == LMSParameter.RECOMPUTE or (policy != LMSParameter.SWAP and config.recomputes):
            found[s] = step
    return found


def remat_requests_of(graph: Graph, sequenced: Sequenced, remats: RematSteps, scratch: frozenset[int]) -> RematRequests:
    """Return what a program must rematerialize: values of layers with RECOMPUTE that need not survive it
    (`net.keep`).

    Args:
        scratch: buffers whose content never outlives a step.
    Raises:
        LayerParamError: a step on the host reads such a value, or it is an output of a net that is trained.
    """
    steps = sequenced.steps
    trains = any(isinstance(step, LayerStep) and not step.forward for step in steps)
    turn = next((s for s, step in enumerate(steps) if not (isinstance(step, LayerStep) and step.forward)), len(steps))
    forced, buffers = set(), set()
    for s, remat in remats.items():
        makes = {a.buffer for a in remat.step.accesses if a.mode is not Mode.READ} - scratch
        node = node_of(graph, remat)
        if policy_of(node) != LMSParameter.RECOMPUTE:
            continue
        if not makes & sequenced.program.live_out:
            forced.add(s)
            buffers |= makes
        elif trains and any(graph.values[t].name in graph.outputs for t in node.tops):
            raise node.layer.error(
                "lms_param { policy: RECOMPUTE }: its top is an output of the net, which must last", fix=_INSTEAD
            )
    for step in steps:
        for a in step.step.accesses if step.step.host else ():
            if a.buffer in buffers:
                maker = next(r for r in forced if any(x.buffer == a.buffer for x in remats[r].step.accesses))
                raise node_of(graph, remats[maker]).layer.error(
                    f"lms_param {{ policy: RECOMPUTE }}: {step.step.name} reads its top on the host, so it is copied",
                    fix=_INSTEAD,
                )
    return RematRequests(frozenset(forced), turn, frozenset(buffers))


def cannot_remat(graph: Graph, steps: Sequence[AnyStep], failure: CannotRemat) -> CaffeError:
    """Return the error for a program of these steps, with the layer that was to be rematerialized."""
    made = steps[failure.made]
    assert isinstance(made, LayerStep), "other steps are not rematerialized"
    return node_of(graph, made).layer.error(
        "lms_param { policy: RECOMPUTE }: what it reads or makes is changed before step "
        f"{steps[failure.wanted].step.name} needs its values again",
        fix="give tops that are made in place names of their own, or " + _INSTEAD,
    )
