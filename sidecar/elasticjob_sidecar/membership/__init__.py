# SPDX-License-Identifier: Apache-2.0
"""One worker's side of the rendezvous, pure: no socket, task or clock. The driver feeds it and does what it answers."""
