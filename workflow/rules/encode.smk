"""Rules from shards to a tokenizer and HDF5 samples."""


rule train_tokenizer:
    input:
        ancient(training_shards),
    output:
        paths.DATASET_TOKENIZER,
    log:
        "logs/train_tokenizer/{dataset}.log",
    benchmark:
        "benchmarks/train_tokenizer/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(plan.datasets, trains_tokenizer),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 8000 * attempt,
        runtime=120,
    params:
        kind=dataset_setting("tokenizer", "train"),
        vocab_size=dataset_setting("tokenizer", "vocab_size"),
        lowercase=lowercase_option,
        seed=dataset_setting("seed"),
    shell:
        "python workflow/scripts/train_tokenizer.py {input} --kind {params.kind}"
        " --vocab-size {params.vocab_size} {params.lowercase} --seed {params.seed} --output {output} > {log} 2>&1"


rule take_tokenizer:
    input:
        ancient(dataset_setting("tokenizer", "file")),
    output:
        paths.DATASET_TOKENIZER,
    log:
        "logs/take_tokenizer/{dataset}.log",
    benchmark:
        "benchmarks/take_tokenizer/{dataset}.tsv"
    wildcard_constraints:
        dataset=only(plan.datasets, takes_tokenizer),
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        lowercase=lowercase_option,
    shell:
        "python workflow/scripts/take_tokenizer.py {input:q} {params.lowercase} --output {output} > {log} 2>&1"


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
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    params:
        seed=dataset_setting("seed"),
        pair_objective=dataset_setting("pair_objective"),
        passes=dataset_setting("passes"),
        short_sequence_probability=dataset_setting("short_sequence_probability"),
        lengths=SEQUENCE_LENGTHS,
    shell:
        "python workflow/scripts/encode_shard.py {input.shard} --plan {input.plan} --tokenizer {input.tokenizer}"
        " --fingerprint {wildcards.dataset} --seed {params.seed} --pair-objective {params.pair_objective}"
        " --passes {params.passes}"
        " --short-sequence-probability {params.short_sequence_probability}"
        " --sequence-lengths {params.lengths} --outputs {output} > {log} 2>&1"


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
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    params:
        counts=by_corpus("--counts", paths.COUNTS),
        overlap=overlap_options,
        folder=output_folder,
        recipe=planned_recipe("dataset"),
        digest=of(digest_of_sources, "dataset"),
        lengths=SEQUENCE_LENGTHS,
    message:
        "Describing dataset {wildcards.dataset}"
    shell:
        "python workflow/scripts/write_dataset_card.py {params.folder} --plan {input.plan}"
        " --fingerprint {wildcards.dataset} --recipe {params.recipe} --sequence-lengths {params.lengths}"
        " {params.counts} {params.overlap} > {log} 2>&1"
