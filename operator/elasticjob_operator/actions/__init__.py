# SPDX-License-Identifier: Apache-2.0
"""Carries out decisions about one job: its status, access, template check and pods. Decides nothing."""
