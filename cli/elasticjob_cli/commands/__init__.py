# SPDX-License-Identifier: Apache-2.0
"""The sub-commands: each asks the cluster, has it read, and shows it."""
