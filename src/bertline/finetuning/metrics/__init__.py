"""Metric modules of Hugging Face's `evaluate`: `evaluate.load(path of a module, config_name)` downloads nothing."""
