"""Word associations: learned from pairs, written as retrieval reads them, and shipped."""

from pathlib import Path

from click.testing import CliRunner

from app.indexing.passage_index import associations
from assets.recipe.associations import MAX_WEIGHT, associate, main
from datastores.passages.associations import ASSOCIATIONS_FILE, Associations
from datastores.passages.word_counts import key_of


def test_words_that_occur_together_are_told_from_words_that_belong_together() -> None:
    pairs = [
        (["delet", "file"], ["remov", "file"]),
        (["delet", "user"], ["remov", "user"]),
        (["delet", "group"], ["remov", "group"]),
        (["list", "user"], ["show", "user"]),
    ]
    learned = associate(pairs * 10)
    assert max(learned["delet"], key=learned["delet"].__getitem__) == "remov"
    assert learned["delet"]["remov"] <= MAX_WEIGHT
    assert "remov" not in learned.get("file", {})


def test_the_recipe_writes_what_retrieval_reads(checkout: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--pages", str(checkout), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert Associations.read(tmp_path / ASSOCIATIONS_FILE).by_key


def test_shipped_associations_know_other_words_for_common_ones() -> None:
    for word, other in (("delet", "remov"), ("folder", "directori"), ("unpack", "extract")):
        assert other in associations().of(key_of(word))
