# SPDX-License-Identifier: Apache-2.0
"""Seven torchruns of `--rdzv-backend=kubernetes` under too little CPU: `make overload`.

The shape is that of torch's own test of ranks in a heterogeneous group: nodes with different numbers of processes, 25
in all. They, etcd and kube-apiserver are in one container, whose CPUs are cut to 0.4 and then to 0.12 once all train.
All stall together then, so nobody is lost: no process is started again, and the ranks of a node stay together.

    __main__   the host's side: runs the container, cuts its CPUs, judges
    inside     in the container: the API server, the seven torchruns
    agent      one torchrun, with the access to the API server that a pod has
    worker     one of the 25 processes
"""
