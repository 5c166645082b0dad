# SPDX-License-Identifier: Apache-2.0
"""Carries out for one job what was decided: its status, access, template check and pods. Decides nothing."""
