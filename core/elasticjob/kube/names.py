# SPDX-License-Identifier: Apache-2.0
"""The names of this project's parts in the API server's audit logs and in metadata.managedFields."""

from elasticjob import __version__


def user_agent(part: str) -> str:
    """The User-Agent of `part`, such as "operator": its name and version."""
    return f"{field_manager(part)}/{__version__}"


def field_manager(part: str) -> str:
    """The owner of the fields that `part` writes. It has no version: each upgrade would add an owner to each object."""
    return f"elasticjob-{part}"
