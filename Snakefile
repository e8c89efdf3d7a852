"""bertline: from raw text to a fine-tuned BERT. The rules below are what a person asks for."""

# A --configfile replaces the default configuration; with a plain `configfile:` Snakemake would merge the two.
if not workflow.configfiles:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/shards.smk"
include: "workflow/rules/encode.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/finetune.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        everything(),


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
        encoded_files(),
        dataset_cards(),


rule pretrain:
    input:
        exports(),
        markers("pretrain", plan.trained_runs),


rule finetune:
    input:
        scores(),
        tasks_without_data(),


rule report:
    input:
        report_page(),
