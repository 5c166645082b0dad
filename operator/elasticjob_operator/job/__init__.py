# SPDX-License-Identifier: Apache-2.0
"""The pure part of one job: its objects are read into workers, and its state becomes a status. The rules are core's."""
