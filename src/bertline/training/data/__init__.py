"""From samples to the micro-batches of a rank."""
