# SPDX-License-Identifier: Apache-2.0
"""The command line tool's access to the API server, with the user's own kubeconfig and rights."""
