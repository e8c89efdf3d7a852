"""Rules from sentences to shards of equal size and a held-out one, without duplicates and text of evaluation sets."""


rule write_signatures:
    input:
        documents=ancient(paths.DOCUMENTS),
        counts=ancient(paths.COUNTS),
    output:
        paths.SIGNATURES,
    log:
        "logs/write_signatures/{corpus}/{part}.log",
    benchmark:
        "benchmarks/write_signatures/{corpus}/{part}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    shell:
        run_script(
            "write_signatures.py --documents {input.documents:q} --counts {input.counts:q}"
            " --output {output:q} > {log:q} 2>&1"
        )


rule collect_ngrams:
    input:
        ancient(evaluation_files),
    output:
        paths.NGRAMS,
    log:
        "logs/collect_ngrams/{evaluation}.log",
    benchmark:
        "benchmarks/collect_ngrams/{evaluation}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=60,
    params:
        recipe=planned_recipe("evaluation"),
    shell:
        run_script(
            "collect_ngrams.py --recipe {params.recipe:q} --output {output:q} > {log:q} 2>&1"
        )


rule find_overlap:
    input:
        documents=ancient(paths.DOCUMENTS),
        ngrams=ancient(paths.NGRAMS),
    output:
        paths.OVERLAP,
    log:
        "logs/find_overlap/{corpus}/{evaluation}/{part}.log",
    benchmark:
        "benchmarks/find_overlap/{corpus}/{evaluation}/{part}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=120,
    shell:
        run_script(
            "find_overlap.py --documents {input.documents:q} --ngrams {input.ngrams:q}"
            " --output {output:q} > {log:q} 2>&1"
        )


# The only job that compares the documents of all corpora, by their signatures.
rule list_removed:
    input:
        ancient(removal_sources),
    output:
        paths.REMOVED,
    log:
        "logs/list_removed/{dataset}.log",
    benchmark:
        "benchmarks/list_removed/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(plan.built_datasets),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=120,
    params:
        recipe=planned_recipe("dataset"),
    shell:
        run_script(
            "list_removed.py --recipe {params.recipe:q} --output {output:q} > {log:q} 2>&1"
        )


rule plan_shards:
    input:
        sentences=ancient(of_all_corpora(paths.SENTENCES)),
        index=ancient(of_all_corpora(paths.SENTENCE_INDEX)),
        removed=ancient(removal_list),
    output:
        paths.SHARD_PLAN,
    log:
        "logs/plan_shards/{dataset}.log",
    benchmark:
        "benchmarks/plan_shards/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(plan.built_datasets),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=60,
    params:
        recipe=planned_recipe("dataset"),
    shell:
        run_script(
            "plan_shards.py --recipe {params.recipe:q} --output {output:q} > {log:q} 2>&1"
        )


# The plan is made from all sentences. If they were inputs of each shard, too, their number would be the product of parts and
# shards: a graph with 600 of each took 46 s and 871 MB to plan.
rule write_shard:
    input:
        plan=ancient(paths.SHARD_PLAN),
    output:
        paths.DATASET_SHARD,
    log:
        "logs/write_shard/{dataset}/{shard}.log",
    benchmark:
        "benchmarks/write_shard/{dataset}/{shard}.tsv"
    wildcard_constraints:
        dataset=only(plan.built_datasets),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=60,
    shell:
        run_script(
            "write_shard.py --plan {input.plan:q} --shard {wildcards.shard:q} --output {output:q}"
            " > {log:q} 2>&1"
        )
