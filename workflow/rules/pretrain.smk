"""From HDF5 to weights: the phases of pretraining, and the model in Hugging Face's layout."""

from bertline.training.options import Options


rule pretrain_phase:
    # Inputs are named by fingerprints: their files' times say nothing, and must never train a model again.
    input:
        dataset=ancient(of(inputs.card_of_phase, "phase")),
        initial_weights=ancient(of(inputs.weights_before_phase, "phase")),
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
    # Placement, by a profile or site.yaml. None of it alters what is trained or trains anything again.
    resources:
        **PHASE_JOB,
        nodes=phase_size("nodes", 1),
        processes_per_node=phase_size("processes_per_node", 1),
        additional_nodes=phase_additional_nodes,
        # Or auto.
        micro_batch_tokens=phase_size("micro_batch_tokens", Options.micro_batch_tokens),
        # Options of scripts/pretrain.py that a site wants: --compile, --activation-checkpointing, --profile.
        trainer_options=phase_trainer_options,
        checkpoint_every_minutes=Options.checkpoint_every_minutes,
        # Before a Slurm job's walltime ends: for the step at work, and to save.
        minutes_to_save=5,
        attempt=lambda wildcards, attempt: attempt,
        log_every=Options.log_every,
        evaluate_every=Options.evaluate_every,
        # Not more with every attempt: what training takes does not grow.
        mem_mb=phase_size("memory_mb", 8000),
        runtime=phase_size("walltime", 1440),
    params:
        recipe=planned_recipe("phase"),
        folder=output_folder,
        initial_weights=lambda wildcards, input: [
            str(Path(weights).parent) for weights in input.initial_weights
        ],
    # Slurm tells every process of a job to stop: the shell and tee wait for the trainer, which saves. Snakemake deletes
    # the log ahead of every attempt; the one beside the checkpoints holds them all.
    shell:
        "trap '' TERM; mkdir -p {params.folder}/checkpoints; python workflow/scripts/launch.py --nodes {resources.nodes}"
        " --processes-per-node {resources.processes_per_node} --threads {threads} --additional-nodes={resources.additional_nodes:q}"
        " --checkpoints {params.folder}/checkpoints --attempt {resources.attempt}"
        " --minutes-to-save {resources.minutes_to_save} --options={resources.trainer_options:q}"
        " workflow/scripts/pretrain.py --recipe {params.recipe} --dataset {input.dataset}"
        " --initial-weights {params.initial_weights} --output {params.folder}"
        " --threads {threads} --micro-batch-tokens {resources.micro_batch_tokens}"
        " --checkpoint-every-minutes {resources.checkpoint_every_minutes}"
        " --log-every {resources.log_every} --evaluate-every {resources.evaluate_every}"
        " 2>&1 | tee -a {log} {params.folder}/checkpoints/training.log"


rule export_phase:
    input:
        weights=ancient(paths.PHASE_WEIGHTS),
        recipe=ancient(paths.PHASE_RECIPE),
        tokenizer=ancient(of(inputs.tokenizer_of_phase, "phase")),
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
        folder=input_folder,
    shell:
        "python workflow/scripts/export.py --phase {params.folder} --tokenizer {input.tokenizer}"
        " --output {output} > {log} 2>&1"


rule trigram_baseline:
    input:
        ancient(of(inputs.card_of_phase, "phase")),
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
        length=lambda wildcards: plan.phases[wildcards.phase]["settings"][
            "sequence_length"
        ],
    shell:
        "python workflow/scripts/trigram_baseline.py --dataset {input} --sequence-length {params.length} --output {output}"
        " > {log} 2>&1"
