# SPDX-License-Identifier: Apache-2.0
"""What people ask for, on paper: a job from a command line, and what a change of its size leads to. Pure."""
