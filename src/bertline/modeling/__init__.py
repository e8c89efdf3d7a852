"""The network, its heads, and weights in and out of Hugging Face's layout."""
