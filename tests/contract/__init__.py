# SPDX-License-Identifier: Apache-2.0
"""The contract between torch's elastic agent and its rendezvous, tried with real parts; see `cluster`."""
