"""Synthetic data of the demo: a generated world, text about it, and tasks with questions about it."""
