"""From weights to scores: one job for a task, a start and a seed."""


rule finetune_task:
    input:
        train=ancient(finetuning_data("train")),
        dev=ancient(finetuning_data("dev")),
        tokenizer=ancient(finetuning_tokenizer),
        initial_weights=ancient(finetuning_weights),
    output:
        scores="results/finetunings/{finetuning}/metrics.json",
        metrics="results/finetunings/{finetuning}/metrics.jsonl",
        recipe="results/finetunings/{finetuning}/recipe.json",
    log:
        "logs/finetune_task/{finetuning}.log",
    benchmark:
        "benchmarks/finetune_task/{finetuning}.tsv"
    # Nothing waits for a score, and those from random weights could otherwise come before what all else waits for.
    priority: -1
    conda:
        "../../envs/bertline.yaml"
    threads: 1
    resources:
        **FINETUNING_JOB,
        mem_mb=8000,
        runtime=240,
    params:
        recipe=finetuning_recipe,
    shell:
        "python workflow/scripts/finetune.py --recipe {params.recipe:q} --tokenizer {input.tokenizer}"
        " --initial-weights {input.initial_weights} --output results/finetunings/{wildcards.finetuning}"
        " --threads {threads} > {log} 2>&1"
