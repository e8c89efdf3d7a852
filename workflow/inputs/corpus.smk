"""From wildcards to files and settings, for the rules of rules/corpus.smk."""


def corpus_setting(key):
    """A rule's input or parameter that is a setting of its corpus."""
    return lambda wildcards: plan.corpora[wildcards.corpus]["settings"][key]


def corpus_name(wildcards):
    return plan.corpora[wildcards.corpus]["name"]


def dump_part(wildcards):
    """The downloaded part of a Wikimedia corpus; a part that the listing does not name is refused."""
    entry = plan.corpora[wildcards.corpus]
    if wildcards.part not in parts_of(wildcards.corpus):
        raise ValueError(
            f"{wildcards.corpus} has no part '{wildcards.part}'; its parts.json lists those it has"
        )
    return f"resources/wikimedia/{entry['wiki']}/{entry['settings']['dump']}/{wildcards.part}.xml.bz2"


def dump_name(wildcards):
    entry = plan.corpora[wildcards.corpus]
    return f"{entry['wiki']}-{entry['settings']['dump']}"


def text_files(wildcards):
    return plan.corpora[wildcards.corpus]["parts"][wildcards.part]


def separator_option(wildcards):
    separator = plan.corpora[wildcards.corpus]["settings"].get("separator")
    return f"--separator {shlex.quote(separator)}" if separator else ""


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
    trained = f"results/corpora/{wildcards.corpus}/punkt"
    return trained if settings["punkt"] == "trained" else settings["punkt"]


def splitter_option(wildcards):
    model = punkt_model(wildcards)
    return f"--punkt {shlex.quote(model)}" if model else "--unicode"
