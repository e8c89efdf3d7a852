"""From wildcards to files and settings, for the rules of rules/pretrain.smk."""


def phase_recipe(wildcards):
    return planning.recipe_json(plan.phases[wildcards.phase])


def phase_dataset(wildcards):
    return (
        f"{plan.dataset_folder(plan.phases[wildcards.phase]['dataset'])}/dataset.json"
    )


def phase_tokenizer(wildcards):
    return (
        f"{plan.dataset_folder(plan.phases[wildcards.phase]['dataset'])}/tokenizer.json"
    )


def phase_before(wildcards):
    """The weights that a phase starts from, if it does not start from random ones."""
    initial = plan.phases[wildcards.phase]["initial_weights"] or {}
    if "phase" in initial:
        return [f"results/phases/{initial['phase']}/model.safetensors"]
    return [f"{initial['directory']}/model.safetensors"] if initial else []


def folder_before(wildcards):
    files = phase_before(wildcards)
    return Path(files[0]).parent if files else ""
