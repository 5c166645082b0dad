# SPDX-License-Identifier: Apache-2.0
"""In a training process: a script's questions and reports to its worker's sidecar. Without torch."""
