"""Rules for the runs' records, MLflow, and the report."""


rule describe_run:
    output:
        paths.RECORD,
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
        record=planned_recipe("fingerprint"),
        digest=planned(recipes.digest_of_record, "run"),
    shell:
        "cp {params.record:q} {output:q} > {log:q} 2>&1"


# A separate job creates MLflow's database, because several processes that start on a new file corrupt it.
rule initialise_mlflow:
    output:
        touch(paths.MLFLOW_IS_INITIALISED),
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
        run_script("initialise_mlflow.py > {log:q} 2>&1")


rule track_pretraining:
    input:
        database=ancient(paths.MLFLOW_IS_INITIALISED),
        record=paths.RECORD,
        dataset=ancient(planned(inputs.card_of_run, "run")),
        metrics=ancient(planned(inputs.journals_of_run, "run")),
    output:
        paths.TRACKED_PRETRAINING,
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
        run_script("track.py {input.record:q} --output {output:q} > {log:q} 2>&1")


rule track_run:
    input:
        database=ancient(paths.MLFLOW_IS_INITIALISED),
        pretraining=ancient(planned(inputs.tracked_pretraining, "run")),
        record=paths.RECORD,
        scores=ancient(planned(inputs.scores_of_run, "run")),
        report=ancient(targets.report_page(plan)),
    output:
        paths.TRACKED_RUN,
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
        run_script(
            "track.py {input.record:q} --report {input.report:q} --output {output:q} > {log:q} 2>&1"
        )


rule log_model:
    input:
        tracked=ancient(paths.TRACKED_RUN),
        record=paths.RECORD,
        models=ancient(planned(inputs.models_of_run, "run")),
    output:
        paths.LOGGED_MODEL,
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
    params:
        register=registered_name,
    message:
        "Logging the models of run {wildcards.run} to MLflow"
    shell:
        run_script(
            "log_model.py {input.record:q} {params.register:q} --output {output:q} > {log:q} 2>&1"
        )


rule write_report:
    input:
        records=targets.of_runs(paths.RECORD, plan.runs),
        datasets=ancient(inputs.cards_of_report(plan)),
        metrics=ancient(expand(paths.PHASE_JOURNAL, phase=plan.phases)),
        trigrams=ancient(expand(paths.PHASE_TRIGRAM, phase=plan.phases)),
        scores=ancient(targets.scores(plan.finetunings)),
        kept=ancient(targets.choices(plan.kept)),
    output:
        report(paths.REPORT_PAGE, category="Report", caption="../report/report.rst"),
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
    params:
        folder=output_folder,
    message:
        "Writing the report"
    shell:
        run_script(
            "report.py {input.records:q} --directory {params.folder:q} > {log:q} 2>&1"
        )
