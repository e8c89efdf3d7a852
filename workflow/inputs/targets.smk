"""The files behind the targets that a person asks for, and behind the evaluation data."""


def built_datasets():
    """The datasets that this graph makes itself."""
    return {
        key: dataset for key, dataset in plan.datasets.items() if "path" not in dataset
    }


def dump_listings():
    """The pinned listing of every Wikimedia dump asked for."""
    return sorted(
        f"resources/wikimedia/{corpus['wiki']}/{corpus['settings']['dump']}/parts.json"
        for corpus in plan.corpora.values()
        if from_dump(corpus)
    )


def downloaded_files(wildcards):
    """Every part of every dump, and the evaluation data that comes from the network."""
    parts = [
        f"resources/wikimedia/{entry['wiki']}/{entry['settings']['dump']}/{part}.xml.bz2"
        for corpus, entry in plan.corpora.items()
        if from_dump(entry)
        for part in listing_of(corpus)["parts"]
    ]
    return parts + list(plan.downloads)


def sentence_files(wildcards):
    """The sentences of every part of every corpus that a dataset of this configuration is made from."""
    used = {
        corpus for dataset in built_datasets().values() for corpus in dataset["corpora"]
    }
    return [
        f"results/corpora/{corpus}/sentences/{part}.txt.zst"
        for corpus in sorted(used)
        for part in parts_of(corpus)
    ]


def encoded_files():
    """Every HDF5 file of the datasets that this graph makes: one that was deleted is made again."""
    return [
        f"results/datasets/{key}/seq{length}/{shard}.h5"
        for key, dataset in built_datasets().items()
        for length in SEQUENCE_LENGTHS
        for shard in dataset["shards"]
    ]


def interchange_files(pattern, splits):
    """A file in another program's layout for each training or test shard of the datasets that this graph makes."""
    return [
        f"results/datasets/{key}/"
        + pattern.format(length=length, split=split, shard=shard)
        for key, dataset in built_datasets().items()
        for length in SEQUENCE_LENGTHS
        for shard in dataset["shards"]
        if (split := "test" if shard == "held_out" else "training") in splits
    ]


def dataset_cards():
    return [f"{plan.dataset_folder(dataset)}/dataset.json" for dataset in plan.datasets]


def exports():
    last_phases = {
        list(run["phases"].values())[-1] for run in plan.trained_runs.values()
    }
    return [f"results/phases/{phase}/huggingface" for phase in sorted(last_phases)]


def scores():
    return [
        f"results/finetunings/{finetuning}/metrics.json"
        for finetuning in plan.finetunings
    ]


def tasks_without_data():
    """Files that are never there."""
    return [f"results/skipped/{run}/{task}" for run, task in plan.skipped]


def records():
    return [
        f"results/runs/{name}/record-{run['fingerprint']}.json"
        for name, run in plan.runs.items()
    ]


def markers(stage, runs):
    """The tracker's marks that a stage of these runs is in MLflow."""
    return [
        f"results/runs/{name}/tracked-{stage}-{run['fingerprint']}.json"
        for name, run in runs.items()
    ]


def logged_models():
    """The marks that the final model of every run that trains one is in MLflow."""
    return [
        f"results/runs/{name}/logged-model-{run['fingerprint']}.json"
        for name, run in plan.trained_runs.items()
    ]


def report_page():
    return f"results/report/{planning.report_fingerprint(plan)}/index.html"


def download_settings(wildcards):
    path = f"resources/evaluation/{wildcards.file}"
    if path not in plan.downloads:
        raise ValueError(f"{path} is no evaluation data of this configuration")
    return planning.recipe_json(plan.downloads[path])


def everything():
    """Named one by one, so that a result that was deleted is made again."""
    return [
        *exports(),
        *scores(),
        *tasks_without_data(),
        report_page(),
        *markers("complete", plan.runs),
        *logged_models(),
    ]
