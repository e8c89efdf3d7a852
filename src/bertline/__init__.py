"""bertline: raw text to a fine-tuned BERT, one Snakemake graph."""

__version__ = "0.1.0"
