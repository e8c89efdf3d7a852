"""Functions from wildcards to files and settings, for the rules of shards.smk and encode.smk."""


def dataset_setting(*keys):
    """Return a function for a rule's parameter that is a setting of its dataset."""

    def value(wildcards):
        setting = plan.datasets[wildcards.dataset]["settings"]
        for key in keys:
            setting = setting[key]
        return setting

    return value


def of_all_corpora(pattern):
    """Return a function for a rule's input: the files of all parts of all corpora of its dataset."""
    return lambda wildcards: [
        pattern.format(corpus=corpus, part=part)
        for corpus in plan.datasets[wildcards.dataset]["corpora"]
        for part in parts_of(corpus)
    ]


def by_corpus(option, pattern):
    """Return a function for a rule's parameter: `option name file...` once for each corpus of its dataset."""

    def options(wildcards):
        words = []
        for corpus in plan.datasets[wildcards.dataset]["corpora"]:
            files = [
                pattern.format(corpus=corpus, part=part) for part in parts_of(corpus)
            ]
            words += [option, plan.corpora[corpus]["name"], *files]
        return shlex.join(words)

    return options


def training_shards(wildcards):
    return [
        paths.DATASET_SHARD.format(dataset=wildcards.dataset, shard=shard)
        for shard in plan.datasets[wildcards.dataset]["shards"]
        if shard != "held_out"
    ]


def encoded_shards(wildcards):
    return targets.samples(plan, [wildcards.dataset])


def lowercase_option(wildcards):
    tokenizer = plan.datasets[wildcards.dataset]["settings"]["tokenizer"]
    return "--lowercase" if tokenizer["lowercase"] else "--no-lowercase"


def overlap_pattern():
    """Return paths.OVERLAP for the evaluation sets of this configuration."""
    return paths.OVERLAP.replace(
        "{evaluation}", (plan.evaluation or {}).get("fingerprint", "")
    )


def removes(wildcards):
    """Return the patterns of the inputs of a dataset's removal list, by option."""
    settings = plan.datasets[wildcards.dataset]["settings"]
    patterns = {}
    if settings["duplicates"] != "keep":
        patterns["--signatures"] = paths.SIGNATURES
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
    """Return the list of documents that the dataset leaves out, if there is one."""
    removed = paths.REMOVED.format(dataset=wildcards.dataset)
    return [removed] if removes(wildcards) else []


def removal_option(wildcards):
    return " ".join(f"--removed {path}" for path in removal_list(wildcards))


def reports_overlap(wildcards):
    settings = plan.datasets[wildcards.dataset]["settings"]
    return settings["evaluation_overlap"] != "ignore"


def overlap_reports(wildcards):
    """Return the overlap of a dataset's parts with the evaluation sets, unless it is ignored."""
    if not reports_overlap(wildcards):
        return []
    return of_all_corpora(overlap_pattern())(wildcards)


def overlap_options(wildcards):
    if not reports_overlap(wildcards):
        return ""
    return by_corpus("--overlap", overlap_pattern())(wildcards)


def evaluation_files(wildcards):
    """Return the files of the evaluation sets. Raises ValueError for those of another configuration."""
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
