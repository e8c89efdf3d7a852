"""Show the files of a run's model that would be sent to a Hub; send them only with --push.

example:
  python workflow/scripts/publish.py demo user/name --push
"""

from bertline.command_line import run_command
from bertline.reporting.hub import describe_publication, find_publication
from bertline.reporting.hub import publish as push_publication


def publish(run: str, repository: str, *, task: str | None = None, public: bool = False, push: bool = False) -> str:
    """Show or send.

    Args:
        run: a finished run of results/runs.
        repository: user/name on the Hub, whose address is HF_ENDPOINT.
        task: send the kept fine-tuned model of this task, such as glue/cola, instead of the pretrained one.
        public: make a new repository public instead of private.
        push: send it, with the token of HF_TOKEN or of `hf auth login`.
    """
    publication = find_publication(run, task, repository)
    print(describe_publication(publication, repository, public=public))
    if not push:
        return "\nNothing was sent. With PUSH=yes it is sent."
    commit = push_publication(publication, repository, public=public)
    return f"\nPublished, loaded from there without Bertline, and the logits are the same: {commit}"


if __name__ == "__main__":
    run_command(publish, __doc__)
