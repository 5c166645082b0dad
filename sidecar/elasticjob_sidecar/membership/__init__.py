# SPDX-License-Identifier: Apache-2.0
"""One worker's side of the rendezvous, pure: no socket, task or clock. The driver passes it inputs and carries out its
outputs."""
