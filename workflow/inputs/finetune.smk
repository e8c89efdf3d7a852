"""From wildcards to files and settings, for the rules of rules/finetune.smk."""


def finetuning_recipe(wildcards):
    return planning.recipe_json(plan.finetunings[wildcards.finetuning])


def finetuning_data(split):
    return lambda wildcards: plan.finetunings[wildcards.finetuning]["data"][split]


def finetuning_tokenizer(wildcards):
    return f"{plan.dataset_folder(plan.finetunings[wildcards.finetuning]['dataset'])}/tokenizer.json"


def finetuning_weights(wildcards):
    """The export to start from; none for random weights."""
    initial = plan.finetunings[wildcards.finetuning]["initial_weights"]
    return [f"results/phases/{initial['phase']}/huggingface"] if initial else []
