# SPDX-License-Identifier: Apache-2.0
"""Code that all parts share: the API types and the rendezvous state machine."""

__version__ = "0.1.0"
