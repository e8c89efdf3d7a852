"""Data loading: from samples to the micro-batches of a rank."""
