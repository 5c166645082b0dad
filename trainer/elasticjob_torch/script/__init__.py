"""In a training process: a script's questions and reports to its worker's sidecar. Without torch."""
