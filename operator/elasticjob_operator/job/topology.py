# SPDX-License-Identifier: Apache-2.0
"""The position of a worker in the network, by the labels of its node. Pure."""

from elasticjob.reading import Labels


def topology_of(node: str, labels: Labels, keys: tuple[str, ...]) -> tuple[str, ...]:
    """The node's values for `keys`, followed by its name; empty if there are no keys."""
    return (*(labels.get(key, "") for key in keys), node) if keys else ()
