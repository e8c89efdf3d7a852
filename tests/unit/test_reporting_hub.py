"""Publication on a stand-in of the Hub: what is sent, what is refused, and that the pushed model is the local one."""

from __future__ import annotations

import json
import logging
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from finetuning_helpers import MODEL, write_tokenizer
from hub_repository import TOKEN, Hub, serve_hub
from huggingface_hub import ModelCard
from safetensors.torch import load, load_file
from synthetic_runs import write_run

from bertline.console import BertlineError
from bertline.encoding.tokenizer import read_tokenizer
from bertline.files import read_json, write_json, write_link, write_text
from bertline.modeling.architectures import architecture_of
from bertline.modeling.huggingface import export_huggingface, write_huggingface
from bertline.modeling.network_config import config_from_dict
from bertline.reporting import hub, hub_check, hub_load
from bertline.reporting.hub import describe_publication, find_publication, publish
from bertline.training.checkpoints import write_checkpoint

SCRIPT = Path(__file__).parents[2] / "workflow/scripts/publish.py"
REPOSITORY = "user/river-bert"
STEPS = {"phase1": (0, 100, 200), "phase2": (0, 50, 100)}
WEIGHT = "embeddings.word_embeddings.weight"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of two phases, whose checkpoints are kept, and a fine-tuned model."""
    root = tmp_path_factory.mktemp("made")
    tokenizer = write_tokenizer(root / "tokenizer.json")
    described = {**MODEL, "vocab_size": read_tokenizer(tokenizer).get_vocab_size(), "initializer_range": 0.2}
    config = config_from_dict(described)
    record = root / write_run(root, tasks=("cola",), seeds=1)
    torch.manual_seed(1)
    for name, steps in STEPS.items():
        phase = root / "results/phases" / name
        recipe = read_json(phase / "recipe.json")
        write_json(phase / "recipe.json", recipe | {"model": described})
        for step in steps:
            weights = architecture_of(config).pretraining(config).state_dict()
            state = {"fingerprint": name, "step": step}
            write_checkpoint(phase / "checkpoints", weights=weights, optimizer={}, state=state)
        export_huggingface(config, weights, tokenizer, phase / "huggingface")
    write_text(root / "results/phases/phase2/huggingface/.snakemake_timestamp", "")
    run = root / "results/runs/demo"
    write_link(run / "record.json", record)
    write_link(run / "export", root / "results/phases/phase2/huggingface")
    write_json(record, read_json(record) | {"model_card": {"license": "mit"}})
    # Of a report from before a change of the recipe: it is not sent.
    write_text(run / "model-card.md", "---\nlibrary_name: transformers\n---\n\n# another\n")
    model = run / "glue/cola/model"
    model.mkdir(parents=True)
    head = architecture_of(config).task_network(config, "sequence", 2)
    write_huggingface(config, head.state_dict(), tokenizer, model, head="sequence", labels=("no", "yes"))
    write_text(model / "README.md", "---\nlibrary_name: transformers\n---\n\n# CoLA\n")
    return root


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the run."""
    shutil.copytree(made, tmp_path / "work", symlinks=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serve_hub(REPOSITORY) as served:
        settings = {"ENDPOINT": served.address, "HF_HUB_DISABLE_XET": True, "HF_HUB_OFFLINE": False}
        for name, value in {**settings, "HF_TOKEN_PATH": str(tmp_path / "token")}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not load what was pushed in a process of its own, which takes seconds."""
    monkeypatch.setattr(hub, "compare_logits", lambda *_, **__: None)


def push(task: str | None = None, *, public: bool = False) -> str:
    return publish(find_publication("demo", task), REPOSITORY, public=public)


def weights_of(files: dict[str, bytes] | None) -> torch.Tensor:
    assert files is not None
    return next(tensor for name, tensor in load(files["model.safetensors"]).items() if name.endswith(WEIGHT))


def test_a_dry_run_lists_files_and_revisions_and_sends_nothing(run: Path, server: Hub) -> None:
    text = describe_publication(find_publication("demo"), REPOSITORY, public=False)
    assert f"To {server.address}/{REPOSITORY}, private:" in text
    listed = [line.split() for line in text.splitlines()[4:]]
    size = f"{(run / 'results/runs/demo/export/model.safetensors').stat().st_size / 1e6:.2f}"
    assert ["main", "model.safetensors", size, "MB"] in listed
    assert [row[0] for row in listed if row[0] != "main"] == ["step-0", "step-100", "step-200", "step-250", "step-300"]
    tokenizer = {"tokenizer.json", "tokenizer_config.json", "vocab.txt"}
    files = {row[1] for row in listed if row[0] == "main"}
    assert files == {"README.md", "config.json", "model.safetensors", *tokenizer}
    assert server.requests == []


@pytest.mark.parametrize(("task", "place"), [(None, "export"), ("glue/cola", "glue/cola/model")])
def test_only_the_files_of_an_export_are_sent_and_a_dry_run_names_the_others(
    run: Path, server: Hub, task: str | None, place: str
) -> None:
    folder = Path("results/runs/demo", place)
    (folder / "notes.txt").write_text("private")
    (folder / "secret").symlink_to("/etc/passwd")
    (folder / "copies").mkdir()
    publication = find_publication("demo", task)
    assert not {"notes.txt", "secret", "copies"} & publication.files.keys()
    text = describe_publication(publication, REPOSITORY, public=False)
    assert text.count("Not sent, since no export has them: copies, notes.txt, secret.") == 1


@pytest.mark.parametrize("target", ["/etc/passwd", "gone.txt"])
def test_a_link_in_an_export_is_one_line(run: Path, server: Hub, target: str) -> None:
    vocabulary = Path("results/runs/demo/export/vocab.txt")
    vocabulary.unlink()
    vocabulary.symlink_to(target)
    with pytest.raises(BertlineError, match=r"huggingface/vocab.txt is a link; copy the file to its place, then"):
        find_publication("demo")


def test_a_dry_run_says_that_no_licence_is_named(run: Path, server: Hub) -> None:
    assert "licence" not in describe_publication(find_publication("demo"), REPOSITORY, public=False)
    record = Path("results/runs/demo/record.json").resolve()
    write_json(record, {**read_json(record), "model_card": {}})
    for task in (None, "glue/cola"):
        assert "README.md names no licence. Set the run's model_card: {license: cc-by-4.0}" in describe_publication(
            find_publication("demo", task), REPOSITORY, public=False
        )


@pytest.mark.slow
def test_scores_of_a_task_that_is_not_finished_are_not_published_and_a_dry_run_says_so(run: Path, server: Hub) -> None:
    finished = find_publication("demo")
    assert b"| CoLA |" in finished.files["README.md"]
    assert "Not finished" not in describe_publication(finished, REPOSITORY, public=False)
    next(Path("results/finetunings").glob("cola-random*/metrics.json")).unlink()
    part = find_publication("demo")
    assert b"CoLA" not in part.files["README.md"]
    missing = "Not finished, and therefore not in README.md: CoLA (1 of 3 fine-tunings missing)."
    assert missing in describe_publication(part, REPOSITORY, public=False)


@pytest.mark.parametrize("task", [None, "glue/cola"])
def test_the_example_of_a_published_card_loads_the_model_from_its_repository(run: Path, task: str | None) -> None:
    card = Path("results/runs/demo/glue/cola/model/README.md")
    card.write_text(f'{card.read_text()}pipeline("text-classification", model="path/to/this/folder")\n')
    published = find_publication("demo", task, REPOSITORY).files["README.md"].decode()
    assert f', model="{REPOSITORY}")\n' in published
    assert "path/to" not in published


def test_a_pushed_model_loads_in_a_clean_process_with_the_logits_of_the_local_one(
    run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")  # on a cluster, for the jobs
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    commit = push().rpartition("/")[2]
    assert server.refs["refs/heads/main"] == commit
    assert server.private is True
    assert {name for name in server.refs if "/heads/" in name} == {"refs/heads/main"}
    main = server.files("main")
    assert main is not None
    card = ModelCard(main["README.md"].decode())
    assert (card.data.pipeline_tag, card.data.license) == ("fill-mask", "mit")
    assert "- **phase2**: 100 steps" in card.content
    assert torch.equal(weights_of(main), weights_of(server.files("step-300")))
    for before, after in (("step-0", "step-100"), ("step-200", "step-250")):
        assert not torch.equal(weights_of(server.files(before)), weights_of(server.files(after)))
    first = set(server.files("step-0") or ())
    assert first == {*main} - {"README.md"}
    loaded = [path for _, path in server.requests if path.startswith(f"/{REPOSITORY}/resolve/{commit}/")]
    assert f"/{REPOSITORY}/resolve/{commit}/model.safetensors" in loaded


@pytest.mark.parametrize("broken", ["config", "weights"])
def test_a_model_that_transformers_cannot_load_is_not_sent(
    run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    model = run / "results/runs/demo/glue/cola/model"
    if broken == "config":
        write_json(model / "config.json", read_json(model / "config.json") | {"hidden_act": "none of these"})
        message = r"cola/model: transformers cannot load it: .*none of these.*; nothing was sent"
    else:  # Bertline computes something else
        monkeypatch.setattr(hub_check, "TOLERANCE", -1.0)
        message = r"cola/model: the logits of transformers differ from Bertline's by .*; nothing was sent"
    with pytest.raises(BertlineError, match=message):
        push("glue/cola")
    assert server.refs == {}
    assert {method for method, _ in server.requests} == {"GET"}


def test_a_difference_in_the_logits_is_an_error(run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    publication = find_publication("demo", "glue/cola")
    folder, given = publication.folder, (publication.folder, REPOSITORY, "0" * 40)
    texts = hub_check.sample_texts(folder / "tokenizer.json")
    expected = hub_check.local_logits(folder, texts, is_finetuned=True)

    def load_elsewhere(loaded: dict[str, torch.Tensor]) -> None:
        def load_in_this_process(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            from safetensors.torch import save_file

            save_file(loaded, command[-1])
            return subprocess.CompletedProcess(command, 0, "", "")

        monkeypatch.setattr(subprocess, "run", load_in_this_process)

    def increased(difference: float) -> dict[str, torch.Tensor]:
        return {name: tensor + difference for name, tensor in expected.items()}

    load_elsewhere(increased(5e-5))
    hub_check.compare_logits(*given, endpoint=server.address, is_finetuned=True)
    last = max(expected)
    one_less = {name: tensor for name, tensor in expected.items() if name != last}
    of_another_shape = {**expected, last: expected[last][None].clone()}
    for loaded in (increased(2e-4), increased(float("nan")), one_less, of_another_shape):
        load_elsewhere(loaded)
        with pytest.raises(BertlineError, match=f"{REPOSITORY} at 0+: its logits differ"):
            hub_check.compare_logits(*given, endpoint=server.address, is_finetuned=True)


@pytest.mark.usefixtures("unchecked")
def test_a_fine_tuned_model_is_published_without_checkpoints(run: Path, server: Hub) -> None:
    record = Path("results/runs/demo/record.json")
    write_json(record, read_json(record) | {"model_card": {"license": "mit", "language": ["lv"]}})
    push("glue/cola", public=True)
    assert server.private is False
    main = server.files("main")
    assert main is not None
    assert b"# CoLA" in main["README.md"]
    card = ModelCard(main["README.md"].decode())
    assert (card.data.library_name, card.data.license, card.data.language) == ("transformers", "mit", ["lv"])
    assert json.loads(main["config.json"])["id2label"] == {"0": "no", "1": "yes"}
    assert set(server.refs) == {"refs/heads/main"}


def test_a_card_whose_header_was_broken_by_hand_is_one_line(run: Path) -> None:
    card = run / "results/runs/demo/glue/cola/model/README.md"
    for header in ("license: [", "- a list"):
        write_text(card, f"---\n{header}\n---\n\n# CoLA\n")
        with pytest.raises(BertlineError, match=r"^results/runs/demo/glue/cola/model/README\.md: [^\n]*; correct it$"):
            find_publication("demo", "glue/cola")


@pytest.mark.usefixtures("unchecked")
def test_the_log_has_no_addresses_of_uploads(run: Path, server: Hub, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        push("glue/cola")
    assert "/large/" not in caplog.text


@pytest.mark.usefixtures("unchecked")
def test_pushing_again_sends_only_what_changed(run: Path, server: Hub) -> None:
    push()
    refs, uploads = dict(server.refs), sum(path.startswith("/large/") for path in server.writes)
    assert uploads == 5  # the last checkpoint has the weights of the model
    push()
    assert server.refs == refs
    record = Path("results/runs/demo/record.json")
    write_json(record.resolve(), read_json(record) | {"model_card": {"license": "cc-by-4.0"}})
    push()
    changed = {name for name, commit in server.refs.items() if refs[name] != commit}
    assert changed == {"refs/heads/main"}
    assert b"license: cc-by-4.0" in (server.files("main") or {})["README.md"]
    assert sum(path.startswith("/large/") for path in server.writes) == uploads


@pytest.mark.usefixtures("unchecked")
def test_a_checkpoint_that_is_pushed_after_main_has_only_its_own_files(run: Path, server: Hub) -> None:
    push()
    own = server.files("step-100")
    del server.refs["refs/tags/step-100"]
    server.commit("main", {**(server.files("main") or {}), "notes.txt": b"theirs"})
    push()
    assert server.files("step-100") == own
    assert {"README.md", "notes.txt"} <= set(server.files("main") or ())


def test_the_first_checkpoint_of_a_later_phase_does_not_replace_the_last_one_before_it(run: Path) -> None:
    found = {name: (path.name, step) for name, (path, step) in find_publication("demo").checkpoints.items()}
    assert found == {
        **{f"step-{step}": ("phase1", step) for step in STEPS["phase1"]},
        **{f"step-{200 + step}": ("phase2", step) for step in STEPS["phase2"][1:]},
    }


@pytest.mark.usefixtures("unchecked")
def test_without_a_token_nothing_is_sent(run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(BertlineError, match="needs a token that may write, and there is none; set HF_TOKEN"):
        push()
    assert server.requests == []


@pytest.mark.usefixtures("unchecked")
def test_a_wrong_token_is_refused_before_anything_is_sent_and_not_shown(
    run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with caplog.at_level(logging.DEBUG), pytest.raises(BertlineError) as raised:
        push()
    assert "Invalid user token" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "hf_wrong" not in f"{raised.value} {caplog.text}"
    assert server.writes == []


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("refused", "status"),
    [("commit/main", 403), ("commit/main", 409), ("commit/bertline-unfinished", 409), ("tag/", 409), ("/large/", 403)],
)
def test_a_refused_push_is_one_line_does_not_change_main_and_can_be_repeated(
    run: Path, server: Hub, refused: str, status: int
) -> None:
    server.refuse = lambda method, path: status if method != "GET" and refused in path else 0
    with pytest.raises(BertlineError) as raised:
        push()
    assert str(status) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert set(server.files("main") or ()) == {".gitattributes"}
    for name in server.refs:
        if name.startswith("refs/tags/"):
            assert "model.safetensors" in (server.files(name.split("/", 2)[2]) or {})
    server.refuse = lambda method, path: 0
    push()
    assert set(server.revisions) == {"main", "step-0", "step-100", "step-200", "step-250", "step-300"}
    assert "model.safetensors" in (server.files("main") or {})


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", ["tags", "heads"])
def test_a_revision_with_other_content_is_an_error_and_stays(run: Path, server: Hub, kind: str) -> None:
    push()
    other = server.commit("other", {**(server.files("step-0") or {}), "config.json": b"{}"})
    del server.refs["refs/heads/other"]
    del server.refs["refs/tags/step-100"]
    server.refs[f"refs/{kind}/step-100"] = other
    refs = dict(server.refs)
    with pytest.raises(BertlineError, match=rf"{REPOSITORY}: step-100 exists, and its config.json differs"):
        push()
    assert server.refs == refs


@pytest.mark.usefixtures("unchecked")
def test_main_that_moves_during_the_push_is_one_line(run: Path, server: Hub) -> None:
    def someone_else_commits(method: str, path: str) -> int:
        if path.endswith("branch/bertline-unfinished") and method == "DELETE":
            server.commit("main", {"README.md": b"theirs"})
        return 0

    server.refuse = someone_else_commits
    with pytest.raises(BertlineError, match=f"{REPOSITORY}, main: .*412"):
        push()
    assert server.files("main") == {"README.md": b"theirs"}


@pytest.mark.usefixtures("unchecked")
def test_a_repository_that_more_people_see_than_requested_is_refused(run: Path, server: Hub) -> None:
    push("glue/cola", public=True)
    refs = dict(server.refs)
    with pytest.raises(BertlineError, match=r"exists and is public; .*PUBLIC="):
        push()
    assert server.refs == refs


def test_a_damaged_checkpoint_is_found_before_anything_is_sent(run: Path) -> None:
    weights = run / "results/phases/phase2/checkpoints/step-00000050/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(BertlineError, match=r"step-00000050 is damaged \(model.safetensors does not match"):
        find_publication("demo")


@pytest.mark.parametrize(
    ("name", "task", "problem"),
    [
        ("", None, "^RUN=: missing; name a run of results/runs$"),
        ("other", None, "results/runs/other/record.json does not exist"),
        ("demo", "glue/rte", "glue/rte/model is not the folder of a kept model"),
    ],
)
def test_what_does_not_exist_is_one_line(run: Path, name: str, task: str | None, problem: str) -> None:
    with pytest.raises(BertlineError, match=problem):
        find_publication(name, task)


@pytest.mark.parametrize("repository", ["", "bert", "user/a--b", "user/name/more"])
def test_a_bad_name_of_a_repository_is_one_line(run: Path, repository: str) -> None:
    with pytest.raises(BertlineError, match="REPO=: "):
        describe_publication(find_publication("demo"), repository, public=False)


def test_no_message_shows_the_password_of_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://bob:hunter2@127.0.0.1:1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    publication = hub.Publication(tmp_path, {}, {}, is_finetuned=False)
    shown = describe_publication(publication, REPOSITORY, public=False)
    assert shown.startswith(f"To http://127.0.0.1:1/{REPOSITORY}, ")
    with pytest.raises(BertlineError, match=f"^http://127.0.0.1:1/{REPOSITORY}: ") as raised:
        publish(publication, REPOSITORY, public=False)
    assert "hunter2" not in str(raised.value)


def test_the_address_of_the_commit_has_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://bob:hunter2@127.0.0.1:1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("whoami", "create_repo", "model_info"):
        monkeypatch.setattr(hub.HfApi, name, lambda *_, **__: SimpleNamespace(sha="0" * 40))
    for name, value in {"_existing_revisions": set(), "_commit": "1" * 40, "compare_logits": None}.items():
        monkeypatch.setattr(hub, name, lambda *_, value=value, **__: value)
    publication = hub.Publication(tmp_path, {}, {}, is_finetuned=False)
    assert publish(publication, REPOSITORY, public=False) == f"http://127.0.0.1:1/{REPOSITORY}/commit/{'1' * 40}"


def test_the_command_sends_nothing_by_default(
    run: Path, server: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["publish.py", "demo", REPOSITORY, "--task", "glue/cola"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out.endswith("Nothing was sent. With PUSH=yes it is sent.\n")
    assert server.requests == []


@pytest.mark.parametrize("architecture", ["bert", "modern", "roberta"])
@pytest.mark.parametrize("head", [None, "sequence", "tokens", "answer"])
def test_the_loader_gives_the_logits_of_our_network(made: Path, tmp_path: Path, architecture: str, head: Any) -> None:
    without = {key: value for key, value in MODEL.items() if "dropout" not in key}
    tokenizer = made / "tokenizer.json"
    shape = {**without, "architecture": architecture, "vocab_size": read_tokenizer(tokenizer).get_vocab_size()}
    config = config_from_dict(shape | {"initializer_range": 0.2})
    classes = architecture_of(config)
    network: Any = classes.task_network(config, head, 2) if head else classes.pretraining(config)
    folder, texts = tmp_path / "model", hub_check.sample_texts(tokenizer)
    folder.mkdir()
    labels = ("no", "yes") if head in ("sequence", "tokens") else ()
    write_huggingface(config, network.state_dict(), tokenizer, folder, head=head, labels=labels)
    write_json(tmp_path / "texts.json", texts)
    hub_load.save_logits(str(folder), "main", tmp_path / "texts.json", tmp_path / "logits.safetensors")
    found = load_file(tmp_path / "logits.safetensors")
    expected = hub_check.local_logits(folder, texts, is_finetuned=head is not None)
    assert len(expected) == len(texts) * (2 if head == "answer" or (architecture, head) == ("bert", None) else 1)
    torch.testing.assert_close(found, expected, rtol=0.0, atol=hub_check.TOLERANCE)
