"""From wildcards to files and settings, for the rules of rules/corpus.smk."""


def corpus_setting(key):
    """A rule's input or parameter that is a setting of its corpus."""
    return lambda wildcards: plan.corpora[wildcards.corpus]["settings"][key]


def corpus_name(wildcards):
    return plan.corpora[wildcards.corpus]["name"]


def slice_of(wildcards):
    """A file of a dump, and which slice of it of how many; a part that the listing does not name is refused."""
    slices = slices_of(listing_of(wildcards.corpus))
    if wildcards.part not in slices:
        raise ValueError(
            f"{wildcards.corpus} has no part '{wildcards.part}'; its parts.json lists those it has"
        )
    return slices[wildcards.part]


def dump_part(wildcards):
    """The downloaded file that a part of a Wikimedia corpus is read from."""
    entry = plan.corpora[wildcards.corpus]
    file, _, _ = slice_of(wildcards)
    return paths.DUMP_PART.format(
        wiki=entry["wiki"], dump=entry["settings"]["dump"], part=file
    )


def slice_option(wildcards):
    _, number, of = slice_of(wildcards)
    return f"--slice {number} {of}" if of > 1 else ""


def extractor_options(wildcards):
    """What tells our own extractor to do the work; wikiextractor has no options."""
    settings = plan.corpora[wildcards.corpus]["settings"]
    if settings["extractor"] == "wikiextractor":
        return ""
    return f"--extractor {settings['extractor']} --list-items {settings['list_items']}"


def extraction_threads(wildcards):
    """Of our own extractor one; wikiextractor works beside the process that feeds it."""
    settings = plan.corpora[wildcards.corpus]["settings"]
    return 2 if settings["extractor"] == "wikiextractor" else 1


def dump_name(wildcards):
    entry = plan.corpora[wildcards.corpus]
    return f"{entry['wiki']}-{entry['settings']['dump']}"


def text_files(wildcards):
    """The files of a part, each with a mark where its name begins."""
    return plan.corpora[wildcards.corpus]["parts"][wildcards.part]


def text_file_paths(wildcards):
    return [str(Path(file)) for file in text_files(wildcards)]


def option_of_setting(option, key):
    """A rule's parameter: `option value`, or nothing where the corpus does not have the setting."""

    def value(wildcards):
        setting = plan.corpora[wildcards.corpus]["settings"].get(key)
        return f"{option} {shlex.quote(str(setting))}" if setting else ""

    return value


def column_options(wildcards):
    """Which columns of a table hold what."""
    settings = plan.corpora[wildcards.corpus]["settings"]
    keys = ("text", "id", "title", "url")
    return shlex.join(
        word
        for key in keys
        if key in settings
        for word in (f"--{key}-column", settings[key])
    )


def number_of_part(wildcards):
    return list(plan.corpora[wildcards.corpus]["parts"]).index(wildcards.part)


def of_all_parts(pattern):
    """A rule's input: the files of all parts of its corpus."""
    return lambda wildcards: [
        pattern.format(corpus=wildcards.corpus, part=part)
        for part in parts_of(wildcards.corpus)
    ]


def punkt_model(wildcards):
    """The folder of the Punkt model that splits a corpus's sentences, unless their marks alone do."""
    settings = plan.corpora[wildcards.corpus]["settings"]
    if settings["sentences"] == "unicode":
        return []
    trained = paths.PUNKT.format(corpus=wildcards.corpus)
    return trained if settings["punkt"] == "trained" else settings["punkt"]


def splitter_option(wildcards):
    model = punkt_model(wildcards)
    return f"--punkt {shlex.quote(model)}" if model else "--unicode"


def downloaded_files(wildcards):
    """Every part of every dump, and the evaluation data that comes from the network."""
    parts = [
        paths.DUMP_PART.format(
            wiki=entry["wiki"], dump=entry["settings"]["dump"], part=part
        )
        for corpus, entry in plan.corpora.items()
        if from_dump(entry)
        for part in listing_of(corpus)["parts"]
    ]
    return parts + list(plan.downloads)


def sentence_files(wildcards):
    """The sentences of every part of every corpus that a dataset of this configuration is made from."""
    used = {
        corpus
        for dataset in plan.built_datasets.values()
        for corpus in dataset["corpora"]
    }
    return [
        paths.SENTENCES.format(corpus=corpus, part=part)
        for corpus in sorted(used)
        for part in parts_of(corpus)
    ]


def download_options(wildcards):
    """Where a file of evaluation data is from: its URL, and digest and place in an archive if it has any."""
    path = paths.EVALUATION_FILE.format(file=wildcards.file)
    if path not in plan.downloads:
        raise ValueError(f"{path} is no evaluation data of this configuration")
    source = plan.downloads[path]
    keys = [key for key in ("url", "sha256", "member") if key in source]
    return shlex.join(word for key in keys for word in (f"--{key}", source[key]))
