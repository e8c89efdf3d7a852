"""Conversion of text to HDF5 samples: the tokenizer, the samples, their file layout, and the card of a dataset."""
