"""Rules for the samples in the layouts of other programs: `snakemake nvidia`, `snakemake gpauloski`."""


rule export_nvidia:
    input:
        samples=ancient(paths.DATASET_SAMPLES),
        card=ancient(paths.DATASET_CARD),
    output:
        paths.NVIDIA_SAMPLES_COPIED,
    log:
        "logs/export_nvidia/{dataset}/seq_len_{length}_dupe_factor_{copies}_{split}_{shard}.log",
    benchmark:
        "benchmarks/export_nvidia/{dataset}/seq_len_{length}_dupe_factor_{copies}_{split}_{shard}.tsv"
    wildcard_constraints:
        length=r"\d+",
        copies=r"[1-9]\d*",
        split="training|test",
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=240,
    shell:
        run_script(
            "export_samples.py --samples {input.samples:q} --dataset {input.card:q} --layout nvidia"
            " --dupe-factor {wildcards.copies:q} --outputs {output:q} > {log:q} 2>&1"
        )


rule export_gpauloski:
    input:
        samples=ancient(paths.DATASET_SAMPLES),
        card=ancient(paths.DATASET_CARD),
    output:
        paths.GPAULOSKI_SAMPLES,
    log:
        "logs/export_gpauloski/{dataset}/seq_len_{length}_{shard}.log",
    benchmark:
        "benchmarks/export_gpauloski/{dataset}/seq_len_{length}_{shard}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=240,
    shell:
        run_script(
            "export_samples.py --samples {input.samples:q} --dataset {input.card:q} --layout gpauloski"
            " --outputs {output:q} > {log:q} 2>&1"
        )
