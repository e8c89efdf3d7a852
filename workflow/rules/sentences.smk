"""Rules from the documents of a corpus to their sentences, part by part."""


rule train_punkt:
    input:
        documents=ancient(of_corpus(paths.DOCUMENTS)),
        counts=ancient(of_corpus(paths.COUNTS)),
    output:
        directory(paths.PUNKT),
    log:
        "logs/train_punkt/{corpus}.log",
    benchmark:
        "benchmarks/train_punkt/{corpus}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=120,
    params:
        recipe=planned_recipe("corpus"),
    shell:
        run_script(
            "train_punkt.py --recipe {params.recipe:q} --output {output:q} > {log:q} 2>&1"
        )


rule split_sentences:
    input:
        documents=ancient(paths.DOCUMENTS),
        punkt=ancient(punkt_model),
    output:
        sentences=paths.SENTENCES,
        index=paths.SENTENCE_INDEX,
    log:
        "logs/split_sentences/{corpus}/{part}.log",
    benchmark:
        "benchmarks/split_sentences/{corpus}/{part}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=60,
    params:
        recipe=planned_recipe("corpus"),
    shell:
        run_script(
            "split_sentences.py --recipe {params.recipe:q} --documents {input.documents:q}"
            " --sentences {output.sentences:q} --index {output.index:q} > {log:q} 2>&1"
        )


# Targets by the name of a corpus whose parts are not listed yet: see planning/names.py.
for key in DUMPS:

    rule:
        name:
            names.corpus_rule(key)
        input:
            sentences_of(key),
