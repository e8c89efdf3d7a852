"""From sentences to shards of equal size, the held-out one apart."""


rule plan_shards:
    input:
        sentences=ancient(
            of_all_corpora("results/corpora/{corpus}/sentences/{part}.txt.zst")
        ),
        index=ancient(
            of_all_corpora("results/corpora/{corpus}/sentences/{part}.index.npy")
        ),
        removed=ancient(removal_list),
    output:
        "results/datasets/{dataset}/plan.json",
    log:
        "logs/plan_shards/{dataset}.log",
    benchmark:
        "benchmarks/plan_shards/{dataset}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=60,
    params:
        corpora=by_corpus(
            "--corpus", "results/corpora/{corpus}/sentences/{part}.txt.zst"
        ),
        shards=dataset_setting("shards"),
        held_out=dataset_setting("held_out"),
        removed=removal_option,
    shell:
        "python workflow/scripts/plan_shards.py {params.corpora} --shards {params.shards}"
        " --held-out {params.held_out} {params.removed} --output {output} > {log} 2>&1"


rule write_shard:
    input:
        plan=ancient("results/datasets/{dataset}/plan.json"),
        sentences=ancient(
            of_all_corpora("results/corpora/{corpus}/sentences/{part}.txt.zst")
        ),
    output:
        "results/datasets/{dataset}/shards/{shard}.txt.zst",
    log:
        "logs/write_shard/{dataset}/{shard}.log",
    benchmark:
        "benchmarks/write_shard/{dataset}/{shard}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=60,
    shell:
        "python workflow/scripts/write_shard.py --plan {input.plan} --shard {wildcards.shard} --output {output}"
        " > {log} 2>&1"
