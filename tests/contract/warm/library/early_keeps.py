"""Keeps a copy of the environment from its import on."""

import os

ENVIRONMENT = os.environ.copy()
