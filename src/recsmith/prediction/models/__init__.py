"""A model as a file describes it: its kind and its sizes."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from recsmith._types import Source, noun
from recsmith.errors import UsageError, check_rules
from recsmith.files import check_schema, decode, parse, read_text, source_text

MODEL_SCHEMA = "recsmith/model/1"
LARGEST = 2**20  # limit of any size
ModelKind = Literal["dlrm", "dlrm_dcn", "mlp", "transformer", "hstu"]
HISTORIES = ("hstu",)  # kinds that read histories, whose tables are not pooled
SPARSE = ("dlrm", "dlrm_dcn", *HISTORIES)  # kinds that have embedding tables, which a plan describes


@noun
class Model:
    """A model to predict; batch_size: samples per rank, of an mlp or transformer (other models take it from the plan).

    dense_features: columns of the dense input. bottom, top: layers of dlrm and dlrm_dcn, without their last ones, whose
    sizes follow from the tables' columns and from the one label. cross_layers, cross_rank: of dlrm_dcn. layers: hidden
    ones of mlp. blocks, width, heads, hidden, sequence: of transformer. blocks, heads, attention_dim, linear_dim, top:
    of hstu, whose width is that of its tables. output_streams: inputs of its output projection, of linear_dim columns a
    head each: 1, or 3 if gate and input are added to the output of attention. history: mean number of its positions;
    None: ids of the longest feature of the plan. joined: features whose rows are joined to one sequence. matrix_flops:
    products and sums per second of the device, for devices of which no figure is known.
    """

    kind: ModelKind
    name: str = ""
    batch_size: int = 1024
    dense_features: int = 13
    bottom: tuple[int, ...] = (64,)
    top: tuple[int, ...] = (64, 32)
    cross_layers: int = 3
    cross_rank: int = 64
    layers: tuple[int, ...] = (512, 256)
    blocks: int = 2
    width: int = 64
    heads: int = 4
    hidden: int = 256
    sequence: int = 16
    attention_dim: int = 128
    linear_dim: int = 128
    output_streams: int = 1
    history: int | None = None
    joined: tuple[str, ...] = ()
    matrix_flops: float | None = None

    def __post_init__(self) -> None:
        single = ("batch_size", "dense_features", "cross_layers", "cross_rank", "blocks", "width", "heads", "hidden",
                  "sequence", "attention_dim", "linear_dim", "output_streams")  # fmt: skip
        sizes = [(name, getattr(self, name)) for name in single]
        sizes += [(name, each) for name in ("bottom", "top", "layers") for each in getattr(self, name)]
        sizes += [("history", self.history)] if self.history is not None else []
        check_rules(
            None if self.matrix_flops is None or 1e9 <= self.matrix_flops <= 1e18
            else f"matrix_flops of model '{self.name or self.kind}' is {self.matrix_flops:g}; products and sums a "
            "second are 1e9 to 1e18",
            *(f"{name} of model '{self.name or self.kind}' holds {size}; sizes are 1 to {LARGEST:,}"
              for name, size in sizes if not 1 <= size <= LARGEST),
            f"width {self.width} of the transformer is no multiple of its {self.heads} heads"
            if self.heads > 0 and self.width % self.heads else None,
        )  # fmt: skip


BUILT_IN = {  # models by the names of their workloads
    # MLCommons training, recommendation_v2/torchrec_dlrm/README.md: its dense_arch, over_arch and dcn_* arguments
    "dlrm-v2": Model(
        kind="dlrm_dcn", name="dlrm-v2", bottom=(512, 256), top=(1024, 1024, 512, 256), cross_layers=3, cross_rank=512
    ),
    # mlcommons/training, recommendation/README.MD at f9353f6 (merged by pull request 889), "List of layers" and
    # "Computation cost analysis": three layers, 4 heads of 128 and 128 columns, an output projection of 3 x 512
    "dlrm-v4": Model(
        kind="hstu",
        name="dlrm-v4",
        blocks=3,
        heads=4,
        attention_dim=128,
        linear_dim=128,
        output_streams=3,
        top=(512,),
        joined=("item_id", "artist_id", "album_id"),
    ),
    # facebookresearch/dlrm, README.md: arch-mlp-bot and arch-mlp-top of its Criteo benchmarks
    "criteo-kaggle": Model(kind="dlrm", name="criteo-kaggle", bottom=(512, 256, 64), top=(512, 256)),
    "criteo-1tb": Model(kind="dlrm", name="criteo-1tb", bottom=(512, 256), top=(512, 512, 256)),
}


def load_model(source: Source) -> Model:
    """The model of a built-in name, or of a YAML or JSON file; UsageError or CorruptFile if there is none."""
    name = source_text(source, "a model")
    if name in BUILT_IN:
        return BUILT_IN[name]
    raw: dict[str, Any] = parse(read_text(name), name)
    if str(raw.get("schema", "")).startswith("recsmith/") and raw["schema"] != MODEL_SCHEMA:
        raise UsageError(f"'{name}' is of schema {raw['schema']}; a model is {MODEL_SCHEMA} (docs/predict.md)")
    return decode(Model, check_schema(raw, MODEL_SCHEMA, name), name)


def layer_shapes(model: Model, features: int = 0, width: int = 0) -> list[tuple[int, ...]]:
    """Shapes of the dense parameters of a described model. features, width: of its tables, if it has some.

    Raises:
        UsageError: the layers of the model's kind are not listed here.
    """
    if model.kind in ("transformer", *HISTORIES):
        raise UsageError(f"the layers of a {model.kind} are not listed; describe a dlrm, a dlrm_dcn or an mlp")
    if model.kind == "mlp":
        return _perceptron((model.dense_features, *model.layers, 1))
    count = features + 1
    shapes, inward = _perceptron((model.dense_features, *model.bottom, width)), width + count * (count - 1) // 2
    if model.kind == "dlrm_dcn":
        inward = count * width
        low: list[tuple[int, ...]] = [(inward, model.cross_rank), (model.cross_rank, inward), (inward,)]
        shapes += low * model.cross_layers
    return shapes + _perceptron((inward, *model.top, 1))


def _perceptron(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    return [shape for before, after in pairwise(sizes) for shape in ((after, before), (after,))]
