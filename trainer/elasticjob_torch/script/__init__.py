# SPDX-License-Identifier: Apache-2.0
"""In a training process: what a script may ask of its worker's sidecar and tell it. Without torch."""
