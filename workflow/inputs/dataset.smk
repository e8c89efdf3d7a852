"""Functions from wildcards to files, for the rules of shards.smk and encode.smk."""

from bertline.corpus.removal import overlap_template, removal_inputs


def recipe_of_dataset(wildcards):
    return recipes.dataset_recipe(plan, wildcards.dataset)


def datasets_by_tokenizer(key):
    """Return the datasets whose tokenizer has the setting `key`: `train`, or `file`, which is used unchanged."""
    datasets = plan.built_datasets.items()
    return [name for name, entry in datasets if key in entry["settings"]["tokenizer"]]


def of_all_corpora(pattern):
    """Return a function for a rule's input: the files of all parts of all corpora of its dataset."""
    return lambda wildcards: of_all_parts(
        pattern, plan.datasets[wildcards.dataset]["corpora"]
    )


def encoded_shards(wildcards):
    return targets.samples(plan, [wildcards.dataset])


def vocabulary_file(wildcards):
    return plan.datasets[wildcards.dataset]["settings"]["tokenizer"]["file"]


def tokenizer_options(wildcards):
    tokenizer = plan.datasets[wildcards.dataset]["settings"]["tokenizer"]
    return [
        f"--{'' if tokenizer[key] else 'no-'}{key.replace('_', '-')}"
        for key in ("lowercase", "strip_accents")
        if tokenizer[key] is not None
    ]


def removal_sources(wildcards):
    return [
        file
        for pattern in removal_inputs(recipe_of_dataset(wildcards)).values()
        for file in of_all_corpora(pattern)(wildcards)
    ]


def removal_list(wildcards):
    """Return the list of documents that the dataset leaves out, if there is one."""
    removed = paths.REMOVED.format(dataset=wildcards.dataset)
    return [removed] if removal_inputs(recipe_of_dataset(wildcards)) else []


def overlap_reports(wildcards):
    """Return the overlap of a dataset's parts with the evaluation sets, unless it is ignored."""
    recipe = recipe_of_dataset(wildcards)
    if recipe["settings"]["evaluation_overlap"] == "ignore":
        return []
    return of_all_corpora(overlap_template(recipe))(wildcards)


def evaluation_files(wildcards):
    """Return the files of the evaluation sets. Raises ValueError for those of another configuration."""
    planned = plan.evaluation and plan.evaluation["fingerprint"]
    if planned != wildcards.evaluation:
        raise ValueError(f"{wildcards.evaluation} is not of this configuration")
    return [file for files in plan.evaluation["sets"].values() for file in files]
