"""Jobs of a cluster: the launcher of a training's ranks, schedulers, the check of site.yaml, the reasons of failures.

`launcher` starts the ranks of a job (`ranks`, `processes`, `srun`, `attempts`). `slurm` and `schedulers` hold what is
specific to one scheduler, `jobs` sends Snakemake's jobs to LSF, PBS and Cobalt. No other package of bertline imports
this one.
"""
