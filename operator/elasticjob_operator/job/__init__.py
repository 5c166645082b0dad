# SPDX-License-Identifier: Apache-2.0
"""One job on paper: what is observed of it, and the status that says it. Pure; the rules are core's."""
