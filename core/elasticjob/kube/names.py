# SPDX-License-Identifier: Apache-2.0
"""By which name the API server knows each part of this project: in audit logs and in metadata.managedFields."""

from elasticjob import __version__


def user_agent(part: str) -> str:
    """Of `part`, such as "operator": name and version."""
    return f"{field_manager(part)}/{__version__}"


def field_manager(part: str) -> str:
    """The owner of the fields that `part` writes. It has no version: an upgrade would add an owner to each object."""
    return f"elasticjob-{part}"
