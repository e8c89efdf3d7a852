"""Functions from wildcards to files and settings, for the rules of rules/corpus.smk."""


def slice_of(wildcards):
    """Return a part's file in the dump, the slice's number and their count. Raises ValueError for an unlisted part."""
    slices = sources.slices_of(listing_of(wildcards.corpus))
    if wildcards.part not in slices:
        raise ValueError(
            f"{wildcards.corpus} has no part '{wildcards.part}'; its parts.json lists those it has"
        )
    return slices[wildcards.part]


def part_of_dump(corpus, part):
    entry = plan.corpora[corpus]
    if "wiki" not in entry:
        return entry["listing"]["parts"][part]["file"]
    return paths.DUMP_PART.format(
        wiki=entry["wiki"], dump=entry["settings"]["dump"], part=part
    )


def dump_part(wildcards):
    """Return the file from which a part of a Wikimedia corpus is read."""
    return part_of_dump(wildcards.corpus, slice_of(wildcards)[0])


def slice_option(wildcards):
    _, number, of = slice_of(wildcards)
    return f"--slice {number} {of}" if of > 1 else ""


def extraction_threads(wildcards):
    """Return 1 for the built-in extractor, 2 for wikiextractor, which runs next to the process that feeds it."""
    settings = plan.corpora[wildcards.corpus]["settings"]
    return 2 if settings["extractor"] == "wikiextractor" else 1


def source_of(wildcards):
    return sources.SOURCES[plan.corpora[wildcards.corpus]["settings"]["source"]]


def local_files(wildcards):
    """Return the files of a part that are not downloaded by the graph, without the marks at the start of their names."""
    files = plan.corpora[wildcards.corpus]["parts"][wildcards.part]
    return [str(Path(file)) for file in files]


def of_all_parts(pattern, corpora):
    """Return the files of all parts of some corpora."""
    return [
        pattern.format(corpus=corpus, part=part)
        for corpus in corpora
        for part in parts_of(corpus)
    ]


def of_corpus(pattern):
    """Return a function for a rule's input: the files of all parts of its corpus."""
    return lambda wildcards: of_all_parts(pattern, [wildcards.corpus])


def punkt_model(wildcards):
    """Return the folder of the Punkt model of a corpus; nothing if its sentences are found without one."""
    settings = plan.corpora[wildcards.corpus]["settings"]
    if settings["sentences"] != "punkt":
        return []
    trained = paths.PUNKT.format(corpus=wildcards.corpus)
    return trained if settings["punkt"] == "trained" else settings["punkt"]


def downloaded_files(wildcards):
    """Return every part of every dump, downloaded texts and evaluation data, and external weights from elsewhere."""
    parts = [
        part_of_dump(corpus, part)
        for corpus in DUMPS
        if "wiki" in plan.corpora[corpus]
        for part in listing_of(corpus)["parts"]
    ]
    return parts + list(plan.downloads) + list(plan.fetched)


def sentence_files(wildcards):
    """Return the sentences of every part of every corpus in this configuration's datasets."""
    datasets = plan.built_datasets.values()
    used = sorted({corpus for dataset in datasets for corpus in dataset["corpora"]})
    return of_all_parts(paths.SENTENCES, used)


def download_options(wildcards, output):
    """Return the source of a file to download: its URL and, if given, digest and path in an archive."""
    path = output[0]
    if path not in plan.downloads:
        raise ValueError(f"{path} is not a download of this configuration")
    source = plan.downloads[path]
    keys = [key for key in ("url", "sha256", "member") if key in source]
    return shlex.join(word for key in keys for word in (f"--{key}", source[key]))


def release_of_google(function):
    """Return a function for a rule's input or parameter: `function` of planning/external_weights.py at its output."""
    return lambda wildcards: function(
        plan, paths.GOOGLE_WEIGHTS.format(google=wildcards.google)
    )


def sentences_of(corpus):
    """Return a function for a rule's input: the sentences of all parts of a corpus."""
    return lambda wildcards: of_all_parts(paths.SENTENCES, [corpus])
