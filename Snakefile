"""bertline: from raw text to a fine-tuned BERT. What can be asked for is listed at the end of this file."""

from snakemake.utils import min_version

min_version("9.9")

# A --configfile replaces the default configuration; with a plain `configfile:` Snakemake would merge the two.
if not workflow.configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/dataset.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/finetune.smk"
include: "workflow/rules/report.smk"


onstart:
    refuse_missing_inputs()
    plan.write_links(existing_only=False)


rule all:
    default_target: True
    input:
        report_page(),
        markers("complete"),


# The targets of a person, in the order of the data's flow.
rule list_parts:
    input:
        dump_listings(),


rule download:
    input:
        downloaded_files,


rule corpus:
    input:
        sentence_files,


rule encode:
    input:
        dataset_cards(),


rule pretrain:
    input:
        exports(),
        markers("pretrain"),


rule finetune:
    input:
        scores(),


rule report:
    input:
        report_page(),
