"""Plans: the results that a configuration requests, their progress, and estimates of the remaining work."""
