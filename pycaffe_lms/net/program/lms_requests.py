"""What layers ask of Large Model Support: `lms_param { policy: ... }`, for buffers and programs. Holds no arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...errors import CaffeError
from ...layers.base import Lives
from ...lms.config import LMSConfig
from ...lms.program import Mode
from ...lms.remat.requested import CannotRemat, RematRequests
from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph, Node
from .programs import Sequenced
from .steps import LayerStep, forward_step, node_of, remat_step

Replays = Mapping[int, LayerStep]
_INSTEAD = "use AUTO, KEEP or SWAP, or leave lms_param out"


def policy_of(node: Node) -> int:
    """What a layer asks for; of a group, what all its layers ask for."""
    return node.layer.param.lms_param.policy


def asked_by_layers(graph: Graph, config: LMSConfig) -> dict[int, bool]:
    """Buffers of layers with an lms_param: True to manage them (SWAP, RECOMPUTE), False to keep them on the device.

    With KEEP and SWAP a layer's buffers are its tops' data and diffs, its parameters and its saved scratch; with
    RECOMPUTE, what its replay makes. Raises LayerParamError for a RECOMPUTE that is impossible."""
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
        for node in _units(graph):
            if policy_of(node) == LMSParameter.RECOMPUTE:
                asked.update(dict.fromkeys(_made_again(graph, node, config), True))
    return asked


def _units(graph: Graph) -> Iterator[Node]:
    """Groups, and layers that are in none: what an iteration runs."""
    inside = {m for group in graph.groups for m in group.members}
    yield from graph.groups
    yield from (node for node in graph.nodes if node.index not in inside)


def _made_again(graph: Graph, node: Node, config: LMSConfig) -> set[int]:
    layer = node.layer
    if config.recompute is False:
        raise layer.error("lms_param { policy: RECOMPUTE } contradicts -lms_recompute off", fix="leave one of them out")
    forward = forward_step(graph, node)
    replay = remat_step(graph, forward) if forward is not None else None
    if replay is None:
        raise layer.error(
            "lms_param { policy: RECOMPUTE }: a second forward would not make the same values, or runs on the host",
            fix=_INSTEAD,
        )
    workspace = {node.scratch[s.name] for s in layer.scratches.values() if s.lives is Lives.CALL}
    changed = [a.buffer for a in replay.step.accesses if a.mode is Mode.UPDATE]
    made = {a.buffer for a in replay.step.accesses if a.mode is Mode.OVERWRITE} - workspace
    tops = {graph.values[t].data: graph.values[t].name for t in node.tops}
    for b in changed:
        raise layer.error(
            f'lms_param {{ policy: RECOMPUTE }}: it runs in place on "{tops.get(b, "a buffer")}", so what it reads is '
            "gone", fix="give its top a name of its own, or " + _INSTEAD,
        )  # fmt: skip
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


def wanted_remats(graph: Graph, replays: Replays, config: LMSConfig) -> dict[int, LayerStep]:
    """Of a program's possible replays, those that may run: of layers with RECOMPUTE; where values may be made again, of
    others too, but not with SWAP."""
    found = {}
    for s, step in replays.items():
        policy = policy_of(node_of(graph, step))
        if policy == LMSParameter.RECOMPUTE or (policy != LMSParameter.SWAP and config.recomputes):
            found[s] = step
    return found


def remat_requests_of(graph: Graph, sequenced: Sequenced, replays: Replays, scratch: frozenset[int]) -> RematRequests:
    """What must be made again in a program: values of layers with RECOMPUTE, unless they must survive it
    (`net.keep`). Raises LayerParamError where the host reads one, and for an output of a net that is trained."""
    steps = sequenced.steps
    trains = any(isinstance(step, LayerStep) and not step.forward for step in steps)
    turn = next((s for s, step in enumerate(steps) if not (isinstance(step, LayerStep) and step.forward)), len(steps))
    forced, buffers = set(), set()
    for s, step in replays.items():
        makes = {a.buffer for a in step.step.accesses if a.mode is not Mode.READ} - scratch
        node = node_of(graph, step)
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
                maker = next(r for r in forced if any(x.buffer == a.buffer for x in replays[r].step.accesses))
                raise node_of(graph, replays[maker]).layer.error(
                    f"lms_param {{ policy: RECOMPUTE }}: {step.step.name} reads its top on the host, so it is copied",
                    fix=_INSTEAD,
                )
    return RematRequests(frozenset(forced), turn, frozenset(buffers))


def cannot_remat(graph: Graph, steps: Sequence, failure: CannotRemat) -> CaffeError:
    """The error for a program of these steps."""
    node = node_of(graph, steps[failure.made])
    return node.layer.error(
        "lms_param { policy: RECOMPUTE }: what it reads or makes is changed before step "
        f"{steps[failure.wanted].step.name} wants its values again",
        fix="give tops that are made in place names of their own, or " + _INSTEAD,
    )
