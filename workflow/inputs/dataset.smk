"""From wildcards to files and settings, for the rules of rules/shards.smk and rules/encode.smk."""


def dataset_setting(*keys):
    """A rule's parameter that is a setting of its dataset."""

    def value(wildcards):
        setting = plan.datasets[wildcards.dataset]["settings"]
        for key in keys:
            setting = setting[key]
        return setting

    return value


def of_all_corpora(pattern):
    """A rule's input: the files of all parts of all corpora of its dataset."""
    return lambda wildcards: [
        pattern.format(corpus=corpus, part=part)
        for corpus in plan.datasets[wildcards.dataset]["corpora"]
        for part in parts_of(corpus)
    ]


def by_corpus(option, pattern):
    """A rule's parameter: `option name file...` once for each corpus of its dataset."""

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
    shards = plan.datasets[wildcards.dataset]["shards"]
    return [
        f"results/datasets/{wildcards.dataset}/shards/{shard}.txt.zst"
        for shard in shards
        if shard != "held_out"
    ]


def encoded_shards(wildcards):
    return [
        f"results/datasets/{wildcards.dataset}/seq{length}/{shard}.h5"
        for length in SEQUENCE_LENGTHS
        for shard in plan.datasets[wildcards.dataset]["shards"]
    ]


def lowercase_option(wildcards):
    tokenizer = plan.datasets[wildcards.dataset]["settings"]["tokenizer"]
    return "--lowercase" if tokenizer["lowercase"] else "--no-lowercase"


def dataset_settings_json(wildcards):
    return planning.canonical_json(plan.datasets[wildcards.dataset]["settings"])


def sources_json(wildcards):
    """Where the text of each corpus of a dataset is from, for its card."""
    sources = {}
    for key in plan.datasets[wildcards.dataset]["corpora"]:
        name, settings = plan.corpora[key]["name"], plan.corpora[key]["settings"]
        sources[name] = {
            "fingerprint": key.removeprefix(f"{name}-"),
            "settings": planning.without_defaults(plan, settings["source"], settings),
            "licence": settings.get("licence"),
        }
    return planning.canonical_json(sources)
