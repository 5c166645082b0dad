# SPDX-License-Identifier: Apache-2.0
"""What the user requests, before it is done: a job from a command line, and the effects of a change of its size.
Pure."""
