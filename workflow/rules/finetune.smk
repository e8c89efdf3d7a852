"""Rules from weights to scores: one job per task, start and seed."""

from bertline.finetuning.options import Options as FinetuningOptions

FINETUNING_OUTPUTS = [f"{paths.FINETUNING}/{name}" for name in paths.FINETUNING_OUTPUTS]


# All fine-tunings that rank the passages with the same tokenizer share this collection.
rule tokenize_collection:
    input:
        source=ancient(
            made_of(inputs.source_of_collection, "collection", [paths.COLLECTION])
        ),
        tokenizer=ancient(
            made_of(inputs.tokenizer_of, "collection", [paths.COLLECTION])
        ),
    output:
        directory(paths.COLLECTION),
    log:
        "logs/tokenize_collection/{collection}.log",
    benchmark:
        "benchmarks/tokenize_collection/{collection}.tsv"
    conda:
        "../../envs/bertline.yaml"
    threads: 1
    resources:
        **CPU_JOB,
        mem_mb=4000,
        runtime=240,
    params:
        recipe=planned_recipe("collection"),
        tokenizer=planned_location(inputs.tokenizer_of, "collection"),
    shell:
        run_script(
            "tokenize_collection.py --recipe {params.recipe:q} --tokenizer {params.tokenizer:q}"
            " --output {output:q} --threads {threads} > {log:q} 2>&1"
        )


rule finetune_task:
    input:
        data=ancient(
            made_of(inputs.data_of_finetuning, "finetuning", FINETUNING_OUTPUTS)
        ),
        tokenizer=ancient(
            made_of(inputs.tokenizer_of, "finetuning", FINETUNING_OUTPUTS)
        ),
        initial_weights=ancient(
            made_of(inputs.weights_of_finetuning, "finetuning", FINETUNING_OUTPUTS)
        ),
    output:
        scores=paths.FINETUNING_SCORES,
        metrics=paths.FINETUNING_JOURNAL,
        recipe=paths.FINETUNING_RECIPE,
        model=directory(paths.FINETUNED_MODEL),
    log:
        "logs/finetune_task/{finetuning}.log",
    benchmark:
        "benchmarks/finetune_task/{finetuning}.tsv"
    # No job waits for a score, and those from random weights could otherwise run before jobs that others wait for.
    priority: -1
    conda:
        "../../envs/bertline.yaml"
    threads: from_site(size_of_finetuning, "cpus_per_node", 1)
    resources:
        **launched(
            size_of_finetuning,
            micro_batch_tokens=FinetuningOptions.micro_batch_tokens,
            mem_mb=8000,
            runtime=240,
        ),
        **FINETUNING_JOB,
        # Number of fine-tunings of one process that may use a GPU at once.
        fine_tunings_per_gpu=FinetuningOptions.fine_tunings_per_gpu,
    params:
        recipe=planned_recipe("finetuning"),
        folder=output_folder,
        tokenizer=planned_location(inputs.tokenizer_of, "finetuning"),
        initial_weights=initial_weights_option(
            inputs.weights_of_finetuning, "finetuning"
        ),
    shell:
        launch(
            "finetune.py --recipe {params.recipe:q} --tokenizer {params.tokenizer:q}"
            " {params.initial_weights:q} --output {params.folder:q} --threads {threads} --micro-batch-tokens {resources.micro_batch_tokens}"
            " --fine-tunings-per-gpu {resources.fine_tunings_per_gpu}"
        )


# The other models are deleted. Their scores and predictions stay.
rule keep_models:
    input:
        scores=ancient(planned(inputs.scores_of_choice, "kept")),
        predictions=ancient(planned(inputs.predictions_of_choice, "kept")),
    output:
        paths.KEPT_CHOICE,
    log:
        "logs/keep_models/{kept}.log",
    benchmark:
        "benchmarks/keep_models/{kept}.tsv"
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=500,
        runtime=10,
    params:
        recipe=planned_recipe("kept"),
        # A model that was made again for a new prediction is deleted again.
        predictions=planned(inputs.predictions_of_choice, "kept"),
    shell:
        run_script("keep_models.py {params.recipe:q} > {log:q} 2>&1")


# Everything else is made; this job's failure sets snakemake's exit status and prints a line at its end.
rule task_without_data:
    output:
        paths.SKIPPED_TASK,
    log:
        "logs/task_without_data/{run}/{task}.log",
    benchmark:
        "benchmarks/task_without_data/{run}/{task}.tsv"
    retries: 0
    localrule: True
    conda:
        "../../envs/bertline.yaml"
    resources:
        mem_mb=100,
        runtime=1,
    params:
        reason=lambda wildcards: plan.skipped[wildcards.run, wildcards.task],
    shell:
        "echo error: {params.reason:q} > {log:q}; exit 1"
