# SPDX-License-Identifier: Apache-2.0
"""The failure detector between the sidecars of a round: who hears whom, and when, on connections of their own."""
