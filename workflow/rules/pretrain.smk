"""From HDF5 to weights: the phases of pretraining, and the model in Hugging Face's layout."""

from bertline.training.options import Options


rule pretrain_phase:
    # Inputs are named by fingerprints: their files' times say nothing, and must never train a model again.
    input:
        dataset=ancient(phase_dataset),
        initial_weights=ancient(phase_before),
    output:
        weights="results/phases/{phase}/model.safetensors",
        metrics="results/phases/{phase}/metrics.jsonl",
        recipe="results/phases/{phase}/recipe.json",
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
        nodes_beside=phase_beside,
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
        recipe=phase_recipe,
        initial_weights=folder_before,
    # Slurm tells every process of a job to stop: the shell and tee wait for the trainer, which saves. Snakemake deletes
    # the log ahead of every attempt; the one beside the checkpoints holds them all.
    shell:
        "trap '' TERM; mkdir -p results/phases/{wildcards.phase}/checkpoints; python workflow/scripts/launch.py --nodes {resources.nodes}"
        " --processes-per-node {resources.processes_per_node} --threads {threads} --beside={resources.nodes_beside:q}"
        " --checkpoints results/phases/{wildcards.phase}/checkpoints --attempt {resources.attempt}"
        " --minutes-to-save {resources.minutes_to_save} --options={resources.trainer_options:q}"
        " workflow/scripts/pretrain.py --recipe {params.recipe:q} --dataset {input.dataset}"
        " --initial-weights {params.initial_weights} --output results/phases/{wildcards.phase}"
        " --threads {threads} --micro-batch-tokens {resources.micro_batch_tokens}"
        " --checkpoint-every-minutes {resources.checkpoint_every_minutes}"
        " --log-every {resources.log_every} --evaluate-every {resources.evaluate_every}"
        " 2>&1 | tee -a {log} results/phases/{wildcards.phase}/checkpoints/training.log"


rule export_phase:
    input:
        weights=ancient("results/phases/{phase}/model.safetensors"),
        recipe=ancient("results/phases/{phase}/recipe.json"),
        tokenizer=ancient(phase_tokenizer),
    output:
        directory("results/phases/{phase}/huggingface"),
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
    shell:
        "python workflow/scripts/export.py --phase results/phases/{wildcards.phase} --tokenizer {input.tokenizer}"
        " --output {output} > {log} 2>&1"


rule trigram_baseline:
    input:
        ancient(phase_dataset),
    output:
        "results/phases/{phase}/trigram.json",
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
        recipe=phase_recipe,
    shell:
        "python workflow/scripts/trigram_baseline.py --dataset {input} --recipe {params.recipe:q} --output {output}"
        " > {log} 2>&1"
