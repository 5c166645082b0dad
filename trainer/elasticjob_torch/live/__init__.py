# SPDX-License-Identifier: Apache-2.0
"""Lets training processes live through changes of the group: no restart, and no step is lost.

Optional: `elasticjob_torch.elastic` imports it when a script names it, and nothing else does. `Group` is what a script
sees. It learns of rounds from `rounds`, connects by `connecting`, brings all members to one state by `state` and
`transfer`, and counts by `step`. When a member is lost, `links` cuts the group's connections, and each wait in
`collectives` ends.
"""
