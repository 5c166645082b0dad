# SPDX-License-Identifier: Apache-2.0
"""How it is shown: tables for people, plain where the output is piped, JSON for programs."""
