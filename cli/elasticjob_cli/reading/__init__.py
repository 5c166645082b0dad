# SPDX-License-Identifier: Apache-2.0
"""The objects of one job, read together. Pure: the time is an argument."""
