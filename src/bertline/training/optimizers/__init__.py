"""Optimizers, by name, and learning rates."""
