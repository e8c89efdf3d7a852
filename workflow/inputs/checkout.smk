"""The configuration, and the folder with the code of this workflow: a checkout, or the files of a module's git repository."""

import io
import shlex
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# Given twice, Snakemake would silently use only the last.
if (
    sum(
        word.partition("=")[0] in ("--configfile", "--configfiles")
        for word in sys.argv[1:]
    )
    > 1
):
    sys.exit(
        "error: --configfile is given twice, and Snakemake would use only the last; give the files after one "
        "--configfile, as in --configfile a.yaml b.yaml"
    )

# A --configfile replaces the default configuration; with a plain `configfile:` Snakemake would merge the two.
if not workflow.configfiles:

    configfile: "config/config.yaml"


def checkout_folder(source):
    """Return the folder with workflow/, src/ and config/, given the source of workflow/inputs.

    Of a module from a git repository Snakemake gets only the files that it reads; the commit is unpacked to .snakemake.
    """
    if not hasattr(source, "ref"):
        return Path(source.get_path_or_uri(secret_free=False)).parents[1]
    hosted = getattr(source, "hosted_repo", None)
    git = ["git", "-C", hosted.repo_clone if hosted else source.repo_path]
    read = {"check": True, "stdout": subprocess.PIPE}
    named = subprocess.run([*git, "rev-parse", f"{source.ref}^{{commit}}"], **read)
    folder = Path(".snakemake/bertline", named.stdout.decode().strip())
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run([*git, "archive", folder.name], **read).stdout
        with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(Path(unpacked, "code"), filter="data")
            if not folder.exists():
                Path(unpacked, "code").rename(folder)
    return folder.absolute()


CHECKOUT = checkout_folder(workflow.current_basedir)
if set("{}") & set(str(CHECKOUT)):
    with_braces = Path.cwd() if CHECKOUT.is_relative_to(Path.cwd()) else CHECKOUT
    sys.exit(
        f"error: {with_braces}: Snakemake takes braces in the path of a workflow for wildcards; rename the folder"
    )
# Snakemake and the scripts import the bertline of this checkout, whatever else is installed.
sys.path.insert(0, str(CHECKOUT / "src"))
try:
    import bertline.planning.resolve
except ModuleNotFoundError as error:
    sys.exit(
        f"error: the Python package {error.name} is not installed where snakemake is; in a checkout `make setup` installs all, "
        "elsewhere `pip install` with the address of bertline's repository"
    )

# In the checkout itself, shell lines have the form in which a user would write them.
FOLDER = "" if CHECKOUT == Path.cwd() else shlex.quote(f"{CHECKOUT}/")
SCRIPTS = f"{FOLDER}workflow/scripts/"


def run_script(script_and_options):
    """Return the shell line of a rule that runs a script of workflow/scripts."""
    return f"python {SCRIPTS}{script_and_options}"
