# SPDX-License-Identifier: Apache-2.0
"""Whole jobs in one process, on a virtual clock: the real operator and the real sidecars over a simulated cluster.

`make simulate SECONDS=60` tries seeds, `make simulate SEED=7` shows the history of one; docs/simulation.md says more.

- `loop`, `clocks`: time and chance, the same for the same seed.
- `store`, `api_server`, `validity`, `watches`, `garbage`: the API server. `network`: the way to it, with its faults.
- `kubelets`, `pods`, `containers`: nodes, pods and their processes. `sidecars`, `trainers`, `agents`, `workers`: what
  runs in them, `pipes` between them; `stubs` in their place.
- `operators`: the operator's processes. `people`, `faults`: what happens to all of these.
- `world`: one seed's; `one_job`: with a single job, for tests of their own. `lives`, `worker_lives`, `kinds`: what is
  tried. `judge`, `views`, `progress`, `claims`, `probes`: whether all went well.
"""
