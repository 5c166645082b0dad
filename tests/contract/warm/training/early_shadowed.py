# SPDX-License-Identifier: Apache-2.0
"""The script's own, in whose place the library has another."""
