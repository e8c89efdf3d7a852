"""From wildcards to files and settings, for the rules of rules/report.smk."""


def record_json(wildcards):
    return planning.canonical_json(planning.record(plan, wildcards.run))


def dataset_card_of_run(wildcards):
    return f"{plan.dataset_folder(plan.runs[wildcards.run]['dataset'])}/dataset.json"


def phase_metrics_of_run(wildcards):
    return [
        f"results/phases/{phase}/metrics.jsonl"
        for phase in plan.runs[wildcards.run]["phases"].values()
    ]


def pretraining_marker(wildcards):
    """None for a run that fine-tunes weights from elsewhere."""
    name = wildcards.run
    return markers(
        "pretrain", {name: plan.runs[name]} if name in plan.trained_runs else {}
    )


def scores_of_run(wildcards):
    return [
        f"results/finetunings/{finetuning}/metrics.json"
        for finetuning in plan.runs[wildcards.run]["finetunings"].values()
    ]


def export_of_run(wildcards):
    last = list(plan.runs[wildcards.run]["phases"].values())[-1]
    return f"results/phases/{last}/huggingface"
