"""Tracking of results in MLflow: `run_tree` lays out a run's MLflow runs, `store` brings MLflow up to date."""
