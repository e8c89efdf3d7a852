"""What a person looks at: the runs' records, MLflow, and the report."""


rule describe_run:
    output:
        "results/runs/{run}/record-{fingerprint}.json",
    log:
        "logs/describe_run/{run}-{fingerprint}.log",
    benchmark:
        "benchmarks/describe_run/{run}-{fingerprint}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        record=record_json,
    shell:
        "python workflow/scripts/describe_run.py --record {params.record:q} --output {output} > {log} 2>&1"


# Only MLflow's own program makes its database: several that start on a fresh file break it for good.
rule initialise_mlflow:
    output:
        touch("results/mlflow-is-initialised"),
    log:
        "logs/initialise_mlflow.log",
    benchmark:
        "benchmarks/initialise_mlflow.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    shell:
        "python workflow/scripts/initialise_mlflow.py > {log} 2>&1"


rule track_pretraining:
    input:
        database=ancient("results/mlflow-is-initialised"),
        record="results/runs/{run}/record-{fingerprint}.json",
        dataset=ancient(dataset_card_of_run),
        metrics=ancient(phase_metrics_of_run),
    output:
        "results/runs/{run}/tracked-pretrain-{fingerprint}.json",
    log:
        "logs/track_pretraining/{run}-{fingerprint}.log",
    benchmark:
        "benchmarks/track_pretraining/{run}-{fingerprint}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=1000,
        runtime=60,
    shell:
        "python workflow/scripts/track.py {input.record} --output {output} > {log} 2>&1"


rule track_run:
    input:
        database=ancient("results/mlflow-is-initialised"),
        pretraining=ancient(pretraining_marker),
        record="results/runs/{run}/record-{fingerprint}.json",
        scores=ancient(scores_of_run),
        report=ancient(report_page()),
    output:
        "results/runs/{run}/tracked-complete-{fingerprint}.json",
    log:
        "logs/track_run/{run}-{fingerprint}.log",
    benchmark:
        "benchmarks/track_run/{run}-{fingerprint}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=1000,
        runtime=60,
    message:
        "Sending run {wildcards.run} to MLflow"
    shell:
        "python workflow/scripts/track.py {input.record} --report {input.report} --output {output} > {log} 2>&1"


rule log_model:
    input:
        tracked=ancient("results/runs/{run}/tracked-complete-{fingerprint}.json"),
        record="results/runs/{run}/record-{fingerprint}.json",
        export=ancient(export_of_run),
    output:
        "results/runs/{run}/logged-model-{fingerprint}.json",
    log:
        "logs/log_model/{run}-{fingerprint}.log",
    benchmark:
        "benchmarks/log_model/{run}-{fingerprint}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    message:
        "Keeping the model of run {wildcards.run} in MLflow"
    shell:
        "python workflow/scripts/log_model.py {input.record} --output {output} > {log} 2>&1"


rule write_report:
    input:
        records=records(),
        datasets=ancient(dataset_cards()),
        metrics=ancient(
            [f"results/phases/{phase}/metrics.jsonl" for phase in plan.phases]
        ),
        trigrams=ancient(
            [f"results/phases/{phase}/trigram.json" for phase in plan.phases]
        ),
        scores=ancient(scores()),
    output:
        report(
            "results/report/{fingerprint}/index.html",
            category="Report",
            caption="../report/report.rst",
        ),
    log:
        "logs/write_report/{fingerprint}.log",
    benchmark:
        "benchmarks/write_report/{fingerprint}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=1000,
        runtime=20,
    message:
        "Writing the report"
    shell:
        "python workflow/scripts/report.py --record {input.records}"
        " --output-directory results/report/{wildcards.fingerprint} > {log} 2>&1"
