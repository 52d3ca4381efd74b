"""Checks that data has the same names and meanings of values as the data a model was trained on. Imports no torch.

Used wherever a trained model is scored, copied or trained further. A resumed job compares digests of its data instead,
which is stricter, and a served model checks ids and values one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recsmith.data import DataSchema
from recsmith.data.batch import VocabularyMeaning
from recsmith.errors import UsageError
from recsmith.units import counted

MOST_NAMED = 8


def check_same_data(trained: DataSchema, given: DataSchema, where: str) -> None:
    """Refuse data whose values mean something else than those that a model was trained on.

    Args:
        trained: schema from the model's card.
        given: schema of the other data.
        where: where the other data was named, for errors.

    What cards and data of older versions did not record is not compared.

    Raises:
        UsageError: features, weights, dense columns, labels, table rows, vocabularies or transforms differ.
    """
    for problem in _differences(trained, given):
        raise UsageError(f"{where} has {problem}{'' if ';' in problem else '; give data of the same schema'}")


def _differences(trained: DataSchema, given: DataSchema) -> Iterator[str]:
    names = [("features", given.feature_names, trained.feature_names),
             ("features with weights", _weighted(given), _weighted(trained)),
             ("dense columns", given.dense, trained.dense), ("labels", given.labels, trained.labels),
             ("labels that are numbers", given.number_labels, trained.number_labels)]  # fmt: skip
    for what, mine, wanted in names:
        if mine != wanted:
            yield f"{what} {_listed(mine)}, and the model was trained on {_listed(wanted)}"
    before = {each.name: each.num_embeddings for each in trained.features}
    yield from _vocabularies(trained, given)
    for each in given.features:
        rows, known = each.num_embeddings, before[each.name]
        if rows is not None and known is not None and rows > known:
            yield (
                f"ids of feature '{each.name}' up to {rows - 1:,}, and the model's go up to {known - 1:,}; give a spec "
                "with the options of the model's data (data in its run.json), such as max_user_id, max_rows or "
                "num_embeddings"
            )
    if given.values is None or trained.values is None:
        return
    for name in trained.feature_names:
        mine, wanted = given.values.modulo.get(name), trained.values.modulo.get(name)
        if mine != wanted:
            yield f"ids of feature '{name}' {_taken(mine)}, and the model was trained on ids {_taken(wanted)}"
    mine, wanted = given.values.transforms, trained.values.transforms
    if mine != wanted:
        yield f"{_transforms(mine)}, and the model was trained on data with {_transforms(wanted)}"


def _vocabularies(trained: DataSchema, given: DataSchema) -> Iterator[str]:
    """Error texts of features whose vocabulary differs from that of the trained model."""
    if given.values is None or trained.values is None:
        return
    for name in trained.feature_names:
        mine, wanted = given.values.vocabularies.get(name), trained.values.vocabularies.get(name)
        if mine != wanted:
            yield (
                f"feature '{name}' with {_stand_for(mine)}, and the model was trained on {_stand_for(wanted)}; name "
                "that one, or in a run that begins with the model one that extends it (recsmith data vocabulary "
                "--extend)"
            )


def _weighted(schema: DataSchema) -> tuple[str, ...]:
    return tuple(each.name for each in schema.features if each.weighted)


def _listed(names: Sequence[str]) -> str:
    return (", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")) or "none"


def _taken(modulo: int | None) -> str:
    return "as they are" if modulo is None else f"modulo {modulo:,}"


def _stand_for(vocabulary: VocabularyMeaning | None) -> str:
    if vocabulary is None:
        return "no vocabulary"
    others = counted(vocabulary.unknown, "row")
    return f"vocabulary {vocabulary.digest} ({vocabulary.values:,} values, {others} for all others)"


def _transforms(transforms: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{each['op']}({', '.join(f'{k}: {v}' for k, v in each.items() if k != 'op')})" for each in transforms]
    return f"the transforms {_listed(said)}" if said else "no transforms"
