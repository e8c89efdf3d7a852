"""From wildcards to files and settings, for the rules of rules/removal.smk and those that use their results."""

from bertline.fingerprint import STAGE_VERSIONS

# The version stands in the path: corpora are not made again when the way to compare them changes.
SIGNATURES = (
    f"results/corpora/{{corpus}}/signatures-{STAGE_VERSIONS['signatures']}/{{part}}.npy"
)
OVERLAP = "results/corpora/{corpus}/overlap/{evaluation}/{part}.json"


def overlap_pattern():
    """OVERLAP with the evaluation sets of this configuration."""
    return OVERLAP.replace(
        "{evaluation}", (plan.evaluation or {}).get("fingerprint", "")
    )


def removes(wildcards):
    """The patterns of what a dataset's removal list is made from, by the option that takes them."""
    settings = plan.datasets[wildcards.dataset]["settings"]
    patterns = {}
    if settings["duplicates"] != "keep":
        patterns["--signatures"] = SIGNATURES
    if settings["evaluation_overlap"] == "drop":
        patterns["--overlap"] = overlap_pattern()
    return patterns


def removal_sources(wildcards):
    return [
        file
        for pattern in removes(wildcards).values()
        for file in of_all_corpora(pattern)(wildcards)
    ]


def removal_options(wildcards):
    options = [
        by_corpus(option, pattern)(wildcards)
        for option, pattern in removes(wildcards).items()
    ]
    if plan.datasets[wildcards.dataset]["settings"]["duplicates"] == "near":
        options.append("--near")
    return " ".join(options)


def removal_list(wildcards):
    """The list of documents that the dataset leaves out, if it leaves any out."""
    return (
        [f"results/datasets/{wildcards.dataset}/removed.jsonl.zst"]
        if removes(wildcards)
        else []
    )


def removal_option(wildcards):
    return " ".join(f"--removed {path}" for path in removal_list(wildcards))


def reports_overlap(wildcards):
    settings = plan.datasets[wildcards.dataset]["settings"]
    return settings["evaluation_overlap"] != "ignore"


def overlap_reports(wildcards):
    """What was found of the evaluation sets in the parts of a dataset, if it wants to know."""
    if not reports_overlap(wildcards):
        return []
    return of_all_corpora(overlap_pattern())(wildcards)


def overlap_options(wildcards):
    if not reports_overlap(wildcards):
        return ""
    return by_corpus("--overlap", overlap_pattern())(wildcards)


def evaluation_files(wildcards):
    """The files of the evaluation sets; those of another configuration are refused."""
    if (
        plan.evaluation is None
        or plan.evaluation["fingerprint"] != wildcards.evaluation
    ):
        raise ValueError(f"{wildcards.evaluation} is not of this configuration")
    return [file for files in plan.evaluation["sets"].values() for file in files]


def evaluation_options(wildcards):
    return " ".join(
        f"--set {shlex.join([name, *files])}"
        for name, files in plan.evaluation["sets"].items()
    )
