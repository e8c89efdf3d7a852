"""Jobs of a cluster: the launcher of a training's ranks, schedulers, the check of site.yaml, the reasons of failures.

`launcher` starts the ranks of a job (`ranks`, `processes`), `starter` those of one node for it. `slurm` and
`schedulers` contain code for specific schedulers, `jobs` submits Snakemake's jobs to LSF, PBS and Cobalt. No other
package of bertline imports this one.
"""
