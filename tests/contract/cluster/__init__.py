# SPDX-License-Identifier: Apache-2.0
"""A cluster without machines, for tests and benchmarks of the rendezvous with its real parts.

    etcd and kube-apiserver   processes, by `support.ControlPlane`
    the operator              a process, as its image starts it
    sidecars                  a process for each worker pod, with the pod's environment and token
    the kubelet               `kubelet.py`: what a pod's status says, and how pods begin and end

Trainers are the caller's: it is told of each pod, starts what it likes at the pod's loopback address, and says how that
ended. `python -m contract.cluster` is told what to do over HTTP on loopback, see `serve.py`; it needs no torch, and
`contract/plane.py`, its client, needs only the standard library.
"""
