"""From sentences to shards, a tokenizer and HDF5 samples."""
