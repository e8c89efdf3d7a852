"""Rules from downloaded dumps, files and datasets to cleaned documents, part by part."""


rule extract_part:
    input:
        ancient(dump_part),
    output:
        temp(directory(paths.EXTRACTED)),
    log:
        "logs/extract_part/{corpus}/{part}.log",
    benchmark:
        "benchmarks/extract_part/{corpus}/{part}.tsv"
    wildcard_constraints:
        corpus=only(DUMPS),
    conda:
        "../../envs/bertline.yaml"
    threads: extraction_threads
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=40,
    params:
        recipe=planned_recipe("corpus"),
        slice=slice_option,
    shell:
        run_script(
            "extract_part.py --recipe {params.recipe:q} --part {input:q} {params.slice}"
            " --processes {threads} --output {output:q} > {log:q} 2>&1"
        )


rule clean_part:
    input:
        ancient(paths.EXTRACTED),
    output:
        documents=paths.DOCUMENTS,
        counts=paths.COUNTS,
    log:
        "logs/clean_part/{corpus}/{part}.log",
    benchmark:
        "benchmarks/clean_part/{corpus}/{part}.tsv"
    wildcard_constraints:
        corpus=only(DUMPS),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=20,
    params:
        recipe=planned_recipe("corpus"),
    shell:
        run_script(
            "clean_part.py --recipe {params.recipe:q} --extracted {input:q}"
            " --documents {output.documents:q} --counts {output.counts:q} > {log:q} 2>&1"
        )


# For all sources other than Wikimedia's dumps.
rule read_part:
    input:
        ancient(local_files),
    output:
        documents=paths.DOCUMENTS,
        counts=paths.COUNTS,
    log:
        "logs/read_part/{corpus}/{part}.log",
    benchmark:
        "benchmarks/read_part/{corpus}/{part}.tsv"
    wildcard_constraints:
        corpus=only([key for key in plan.corpora if key not in DUMPS]),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: source_of(wildcards).memory_mb * attempt,
        runtime=lambda wildcards: source_of(wildcards).runtime,
    params:
        recipe=planned_recipe("corpus"),
    message:
        "Reading {wildcards.part} of {wildcards.corpus}"
    shell:
        run_script(
            "read_part.py --recipe {params.recipe:q} --part {wildcards.part:q}"
            " --documents {output.documents:q} --counts {output.counts:q} > {log:q} 2>&1"
        )
