"""Rules from shards to a tokenizer and HDF5 samples."""


rule train_tokenizer:
    input:
        ancient(made_of(inputs.training_shards, "dataset", [paths.DATASET_TOKENIZER])),
    output:
        paths.DATASET_TOKENIZER,
    log:
        "logs/train_tokenizer/{dataset}.log",
    benchmark:
        "benchmarks/train_tokenizer/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(datasets_by_tokenizer("train")),
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
            "train_tokenizer.py --recipe {params.recipe:q} --output {output:q} > {log:q} 2>&1"
        )


rule take_tokenizer:
    input:
        ancient(vocabulary_file),
    output:
        paths.DATASET_TOKENIZER,
    log:
        "logs/take_tokenizer/{dataset}.log",
    benchmark:
        "benchmarks/take_tokenizer/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(datasets_by_tokenizer("file")),
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        options=tokenizer_options,
    shell:
        run_script(
            "take_tokenizer.py {input:q} {params.options} --output {output:q} > {log:q} 2>&1"
        )


# One job for all lengths, so that the text is tokenized once.
rule encode_shard:
    input:
        shard=ancient(paths.DATASET_SHARD),
        plan=ancient(paths.SHARD_PLAN),
        tokenizer=ancient(paths.DATASET_TOKENIZER),
    output:
        expand(paths.DATASET_SAMPLES, length=SEQUENCE_LENGTHS, allow_missing=True),
    log:
        "logs/encode_shard/{dataset}/{shard}.log",
    benchmark:
        "benchmarks/encode_shard/{dataset}/{shard}.tsv"
    wildcard_constraints:
        dataset=only(plan.built_datasets),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=60,
    params:
        recipe=planned_recipe("dataset"),
        folder=lambda wildcards, input: Path(input.plan).parent,
    shell:
        run_script(
            "encode_shard.py --recipe {params.recipe:q} --shard {wildcards.shard:q}"
            " --directory {params.folder:q} > {log:q} 2>&1"
        )


rule write_dataset_card:
    input:
        plan=ancient(paths.SHARD_PLAN),
        tokenizer=ancient(paths.DATASET_TOKENIZER),
        samples=ancient(encoded_shards),
        counts=ancient(of_all_corpora(paths.COUNTS)),
        overlap=ancient(overlap_reports),
    output:
        paths.DATASET_CARD,
    log:
        "logs/write_dataset_card/{dataset}.log",
    benchmark:
        "benchmarks/write_dataset_card/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(plan.built_datasets),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    params:
        folder=output_folder,
        recipe=planned_recipe("dataset"),
        digest=planned(recipes.digest_of_sources, "dataset"),
    message:
        "Describing dataset {wildcards.dataset}"
    shell:
        run_script(
            "write_dataset_card.py --recipe {params.recipe:q} --directory {params.folder:q} > {log:q} 2>&1"
        )
