# SPDX-License-Identifier: Apache-2.0
"""The cluster as the operator uses it: API calls, watches, their cache, the work queue, the Lease, events."""
