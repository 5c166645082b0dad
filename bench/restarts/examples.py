# SPDX-License-Identifier: Apache-2.0
"""The other examples as sides: scripts of frameworks, with all that these import, tqdm among it.

Their scripts tell no first step of each process. Rank 0's word that it has started is taken for it: it comes when the
process group, the model and the checkpoint are there, right before the first step.
"""

from collections.abc import Mapping
from functools import partial

from cluster_rounds.digits import Side

from e2e.example_job import objects_of
from e2e.kube import Object

NAMES = ("transformers", "accelerate", "lightning")
PACKAGES = {"PYTHONPATH": "/opt/torch/examples"}  # of all of them; torch imports tqdm where it is
ENDLESS = {"EPOCHS": "1000000", "STEPS": "1000000"}


def objects(namespace: str, replicas: int, env: Mapping[str, str], name: str, warm: bool) -> list[Object]:
    """The job of an example, which never ends."""
    script, job = objects_of(name, namespace, {**env, **ENDLESS})
    job["spec"] |= {
        "replicas": replicas,
        "maxRestarts": 1000,  # one for each kill
        "warmRestart": "Enabled" if warm else "Disabled",
    }
    return [script, job]


SIDES = {
    f"{name}_{'warm' if warm else 'fresh'}": Side(
        f"elasticjob/{name}",
        partial(objects, name=name, warm=warm),
        warm=warm,
        processes=2 if name == "accelerate" else 1,  # on CPUs it starts no fewer in a worker
    )
    for name in NAMES
    for warm in (True, False)
}
