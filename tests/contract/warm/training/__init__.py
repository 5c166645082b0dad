# SPDX-License-Identifier: Apache-2.0
"""The folder of a script; `python -m training.observe` finds it in the working directory."""
