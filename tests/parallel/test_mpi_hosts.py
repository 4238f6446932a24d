"""Tests ranks on two hosts: two network namespaces with a cable between them, and host names of their own.

Hydra reaches the second host through a script in place of ssh. Nothing but TCP joins the ranks of the two.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from .mpi_ranks import MPIEXEC, TRAIN, environment, finish, needs_mpi
from .test_mpi_faults import LONG, gone
from .test_mpi_train import filled, snapshots

pytestmark = needs_mpi
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SCRIPT = """#!/bin/sh
# Hydra calls it as ssh: -x HOST COMMAND
[ "$1" = -x ] && shift
shift
exec unshare --uts sh -c "hostname node2 && exec ip netns exec {name}b $*"
"""


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Hosts:
    """Two hosts, node1 and node2."""

    def __init__(self, folder):
        self.name = f"caffe{os.getpid()}"
        self.script = folder / "enter"
        self.script.write_text(SCRIPT.format(name=self.name))
        self.script.chmod(0o755)
        for end in "ab":
            ip("netns", "add", self.name + end)
        ip("link", "add", f"{self.name}a", "type", "veth", "peer", "name", f"{self.name}b")
        for end, address in zip("ab", ADDRESSES, strict=True):
            host = self.name + end
            ip("link", "set", host, "netns", host)
            ip("-n", host, "addr", "add", f"{address}/24", "dev", host)
            for link in ("lo", host):
                ip("-n", host, "link", "set", link, "up")

    def close(self) -> None:
        for end in "ab":
            subprocess.run(["ip", "netns", "delete", self.name + end], capture_output=True)

    def cut(self) -> None:
        ip("-n", f"{self.name}a", "link", "set", f"{self.name}a", "down")

    def join(self) -> None:
        ip("-n", f"{self.name}a", "link", "set", f"{self.name}a", "up")

    def sent(self) -> int:
        """Bytes that went through the cable from node1 to node2."""
        statistics = ip("-n", f"{self.name}a", "-s", "link", "show", f"{self.name}a")
        return int(re.search(r"TX:.*\n\s*(\d+)", statistics)[1])

    def start(self, per_host: int, words: list[str], folder) -> subprocess.Popen:
        (folder / "hosts").write_text("".join(f"{address}:{per_host}\n" for address in ADDRESSES))
        launcher = [MPIEXEC, "-launcher", "ssh", "-launcher-exec", str(self.script), "-f", "hosts"]
        count = ["-n", str(2 * per_host), "-ppn", str(per_host)]
        within = ["unshare", "--uts", "sh", "-c", f'hostname node1 && exec ip netns exec {self.name}a "$@"', "sh"]
        return subprocess.Popen(
            [*within, *launcher, *count, *words],
            cwd=folder,
            env=environment(UCX_TLS="tcp,self"),  # the hosts share a kernel, and MPICH would notice
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("no ip or no unshare: install iproute2 and util-linux")
    made = None
    try:
        made = Hosts(tmp_path_factory.mktemp("hosts"))
        subprocess.run(["unshare", "--uts", "true"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not allowed here: {error.stderr}")
    yield made
    made.close()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["cpu"], id="cpu", marks=pytest.mark.thorough),
        pytest.param(["sim", "-lms", "1"], id="N", marks=pytest.mark.thorough),
        pytest.param(["sim", "-lms", "auto", "-lms_budget", "400KB"], id="auto", marks=pytest.mark.thorough),
    ],
)
def test_the_bits_of_one_host(tmp_path, hosts, words):
    (tmp_path / "alone").mkdir()
    alone = filled(tmp_path / "alone")
    command = [*TRAIN, "-solver", "s.prototxt", "-backend"]
    subprocess.run([*command, "cpu", "-gpu", "0,1,2,3"], cwd=alone, env=environment(), check=True, capture_output=True)
    before = hosts.sent()
    code, said = finish(hosts.start(2, [*command, *words], filled(tmp_path)))
    assert code == 0, said
    assert re.search(r"Ranks on node1: 0 .*, 1 ", said) and re.search(r"Ranks on node2: 2 .*, 3 ", said)
    assert snapshots(tmp_path) == snapshots(alone)
    weights = 4 * (16 * 28 + 20 * 577 + 5 * 21)
    assert hosts.sent() - before > 6 * 2 * weights  # each iteration half of the gradients, twice, and half of the sums


def begin(hosts, folder, *words: str) -> tuple[subprocess.Popen, list[int]]:
    """Return a rank on each host, once they train, and the numbers of their processes."""
    ranks = hosts.start(1, [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", *LONG, *words], filled(folder))
    said = ""
    while "Iteration 2 " not in said:
        line = ranks.stdout.readline()
        assert line, said
        said += line
    return ranks, [int(re.search(rf"Rank on node{r + 1}: {r} \(process (\d+)\)", said)[1]) for r in range(2)]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_is_named_with_its_host(tmp_path, hosts, rank):
    ranks, pids = begin(hosts, tmp_path)
    os.kill(pids[rank], signal.SIGKILL)
    code, said = finish(ranks)
    assert code != 0 and said.count("error:") == 1
    assert f"error: rank {rank} on node{rank + 1}: its process {pids[rank]} was ended by SIGKILL" in said
    assert gone(pids)


def test_a_rank_that_hangs_is_named_with_its_host(tmp_path, hosts):
    ranks, pids = begin(hosts, tmp_path, "-timeout", "3")
    os.kill(pids[1], signal.SIGSTOP)
    code, said = finish(ranks)
    named = f"error: rank 0 of 2 on node1: rank 1 (process {pids[1]} on node2) did not answer within 3 s"
    assert code != 0 and said.count("error:") == 1 and named in said and gone(pids)


def test_hosts_of_which_one_has_another_version(tmp_path, hosts):
    """The number of the version is patched on node2."""
    (tmp_path / "newer.py").write_text(
        "import socket, runpy, sys\n"
        "import pycaffe_lms.version, pycaffe_lms.parallel.agreement as agreement\n"
        "if socket.gethostname() == 'node2':\n"
        "    agreement.__version__ = '9.0'\n"
        "from pycaffe_lms.cli.main import main\n"
        "sys.exit(main())\n"
    )
    words = [sys.executable, "newer.py", "train", "-solver", "s.prototxt", "-backend", "cpu"]
    code, said = finish(hosts.start(1, words, filled(tmp_path)))
    assert code == 2 and re.search(r"error: rank 1 on node2: pycaffe-lms is 9\.0, rank 0 on node1 has \d", said)


@pytest.mark.thorough
def test_a_host_that_is_gone(tmp_path, hosts):
    """The cable is cut: the ranks of each host take the other for gone, and end."""
    ranks, pids = begin(hosts, tmp_path, "-hang_timeout", "3")
    hosts.cut()
    try:
        assert gone(pids)
    finally:
        hosts.join()
    code, said = finish(ranks)
    named = rf"error: rank 1 \(process {pids[1]} on node2\) has not been heard of for \d+ s"
    assert code != 0 and re.search(named, said), said
