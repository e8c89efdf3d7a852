"""Rules that download to resources/. These files are never deleted automatically."""

# Wikimedia allows at most two connections at a time; this limit applies with every profile and without one.
if "wikimedia_connections" not in workflow.global_resources:
    workflow.register_resource("wikimedia_connections", 2)
# Universities provide the mirrors of Project Gutenberg: use one connection at a time.
if "gutenberg_connections" not in workflow.global_resources:
    workflow.register_resource("gutenberg_connections", 1)


# The only checkpoint: the names of a dump's parts contain page ranges and are known only after listing.
checkpoint list_dump_parts:
    output:
        paths.DUMP_LISTING,
    log:
        "logs/list_dump_parts/{wiki}-{dump}.log",
    benchmark:
        "benchmarks/list_dump_parts/{wiki}-{dump}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mirrors=MIRRORS,
        wikimedia_connections=1,
        mem_mb=500,
        runtime=30,
    shell:
        run_script(
            "list_parts.py --wiki {wildcards.wiki:q} --dump {wildcards.dump:q} --contact {resources.contact}"
            " --mirrors {resources.mirrors} --output {output:q} > {log:q} 2>&1"
        )


rule download_part:
    input:
        ancient(paths.DUMP_LISTING),
    output:
        paths.DUMP_PART,
    log:
        "logs/download_part/{wiki}-{dump}/{part}.log",
    benchmark:
        "benchmarks/download_part/{wiki}-{dump}/{part}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mirrors=MIRRORS,
        wikimedia_connections=1,
        mem_mb=500,
        runtime=1440,
    shell:
        run_script(
            "download_part.py --listing {input:q} --part {wildcards.part:q} --contact {resources.contact}"
            " --mirrors {resources.mirrors} --output {output:q} > {log:q} 2>&1"
        )


rule download_evaluation:
    output:
        paths.EVALUATION_FILE,
    log:
        "logs/download_evaluation/{fingerprint}/{file}.log",
    benchmark:
        "benchmarks/download_evaluation/{fingerprint}/{file}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mem_mb=500,
        runtime=60,
    params:
        source=download_options,
    shell:
        run_script(
            "download_file.py {params.source} --contact {resources.contact}"
            " --output {output:q} > {log:q} 2>&1"
        )


rule download_text:
    output:
        paths.TEXT_FILE,
    log:
        "logs/download_text/{sha256}/{file}.log",
    benchmark:
        "benchmarks/download_text/{sha256}/{file}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mem_mb=500,
        runtime=1440,
    params:
        source=download_options,
    shell:
        run_script(
            "download_file.py {params.source} --contact {resources.contact}"
            " --output {output:q} > {log:q} 2>&1"
        )


rule download_book:
    output:
        paths.GUTENBERG_BOOK,
    log:
        "logs/download_book/{book}.log",
    benchmark:
        "benchmarks/download_book/{book}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mirrors=GUTENBERG_MIRRORS,
        gutenberg_connections=1,
        mem_mb=500,
        runtime=60,
    params:
        source=download_options,
    shell:
        run_script(
            "download_book.py --book {wildcards.book:q} {params.source} --contact {resources.contact}"
            " --mirrors {resources.mirrors} --output {output:q} > {log:q} 2>&1"
        )
