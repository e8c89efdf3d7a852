"""Parts of bench/gpu.py; each has a function `run` that yields its results as dictionaries, most important first."""
