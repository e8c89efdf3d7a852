"""From documents to the list of those that a dataset leaves out: duplicates, and text of the evaluation sets."""


rule write_signatures:
    input:
        documents=ancient("results/corpora/{corpus}/documents/{part}.jsonl.zst"),
        counts=ancient("results/corpora/{corpus}/documents/{part}.counts.json"),
    output:
        SIGNATURES,
    log:
        "logs/write_signatures/{corpus}/{part}.log",
    benchmark:
        "benchmarks/write_signatures/{corpus}/{part}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    shell:
        "python workflow/scripts/write_signatures.py --documents {input.documents} --counts {input.counts}"
        " --output {output} > {log} 2>&1"


rule collect_ngrams:
    input:
        ancient(evaluation_files),
    output:
        "results/evaluation/{evaluation}/ngrams.npz",
    log:
        "logs/collect_ngrams/{evaluation}.log",
    benchmark:
        "benchmarks/collect_ngrams/{evaluation}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=60,
    params:
        sets=evaluation_options,
    shell:
        "python workflow/scripts/collect_ngrams.py {params.sets} --output {output} > {log} 2>&1"


rule find_overlap:
    input:
        documents=ancient("results/corpora/{corpus}/documents/{part}.jsonl.zst"),
        ngrams=ancient("results/evaluation/{evaluation}/ngrams.npz"),
    output:
        OVERLAP,
    log:
        "logs/find_overlap/{corpus}/{evaluation}/{part}.log",
    benchmark:
        "benchmarks/find_overlap/{corpus}/{evaluation}/{part}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 1500 * attempt,
        runtime=120,
    shell:
        "python workflow/scripts/find_overlap.py --documents {input.documents} --ngrams {input.ngrams}"
        " --output {output} > {log} 2>&1"


# The one job that looks at the documents of all corpora together, by their signatures.
rule list_removed:
    input:
        ancient(removal_sources),
    output:
        "results/datasets/{dataset}/removed.jsonl.zst",
    log:
        "logs/list_removed/{dataset}.log",
    benchmark:
        "benchmarks/list_removed/{dataset}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=120,
    params:
        sources=removal_options,
    shell:
        "python workflow/scripts/list_removed.py {params.sources} --output {output} > {log} 2>&1"
