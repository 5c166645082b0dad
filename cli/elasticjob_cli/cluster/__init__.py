# SPDX-License-Identifier: Apache-2.0
"""The API server as the command line tool uses it, with the user's own kubeconfig and rights."""
