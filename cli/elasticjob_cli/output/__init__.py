# SPDX-License-Identifier: Apache-2.0
"""Output: tables for people, plain text if it is piped, documents for programs."""
