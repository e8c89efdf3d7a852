"""Results on disk: paths, completion, records of runs, journals, curves, descriptions. Does not use MLflow."""
