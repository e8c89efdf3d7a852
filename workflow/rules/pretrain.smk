"""From HDF5 to weights: the phases of pretraining, and the model in Hugging Face's layout."""


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
    threads: 16
    # Placement, to be set in a profile. None of it alters what is trained or trains anything again.
    resources:
        nodes=1,
        processes_per_node=1,
        # Or auto.
        micro_batch_tokens=16384,
        # Options of scripts/pretrain.py that a site wants: --compile, --recompute, --division measured, --profile.
        trainer_options="",
        checkpoint_every_minutes=15,
        log_every=10,
        evaluate_every=200,
        mem_mb=8000,
        runtime=1440,
    params:
        recipe=phase_recipe,
        initial_weights=folder_before,
    shell:
        "python workflow/scripts/launch.py --nodes {resources.nodes} --processes-per-node {resources.processes_per_node}"
        " workflow/scripts/pretrain.py --recipe {params.recipe:q} --dataset {input.dataset}"
        " --initial-weights {params.initial_weights} --output results/phases/{wildcards.phase}"
        " --threads {threads} --micro-batch-tokens {resources.micro_batch_tokens}"
        " --checkpoint-every-minutes {resources.checkpoint_every_minutes}"
        " {resources.trainer_options} --log-every {resources.log_every} --evaluate-every {resources.evaluate_every} 2>&1 | tee -a {log}"


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
        mem_mb=8000,
        runtime=60,
    params:
        recipe=phase_recipe,
    shell:
        "python workflow/scripts/trigram_baseline.py --dataset {input} --recipe {params.recipe:q} --output {output}"
        " > {log} 2>&1"
