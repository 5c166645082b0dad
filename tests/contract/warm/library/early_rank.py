"""Asks for the rank when it is imported."""

import os

SEEN = os.environ["RANK"]
