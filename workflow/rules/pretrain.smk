"""Rules from HDF5 to weights: the phases of pretraining, and the model in Hugging Face's layout."""

from bertline.training.options import Options

PHASE_OUTPUTS = [f"{paths.PHASE}/{name}" for name in paths.PHASE_OUTPUTS]


rule pretrain_phase:
    # Inputs are named by fingerprints: file times are meaningless and must never cause another training.
    input:
        dataset=ancient(made_of(inputs.card_of_phase, "phase", PHASE_OUTPUTS)),
        samples=ancient(made_of(inputs.samples_of_phase, "phase", PHASE_OUTPUTS)),
        initial_weights=ancient(
            made_of(inputs.weights_before_phase, "phase", PHASE_OUTPUTS)
        ),
    output:
        weights=paths.PHASE_WEIGHTS,
        metrics=paths.PHASE_JOURNAL,
        recipe=paths.PHASE_RECIPE,
    log:
        "logs/pretrain_phase/{phase}.log",
    benchmark:
        "benchmarks/pretrain_phase/{phase}.tsv"
    conda:
        "../../envs/bertline.yaml"
    threads: phase_threads
    resources:
        **launched(
            size_of_phase,
            micro_batch_tokens="",  # by the type of the device
            mem_mb=8000,
            runtime=1440,
        ),
        checkpoint_every_minutes=Options.checkpoint_every_minutes,
        # Checkpoints from which other runs start.
        keep_steps=lambda wildcards: ",".join(
            map(str, sorted(plan.checkpoints.get(wildcards.phase, ())))
        ),
        log_every=Options.log_every,
        evaluate_every=Options.evaluate_every,
    params:
        recipe=planned_recipe("phase"),
        folder=output_folder,
        dataset=planned_location(inputs.card_of_phase, "phase"),
        initial_weights=initial_weights_option(inputs.weights_before_phase, "phase"),
    shell:
        launch(
            "pretrain.py --recipe {params.recipe:q} --dataset {params.dataset:q}"
            " {params.initial_weights:q} --output {params.folder:q} --threads {threads} --micro-batch-tokens={resources.micro_batch_tokens}"
            " --checkpoint-every-minutes {resources.checkpoint_every_minutes} --keep-steps={resources.keep_steps:q}"
            " --log-every {resources.log_every} --evaluate-every {resources.evaluate_every}"
        )


rule export_phase:
    input:
        weights=ancient(paths.PHASE_WEIGHTS),
        recipe=ancient(paths.PHASE_RECIPE),
        tokenizer=ancient(made_of(inputs.tokenizer_of, "phase", [paths.PHASE_EXPORT])),
    output:
        directory(paths.PHASE_EXPORT),
    log:
        "logs/export_phase/{phase}.log",
    benchmark:
        "benchmarks/export_phase/{phase}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=4000,
        runtime=30,
    params:
        folder=lambda wildcards, input: Path(input.weights).parent,
        tokenizer=planned_location(inputs.tokenizer_of, "phase"),
    shell:
        run_script(
            "export.py --phase {params.folder:q} --tokenizer {params.tokenizer:q}"
            " --output {output:q} > {log:q} 2>&1"
        )


rule export_checkpoint:
    input:
        recipe=ancient(paths.PHASE_RECIPE),
        tokenizer=ancient(
            made_of(inputs.tokenizer_of, "phase", [paths.CHECKPOINT_EXPORT])
        ),
    output:
        directory(paths.CHECKPOINT_EXPORT),
    log:
        "logs/export_checkpoint/{phase}-{step}.log",
    benchmark:
        "benchmarks/export_checkpoint/{phase}-{step}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=4000,
        runtime=30,
    params:
        folder=lambda wildcards, input: Path(input.recipe).parent,
        tokenizer=planned_location(inputs.tokenizer_of, "phase"),
    shell:
        run_script(
            "export.py --phase {params.folder:q} --tokenizer {params.tokenizer:q}"
            " --step {wildcards.step} --output {output:q} > {log:q} 2>&1"
        )


rule trigram_baseline:
    input:
        ancient(made_of(inputs.card_of_phase, "phase", [paths.PHASE_TRIGRAM])),
        ancient(made_of(inputs.samples_of_phase, "phase", [paths.PHASE_TRIGRAM])),
    output:
        paths.PHASE_TRIGRAM,
    log:
        "logs/trigram_baseline/{phase}.log",
    benchmark:
        "benchmarks/trigram_baseline/{phase}.tsv"
    conda:
        "../../envs/bertline.yaml"
    resources:
        **CPU_JOB,
        mem_mb=8000,
        runtime=60,
    params:
        dataset=planned_location(inputs.card_of_phase, "phase"),
        length=lambda wildcards: plan.phases[wildcards.phase]["settings"][
            "sequence_length"
        ],
    shell:
        run_script(
            "trigram_baseline.py --dataset {params.dataset:q} --sequence-length {params.length} --output {output:q}"
            " > {log:q} 2>&1"
        )
