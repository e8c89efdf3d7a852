"""The front door of a checkout: workflow/Snakefile has the targets; modules and the workflow catalog take that file."""

# A plain `include:` would leave out the default target.
workflow.include("workflow/Snakefile", overwrite_default_target=True)
