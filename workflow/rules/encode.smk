"""From shards to a tokenizer and HDF5 samples."""


rule train_tokenizer:
    input:
        ancient(training_shards),
    output:
        "results/datasets/{dataset}/tokenizer.json",
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
        "results/datasets/{dataset}/tokenizer.json",
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


# All lengths in one job: the text is tokenized once.
rule encode_shard:
    input:
        shard=ancient("results/datasets/{dataset}/shards/{shard}.txt.zst"),
        plan=ancient("results/datasets/{dataset}/plan.json"),
        tokenizer=ancient("results/datasets/{dataset}/tokenizer.json"),
    output:
        expand(
            "results/datasets/{{dataset}}/seq{length}/{{shard}}.h5",
            length=SEQUENCE_LENGTHS,
        ),
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
        plan=ancient("results/datasets/{dataset}/plan.json"),
        tokenizer=ancient("results/datasets/{dataset}/tokenizer.json"),
        samples=ancient(encoded_shards),
        counts=ancient(
            of_all_corpora("results/corpora/{corpus}/documents/{part}.counts.json")
        ),
        overlap=ancient(overlap_reports),
    output:
        "results/datasets/{dataset}/dataset.json",
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
        counts=by_corpus(
            "--counts", "results/corpora/{corpus}/documents/{part}.counts.json"
        ),
        overlap=overlap_options,
        settings=dataset_settings_json,
        sources=sources_json,
        lengths=SEQUENCE_LENGTHS,
    message:
        "Describing dataset {wildcards.dataset}"
    shell:
        "python workflow/scripts/write_dataset_card.py results/datasets/{wildcards.dataset} --plan {input.plan}"
        " --fingerprint {wildcards.dataset} --settings {params.settings:q} --sequence-lengths {params.lengths}"
        " {params.counts} {params.overlap} --sources {params.sources:q} > {log} 2>&1"


include: "interchange.smk"
