"""In a training process: what a script may ask of its worker's sidecar and tell it. Without torch."""
