"""Where in the network a worker is, by the labels of its node. Pure."""

from collections.abc import Mapping

from elasticjob.objects import Object

Labels = Mapping[str, str]


def labels_of(node: Object) -> Labels:
    """What is kept of a node: any job may ask for any of them."""
    return node["metadata"].get("labels") or {}


def topology_of(node: str, labels: Labels, keys: tuple[str, ...]) -> tuple[str, ...]:
    """What the node says for each of `keys`, and its name; nothing where no key is asked for."""
    return (*(labels.get(key, "") for key in keys), node) if keys else ()
