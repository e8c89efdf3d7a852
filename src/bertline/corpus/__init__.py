"""Get text: download, extract, clean, split into sentences, cut into shards."""
