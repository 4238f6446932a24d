"""Several solvers that train one net together, one process and one device each: every rank sees other records,
gradients are averaged over the ranks, so all ranks keep the same weights.

`communicator.py` says what is needed of a library; `nccl.py` is CUDA's, `host.py` one over sockets for CPUs and
simulated devices; `data_parallel.py` joins a solver and a communicator; `launch.py` starts one process per device.
"""
