# SPDX-License-Identifier: Apache-2.0
"""A module of the package, which the name of a class comes from."""


class Part:
    """To be pickled."""
