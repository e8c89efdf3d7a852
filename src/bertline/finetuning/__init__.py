"""Fine-tuning on SQuAD, GLUE and custom tables, and its metrics."""
