"""Models of a run for phones: trainable files, and files for inference only."""
