"""Ranking of passages for queries, as in MS MARCO: a network scores the candidates of each query."""
