"""Metric modules for Hugging Face's `evaluate`: `evaluate.load(path of a module, config_name)` downloads nothing.

They only wrap the metrics of this package. Importing one requires `evaluate`, which is not a dependency.
"""
