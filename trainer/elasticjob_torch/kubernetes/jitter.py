# SPDX-License-Identifier: Apache-2.0
"""Random parts of pauses. Not by Python's shared generator: its numbers are the script's, and a script that seeds it in
each process alike would make all of them pause alike."""

from random import SystemRandom

uniform = SystemRandom().uniform
