"""Fine-tuning on SQuAD and GLUE, and the metrics that score it."""
