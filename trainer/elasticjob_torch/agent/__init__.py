# SPDX-License-Identifier: Apache-2.0
"""In torchrun's own process: the rendezvous handler, the round's store, and the changes to torch's agent."""
