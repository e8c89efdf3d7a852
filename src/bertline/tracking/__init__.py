"""From a run's results to MLflow: `run_tree` lays out its MLflow runs, `store` brings MLflow up to date."""
