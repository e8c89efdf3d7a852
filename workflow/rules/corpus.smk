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
        corpus=only(plan.corpora, from_dump),
    conda:
        "../../envs/bertline.yaml"
    threads: extraction_threads
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=240,
    params:
        slice=slice_option,
        extractor=extractor_options,
    shell:
        "python workflow/scripts/extract_part.py --part {input} {params.slice} {params.extractor}"
        " --processes {threads} --output {output} > {log} 2>&1"


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
        corpus=only(plan.corpora, from_dump),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **GROUPED_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    params:
        source=dump_name,
        minimum_characters=corpus_setting("minimum_characters"),
        steps=corpus_setting("cleaning"),
    shell:
        "python workflow/scripts/clean_part.py --extracted {input} --source {params.source}"
        " --minimum-characters {params.minimum_characters} --steps {params.steps}"
        " --documents {output.documents} --counts {output.counts} > {log} 2>&1"


rule read_files:
    input:
        ancient(text_file_paths),
    output:
        documents=paths.DOCUMENTS,
        counts=paths.COUNTS,
    log:
        "logs/read_files/{corpus}/{part}.log",
    benchmark:
        "benchmarks/read_files/{corpus}/{part}.tsv"
    wildcard_constraints:
        corpus=only(plan.corpora, from_files),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=120,
    params:
        files=text_files,
        source=corpus_name,
        encoding=corpus_setting("encoding"),
        separator=option_of_setting("--separator", "separator"),
        columns=column_options,
        unpack_ratio=corpus_setting("unpack_ratio"),
        minimum_characters=corpus_setting("minimum_characters"),
        steps=corpus_setting("cleaning"),
    message:
        "Reading the text files of {wildcards.part} of {wildcards.corpus}"
    shell:
        "python workflow/scripts/read_files.py --files {params.files:q} --source {params.source}"
        " --encoding {params.encoding:q} {params.separator} {params.columns} --unpack-ratio {params.unpack_ratio}"
        " --minimum-characters {params.minimum_characters} --steps {params.steps}"
        " --documents {output.documents} --counts {output.counts} > {log} 2>&1"


rule read_dataset:
    output:
        documents=paths.DOCUMENTS,
        counts=paths.COUNTS,
    log:
        "logs/read_dataset/{corpus}/{part}.log",
    benchmark:
        "benchmarks/read_dataset/{corpus}/{part}.tsv"
    wildcard_constraints:
        corpus=only(plan.corpora, from_hub),
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=lambda wildcards, attempt: 2000 * attempt,
        runtime=720,
    params:
        source=corpus_name,
        dataset=corpus_setting("dataset"),
        configuration=option_of_setting("--configuration", "configuration"),
        split=corpus_setting("split"),
        revision=corpus_setting("revision"),
        part=number_of_part,
        parts=corpus_setting("parts"),
        columns=column_options,
        minimum_characters=corpus_setting("minimum_characters"),
        steps=corpus_setting("cleaning"),
    message:
        "Reading {wildcards.part} of the dataset {params.dataset}"
    shell:
        "python workflow/scripts/read_dataset.py --dataset {params.dataset} {params.configuration}"
        " --split {params.split:q} --revision {params.revision} --part {params.part} --parts {params.parts}"
        " --source {params.source} {params.columns} --minimum-characters {params.minimum_characters} --steps {params.steps}"
        " --documents {output.documents} --counts {output.counts} > {log} 2>&1"
