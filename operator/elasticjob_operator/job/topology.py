# SPDX-License-Identifier: Apache-2.0
"""Where in the network a worker is, by the labels of its node. Pure."""

from elasticjob.reading import Labels


def topology_of(node: str, labels: Labels, keys: tuple[str, ...]) -> tuple[str, ...]:
    """What the node says for each of `keys`, and its name; nothing where no key is asked for."""
    return (*(labels.get(key, "") for key in keys), node) if keys else ()
