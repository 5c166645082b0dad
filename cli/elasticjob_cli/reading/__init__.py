# SPDX-License-Identifier: Apache-2.0
"""What the objects of one job say, read together. Pure: the time is an argument."""
