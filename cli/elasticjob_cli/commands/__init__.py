# SPDX-License-Identifier: Apache-2.0
"""The sub-commands. Each queries the cluster, has the objects read, and shows the result."""
