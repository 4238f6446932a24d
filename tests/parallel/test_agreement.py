"""Tests what ranks compare before they train: each difference is one line, the same on all, with ranks and hosts."""

from __future__ import annotations

import socket

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.parallel.agreement import Disagreement, agree, of_files, of_solver
from pycaffe_lms.parallel.host import HostCommunicator

from ..solvers.helpers import solver_text
from .ranks import in_threads, rank_solver
from .test_data_parallel import LAYERS, rows

HOST = socket.gethostname()


def compared(*facts: dict[str, str]) -> list[str]:
    """Return what each rank was told."""

    def work(rank, path):
        communicator = HostCommunicator(get_device("cpu"), path, len(facts), rank)
        try:
            agree(communicator.gather, facts[rank])
        except Disagreement as error:
            return error.message
        finally:
            communicator.close()
        return ""

    return in_threads(len(facts), work)


def test_ranks_that_agree():
    assert compared({"NumPy": "2.0", "net": "a\nb"}, {"NumPy": "2.0", "net": "a\nb"}) == ["", ""]


def test_each_difference_is_a_line_with_ranks_hosts_and_values():
    one, two, three = {"-lms_budget": "8GB"}, {"-lms_budget": "6GB"}, {"-lms_budget": "6GB", "NumPy": "2.0"}
    expected = (
        f"ranks 1, 2 on {HOST}: -lms_budget is 6GB, rank 0 on {HOST} has 8GB\n"
        f"rank 2 on {HOST}: NumPy is 2.0, rank 0 on {HOST} has not there"
    )
    assert compared(one, two, three) == [expected] * 3


def test_of_hosts_each_is_named():
    """As `gather` of three hosts would give."""
    said = ['["node1", {"NumPy": "2.0"}]', '["node2", {"NumPy": "1.26"}]', '["node3", {"NumPy": "1.26"}]']
    answers = iter([[s.encode() for s in said], [b"2.0", b"1.26", b"1.26"]])
    with pytest.raises(Disagreement) as caught:
        agree(lambda value: next(answers), {"NumPy": "2.0"})
    assert caught.value.message == "rank 1 on node2, rank 2 on node3: NumPy is 1.26, rank 0 on node1 has 2.0"


def test_of_long_texts_the_first_line_that_differs_is_shown():
    text = "".join(f"layer {i}\n" for i in range(100))
    (said, same) = compared({"the net": text}, {"the net": text.replace("layer 70\n", "layer seventy\n")})
    assert said == same == f"rank 1 on {HOST}: the net is 'layer seventy' in line 71, rank 0 on {HOST} has 'layer 70'"


def test_of_texts_that_differ_in_their_end_the_end_is_shown():
    (said, same) = compared({"the net": "a\nb\n"}, {"the net": "a\nb"})
    assert said == same == f"rank 1 on {HOST}: the net is 'b' in line 2, rank 0 on {HOST} has 'b\\n'"


def test_facts_of_a_solver_and_of_files(tmp_path):
    solver = rank_solver(solver_text(rows(tmp_path, 4) + LAYERS, base_lr=0.25), 0, 1)
    facts = of_solver(solver)
    assert "base_lr: 0.25" in facts["the solver"] and 'name: "ip1"' in facts["the train net"]
    assert facts['the data of layer "data"'] == "96 records"
    solver.close()
    first, same, other = (tmp_path / name for name in ("a", "b", "c"))
    first.write_bytes(b"1" * 3_000_000)
    same.write_bytes(b"1" * 3_000_000)
    other.write_bytes(b"1" * 2_999_999 + b"2")
    found = of_files(map(str, (first, same, other)))
    hashes = [found[f"the hash of {path}"] for path in (first, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
