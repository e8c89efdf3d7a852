"""The metrics as modules of Hugging Face's `evaluate`: `evaluate.load(path of one, config_name)` downloads nothing.

They hold no computation of their own. `evaluate` itself is not a dependency; importing one of them needs it.
"""
