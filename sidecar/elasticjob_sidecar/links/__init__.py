# SPDX-License-Identifier: Apache-2.0
"""The heartbeat links between the sidecars of a round, on connections of their own: which members are heard, and
when."""
