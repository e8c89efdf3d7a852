"""Corpora: download, extraction, cleaning, splitting into sentences and shards."""
