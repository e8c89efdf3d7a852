"""Results on the disk: their paths, what is finished, records of runs, journals, curves, descriptions. No MLflow."""
