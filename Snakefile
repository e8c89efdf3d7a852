"""bertline: from raw text to a fine-tuned BERT. The rules below are the targets for users."""

# A --configfile replaces the default configuration; with a plain `configfile:` Snakemake would merge the two.
if not workflow.configfiles:

    configfile: "config/config.yaml"


include: "workflow/inputs/placement.smk"
include: "workflow/rules/common.smk"
include: "workflow/inputs/corpus.smk"
include: "workflow/inputs/dataset.smk"
include: "workflow/inputs/checks.smk"
include: "workflow/rules/download.smk"
include: "workflow/rules/corpus.smk"
include: "workflow/rules/sentences.smk"
include: "workflow/rules/shards.smk"
include: "workflow/rules/encode.smk"
include: "workflow/rules/interchange.smk"
include: "workflow/rules/pretrain.smk"
include: "workflow/rules/finetune.smk"
include: "workflow/rules/predict.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        lambda wildcards: targets.everything(plan),


rule list_parts:
    input:
        targets.dump_listings(plan),


rule download:
    input:
        downloaded_files,


rule corpus:
    input:
        sentence_files,


rule encode:
    input:
        targets.encoded(plan),


rule nvidia:
    input:
        targets.samples(plan, plan.built_datasets, paths.NVIDIA_SAMPLES),


rule gpauloski:
    input:
        targets.samples(plan, plan.built_datasets, paths.GPAULOSKI_SAMPLES),


rule pretrain:
    input:
        targets.pretrained(plan),


rule finetune:
    input:
        lambda wildcards: targets.finetuned(plan),


rule predict:
    input:
        targets.predictions(plan, "predict"),


rule features:
    input:
        targets.predictions(plan, "features"),


rule submission:
    input:
        targets.submissions(plan),


rule report:
    input:
        targets.report_page(plan),
