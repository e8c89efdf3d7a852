"""The network, its heads, and conversion of weights to and from Hugging Face's layout."""
