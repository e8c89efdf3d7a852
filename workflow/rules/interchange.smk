"""The same samples in the layouts of other programs: `snakemake nvidia`, `snakemake gpauloski`."""


rule nvidia:
    input:
        interchange_files(
            "nvidia/seq_len_{length}_dupe_factor_5/bertline_{split}_{shard}.hdf5",
            splits=["training", "test"],
        ),


rule gpauloski:
    input:
        interchange_files(
            "gpauloski/seq_len_{length}/train_{shard}.hdf5", splits=["training"]
        ),


rule export_nvidia:
    input:
        samples=ancient("results/datasets/{dataset}/seq{length}/{shard}.h5"),
        card=ancient("results/datasets/{dataset}/dataset.json"),
    output:
        "results/datasets/{dataset}/nvidia/seq_len_{length}_dupe_factor_{copies}/bertline_{split}_{shard}.hdf5",
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
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=240,
    shell:
        "python workflow/scripts/export_samples.py {input.samples} --dataset {input.card} --layout nvidia"
        " --dupe-factor {wildcards.copies} --outputs {output} > {log} 2>&1"


# No held-out text: its reader takes every file below the folder that it is given, and evaluates nothing.
rule export_gpauloski:
    input:
        samples=ancient("results/datasets/{dataset}/seq{length}/{shard}.h5"),
        card=ancient("results/datasets/{dataset}/dataset.json"),
    output:
        "results/datasets/{dataset}/gpauloski/seq_len_{length}/train_{shard}.hdf5",
    log:
        "logs/export_gpauloski/{dataset}/seq_len_{length}_{shard}.log",
    benchmark:
        "benchmarks/export_gpauloski/{dataset}/seq_len_{length}_{shard}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=240,
    shell:
        "python workflow/scripts/export_samples.py {input.samples} --dataset {input.card} --layout gpauloski"
        " --outputs {output} > {log} 2>&1"
