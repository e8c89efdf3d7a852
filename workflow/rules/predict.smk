"""Rules from fine-tuned models to files: predictions, features, and the submission for GLUE's server."""


rule predict_files:
    input:
        files=ancient(planned(inputs.inputs_of_prediction, "predicted")),
        model=ancient(planned(inputs.model_of_prediction, "predicted")),
    output:
        "{predicted}",
    log:
        "logs/predict_files/{predicted}.log",
    benchmark:
        "benchmarks/predict_files/{predicted}.tsv"
    wildcard_constraints:
        predicted=only(plan.predictions),
    conda:
        "../../envs/bertline.yaml"
    threads: 1
    resources:
        **PREDICTION_JOB,
        mem_mb=8000,
        runtime=240,
    params:
        recipe=lambda wildcards: recipes.recipe_path(
            plan.predictions[wildcards.predicted]["fingerprint"]
        ),
    shell:
        run_script(
            "predict_files.py {params.recipe:q} --output {output:q} --threads {threads} > {log:q} 2>&1"
        )


# For the GLUE server: each task's fine-tuning with the best dev score.
rule glue_submission:
    input:
        ancient(planned(targets.scores_for_submission, "run")),
    output:
        paths.SUBMISSION,
    log:
        "logs/glue_submission/{run}-{fingerprint}.log",
    benchmark:
        "benchmarks/glue_submission/{run}-{fingerprint}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        recipe=lambda wildcards: recipes.recipe_path(
            f"{wildcards.fingerprint}-submission"
        ),
    shell:
        run_script(
            "glue_submission.py {params.recipe:q} --output {output:q} > {log:q} 2>&1"
        )
