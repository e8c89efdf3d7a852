"""Pretraining: the order of samples, masking, optimizers, checkpoints, and the loop that joins them."""
