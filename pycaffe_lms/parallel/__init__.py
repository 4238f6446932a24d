"""Trains one net with several solvers, one process and one device each (data parallelism).

Every rank reads other records; gradients are averaged over the ranks, so all ranks keep the same weights.
`communicator.py` says what is needed of a communication library; `nccl.py` uses CUDA's, `host.py` is one over sockets
for CPUs and simulated devices. `data_parallel.py` joins a solver and a communicator. `launch.py` starts one process per
device, which meet at the place of `meeting.py`; `mpi.py` joins those that `mpirun` started, on any number of hosts.
"""
