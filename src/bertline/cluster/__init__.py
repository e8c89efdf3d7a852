"""Jobs of a cluster: the launcher of a training's ranks, schedulers, the check of site.yaml, the reasons of failures.

`launcher` starts the ranks of a job (`ranks`, `processes`), `starter` those of one node for it. `slurm` and
`schedulers` contain code for specific schedulers, `scheduler_jobs` submits Snakemake's jobs to LSF, PBS, Cobalt and
Grid Engine, `kubernetes` to Kubernetes. No other package of bertline imports this one.
"""
