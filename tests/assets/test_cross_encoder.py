"""The recipe's cross-encoder: its material, the pairs it draws, and the file it writes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from transformers import BertForSequenceClassification

from app.models.discovery import embedded_embedding_model
from assets.recipe import cross_encoder
from assets.recipe.asked_notes import AskedNote, draw_passage, parse, read_notes
from assets.recipe.cross_encoder import (
    BATCH_TOKENS,
    PairStream,
    evaluate,
    find_near,
    main,
    open_model,
    rate_factor,
    split,
    train,
)
from assets.recipe.embedding_model import write_bert
from datastores.errors import InputError
from engines.llama.cross_encoder import MAX_TOKENS, CrossEncoder, pair
from engines.llama.embedding import EmbeddingModel
from engines.llama.vocabulary import LlamaVocabulary, load_vocabulary
from tests.assets.tiny_bert import save_bert

BLOCKS = """# A comment.
---
@ notes/dad.md
# Dad

He sings in the choir.
+ does my father sing?
- does my mother sing?
---

@ Chat: bread
bake at 220
+ how hot?
+ which temperature
- how long?
"""


def notes(count: int) -> list[AskedNote]:
    """The first ones of the material."""
    return read_notes()[:count]


@pytest.fixture(scope="module")
def vocabulary() -> LlamaVocabulary:
    return load_vocabulary(embedded_embedding_model())


@pytest.fixture(scope="module")
def folder(vocabulary: LlamaVocabulary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with the vocabulary of the embedded embedding model."""
    texts = map(vocabulary.text, range(vocabulary.size))
    words = [
        text if text.startswith("[") and len(text) > 2 else f"##{text}".replace("##▁", "")
        for text in texts
    ]
    folder = tmp_path_factory.mktemp("bert")
    save_bert(folder, words, length=MAX_TOKENS, layers=1, spread=0.05)
    return folder


def test_blocks_are_notes() -> None:
    dad, bread = parse(BLOCKS)
    assert dad.text == "# Dad\n\nHe sings in the choir."
    assert (dad.answered, dad.unanswered) == (("does my father sing?",), ("does my mother sing?",))
    assert (bread.name, bread.plain) == ("Chat: bread", "Chat: bread: bake at 220")
    assert bread.answered == ("how hot?", "which temperature")


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("dad.md\ntext\n+ a\n- b", "line 3: not '@ name': dad.md"),
        ("@ dad.md\ntext\n+ a", "line 3: a note needs"),
        ("@ dad.md\n+ a\n- b", "line 3: a note needs"),
        ("@ dad.md\ntext\n+ a\nmore\n- b", "line 6: text after questions: more"),
    ],
)
def test_a_malformed_block_is_named(block: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(parse(f"# A comment.\n---\n{block}\n---\n"))


def test_the_material_has_different_questions_of_both_kinds() -> None:
    found = read_notes()
    assert len(found) > 2_000
    assert not any(set(note.answered) & set(note.unanswered) for note in found)


def test_a_passage_keeps_the_text_and_is_called_in_several_ways() -> None:
    dad, bread = parse(BLOCKS)
    passages = {draw_passage(dad, [bread], Random(seed)) for seed in range(200)}
    assert all("He sings in the choir." in passage for passage in passages)
    beginnings = {passage.partition(": ")[0] for passage in passages}
    assert {"dad", "notes/dad.md", "dad, Dad", "notes/dad.md, Dad"} <= beginnings
    assert any("bake at 220" in passage for passage in passages)
    assert any(passage.startswith("He sings") for passage in passages)


def test_near_notes_do_not_answer(vocabulary: LlamaVocabulary) -> None:
    dad, bread = parse(BLOCKS)
    copy = AskedNote("copy", dad.text, dad.answered, ("why?",))
    near = find_near([dad, bread, copy], EmbeddingModel(embedded_embedding_model(), threads=1))
    assert near[dad] == near[copy] == [[bread]]
    for others in near[bread]:
        assert {note.name for note in others} == {"notes/dad.md", "copy"}


def test_pairs_follow_from_the_seed_and_fill_batches(vocabulary: LlamaVocabulary) -> None:
    asked = notes(60)
    near = {note: [asked[:3]] * len(note.answered) for note in asked}

    def draw(seed: int) -> list[tuple[float, list[tuple[list[int], bool]]]]:
        stream = PairStream(asked, near, vocabulary, 1.5, Random(seed))
        return list(stream.batches())

    batches = draw(1)
    assert batches == draw(1) != draw(2)
    over = [part for part, _ in batches]
    assert over == sorted(over)
    assert over[-1] == 1
    pairs = [one for _, batch in batches for one in batch]
    assert 0.3 < np.mean([states for _, states in pairs]) < 0.5
    for _, batch in batches:
        assert len(batch) * max(len(ids) for ids, _ in batch) <= BATCH_TOKENS
    right = {
        tuple(pair(vocabulary, question, "")[:-1]) for note in asked for question in note.answered
    }
    for ids, states in pairs:
        begins = tuple(ids[: ids.index(vocabulary.separator) + 1])
        assert begins in right or not states


def test_llama_cpp_scores_as_torch_does(folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model: BertForSequenceClassification = open_model(folder).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    file = tmp_path / "cross-encoder.gguf"
    write_bert(file, folder, weights, name="tiny", license="mit", ranks=True)
    encoder = CrossEncoder(file, threads=1)
    vocabulary = load_vocabulary(file)
    for note in notes(4):
        passages = [note.text[:50], note.text, note.text * 9]
        with torch.no_grad():
            wanted = [
                model(torch.tensor([pair(vocabulary, note.answered[0], passage)])).logits.item()
                for passage in passages
            ]
        assert encoder.log_odds(note.answered[0], passages) == pytest.approx(wanted, abs=0.05)


def test_the_learning_rate_rises_stays_and_falls() -> None:
    assert rate_factor(0, 0.0) < 0.02
    assert rate_factor(500, 0.4) == rate_factor(500, 0.1) == 1
    assert 0.4 < rate_factor(500, 0.7) < 0.6
    assert rate_factor(500, 1.0) == pytest.approx(0.01)


def test_training_tells_right_from_wrong(
    folder: Path, vocabulary: LlamaVocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RATE", 2e-3), ("WARM_STEPS", 5), ("BATCH_TOKENS", 300)):
        monkeypatch.setattr(cross_encoder, name, value)
    torch.manual_seed(1)
    model = open_model(folder)
    who, when = ("who is it?", "who sleeps"), ("when is it?", "when does it sleep")
    asked = [
        AskedNote("cat", "the cat sleeps", who, when),
        AskedNote("dog", "the dog barks", who, when),
    ]
    near: cross_encoder.NearNotes = {note: [[]] * len(note.answered) for note in asked}
    before = model.bert.embeddings.word_embeddings.weight.clone()
    train(model, PairStream(asked, near, vocabulary, 200.0, Random(1)).batches())
    assert torch.equal(model.bert.embeddings.word_embeddings.weight, before)
    assert min(evaluate(model, asked, vocabulary)) > 0.9


def test_the_command_writes_the_same_file_for_the_same_seed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned, held_out = split(notes(60))
    asked = [*learned[:4], *held_out[:1]]
    monkeypatch.setattr(cross_encoder, "read_notes", lambda: asked)
    files = [tmp_path / "one.gguf", tmp_path / "two.gguf"]
    for file in files:
        options = ["--rounds", "1", "--seed", "3", "--threads", "1"]
        result = CliRunner().invoke(main, [str(folder), str(file), *options])
        assert result.exit_code == 0, result.output
    assert files[0].read_bytes() == files[1].read_bytes()
    assert len(CrossEncoder(files[0]).log_odds("does dad sing?", ["yes", "no"])) == 2
