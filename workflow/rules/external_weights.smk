"""Rules that download and convert external weights, to resources/. These files are never deleted automatically."""


# Fetches only safetensors, JSON and vocabularies at one commit. An interrupted download continues.
rule fetch_hub_weights:
    output:
        directory(paths.HUB_WEIGHTS),
    log:
        "logs/fetch_hub_weights/{repository}/{revision}.log",
    benchmark:
        "benchmarks/fetch_hub_weights/{repository}/{revision}.tsv"
    wildcard_constraints:
        repository="[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*",
        revision="[0-9a-f]{40}",
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mem_mb=500,
        runtime=1440,
    shell:
        run_script(
            "fetch_hub_weights.py {wildcards.repository:q} {wildcards.revision}"
            " --contact {resources.contact} --output {output:q} > {log:q} 2>&1"
        )


# Google's releases are downloaded, unpacked and converted by one job: the conversion takes seconds.
rule convert_google_release:
    input:
        ancient(release_of_google(external_weights.release_files)),
    output:
        directory(paths.GOOGLE_WEIGHTS),
    log:
        "logs/convert_google_release/{google}.log",
    benchmark:
        "benchmarks/convert_google_release/{google}.tsv"
    wildcard_constraints:
        google="[0-9a-f]{16}",
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        contact=CONTACT,
        mem_mb=8000,
        runtime=1440,
    params:
        # As in `location_of`: a folder that was moved is not converted again.
        source=lambda wildcards, input: release_of_google(
            external_weights.release_options
        )(wildcards),
    shell:
        run_script(
            "fetch_google_release.py {params.source:q} --contact {resources.contact}"
            " --output {output:q} > {log:q} 2>&1"
        )
