"""Pretraining: the order of samples, masking, optimizers, checkpoints, and the training loop."""
