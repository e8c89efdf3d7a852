"""From wildcards to files and settings, for the rules of rules/finetune.smk."""


def finetuning_recipe(wildcards):
    return planning.recipe_json(plan.finetunings[wildcards.finetuning])


def finetuning_data(wildcards):
    return list(plan.finetunings[wildcards.finetuning]["data"].values())


def finetuning_tokenizer(wildcards):
    entry = plan.finetunings[wildcards.finetuning]
    if "tokenizer" in entry:
        return entry["tokenizer"]
    return f"{plan.dataset_folder(entry['dataset'])}/tokenizer.json"


def finetuning_weights(wildcards):
    """The export to start from, or weights from elsewhere; none for random weights."""
    initial = plan.finetunings[wildcards.finetuning]["initial_weights"] or {}
    if "phase" in initial:
        return [f"results/phases/{initial['phase']}/huggingface"]
    return [initial["directory"]] if initial else []


def reason_to_skip(wildcards):
    return plan.skipped[wildcards.run, wildcards.task]


def finetunings_for_submission(run):
    """Those of GLUE, from pretrained weights, that predict the test sets."""
    entries = [plan.finetunings[key] for key in run["finetunings"].values()]
    return [
        entry["fingerprint"]
        for entry in entries
        if entry["start"] == "pretrained"
        and "table" not in entry
        and entry["settings"].get("predict_test")
    ]


def scores_for_submission(wildcards):
    chosen = finetunings_for_submission(plan.runs[wildcards.run])
    return [f"results/finetunings/{key}/metrics.json" for key in chosen]


def submissions():
    return [
        f"results/runs/{name}/glue-submission-{run['fingerprint']}.zip"
        for name, run in plan.runs.items()
        if finetunings_for_submission(run)
    ]
