# SPDX-License-Identifier: Apache-2.0
"""The operator's access to the cluster: API calls, watches, their cache, the work queue, the Lease, events."""
