"""The graph that runs if regions of a net run in micro-batches."""

from __future__ import annotations

from pycaffe_lms.layers.base import count
from pycaffe_lms.lms.program import BufferKind, kind_of
from pycaffe_lms.net.passes.micro_batch import split_values, with_micro_batches
from pycaffe_lms.net.passes.regions import find_regions
from pycaffe_lms.net.program.buffers import assign
from tests.lms.split_nets import NETS

from .nets import graph


def micro_batched(name, parts):
    old = graph(NETS[name])
    return old, with_micro_batches(old, {region: parts for region in find_regions(old)})


def test_without_parts_it_is_the_graph_itself():
    old = graph(NETS["sums"])
    made = with_micro_batches(old, {})
    assert made.graph is old and all(ids == (v,) for v, ids in made.values.items()) and split_values(old, made) == []


def test_all_layers_of_a_part_come_before_the_next_part():
    old, made = micro_batched("sums", 3)
    names = [node.layer.param.name for node in old.nodes]
    [region] = made.starts
    inside = names[region.first : region.last + 1]
    assert [n.layer.param.name for n in made.graph.nodes] == names[: region.first] + 3 * inside + names[
        region.last + 1 :
    ]
    assert [n.index for n in made.graph.nodes] == list(range(len(made.graph.nodes)))
    parts = [n.part for n in made.graph.nodes if n.part]
    assert parts == [(i, 3) for i in range(3) for _ in inside]
    assert made.graph.nodes[region.first].name == f"{names[region.first]} [1/3]"
    assert made.graph.nodes[-1].origin == len(old.nodes) - 1


def test_parts_together_are_the_whole():
    old, made = micro_batched("chain", 3)
    assert list(made.starts.values()) == [(0, 2, 4, 7)]
    for value in old.values:
        ids = made.values[value.id]
        shapes = [made.graph.values[v].shape for v in ids]
        assert sum(s[0] for s in shapes) == value.shape[0] if value.shape else shapes == [()]
        assert all(s[1:] == value.shape[1:] for s in shapes)
        assert {made.graph.values[v].blob for v in ids} == {value.name}
    for v in made.graph.values:
        assert made.graph.values[v.id] is v and made.graph.nodes[v.producer].index == v.producer
        if v.rows is not None:
            whole = made.graph.values[v.whole]
            assert v.shape == (v.rows[1] - v.rows[0], *whole.shape[1:]) and whole.rows is None


def test_buffers_of_parts_and_of_wholes():
    """Inner values have a buffer for each part; images of a whole lie in its buffer; parameters have one, as before."""
    old, made = micro_batched("sums", 2)
    run = made.graph
    for node in run.nodes:
        node.layer.scratches.clear()
    table = assign(run, 4)
    split_memories = split_values(old, made)
    for v in run.values:
        if v.whole is not None:
            assert (v.data, v.diff) == (run.values[v.whole].data, run.values[v.whole].diff)
        else:
            assert table.used_bytes[v.data] == table.used_bytes[v.diff] == 4 * count(v.shape)
    names = [b.name for b in table.buffers]
    assert len(set(names)) == len(names) and names.count("c1.param0.data") == 1
    assert {p.data for p in old.params} == {
        names.index(f"{old.nodes[p.node].name}.param{p.position}.data") for p in old.params
    }
    by_id = {p.id: p for p in split_memories}
    inner = [v for v in old.values if len(made.values[v.id]) == 2]
    assert inner and all(kind_of(v.data) is kind_of(v.diff) is BufferKind.SPLIT for v in inner)
    for v in inner:
        assert by_id[v.data].buffers == tuple(run.values[i].data for i in made.values[v.id])
        assert by_id[v.data].name.endswith(".data") and by_id[v.diff].name.endswith(".diff")
    assert all(kind_of(v.data) is not BufferKind.SPLIT for v in old.values if v not in inner)


def test_in_place_layers_work_in_place_within_a_part_but_not_across_the_border():
    old, made = micro_batched("branches", 2)
    for node in made.graph.nodes:
        node.layer.scratches.clear()
    assign(made.graph, 4)
    found = {}
    for node in made.graph.nodes:
        if node.part and node.layer.param.top[0] == node.layer.param.bottom[0]:
            bottom, top = made.graph.values[node.bottoms[0]], made.graph.values[node.tops[0]]
            found.setdefault(node.layer.param.name, set()).add(bottom.data == top.data)
    assert found["relu_b"] == {True}  # inside
    assert found["scale"] == {False}  # its bottom is BatchNorm's top, which is whole
    assert old.nodes[0].layer.param.name == "data"
