"""The JSON Schema of every kind of file that RecSmith reads or writes."""

from dataclasses import fields
from typing import Any, cast

from recsmith._components import find, known
from recsmith.analyses.advice import Advice
from recsmith.analyses.cache_curve import CacheCurve
from recsmith.analyses.compare import PlannerRow
from recsmith.analyses.explain import Phase, TableAccount
from recsmith.analyses.fullest_rank import FullestRank
from recsmith.analyses.hot_rows import HotRowsCost
from recsmith.analyses.scaling import Fewest, Knee, Point
from recsmith.clusters.files import cluster_schema, plain_cluster_schema
from recsmith.data.dataset import FORMAT, TransformedSpec
from recsmith.data.dataset import SCHEMA as DATASET_SCHEMA
from recsmith.files import Raw, json_schema
from recsmith.plans import Bound, Placement, StepCost
from recsmith.plans.files import SCHEMA as PLAN_SCHEMA
from recsmith.plans.predicted_error import PublishedError
from recsmith.plans.rank_runs import RUNS
from recsmith.prediction.models import MODEL_SCHEMA, Model
from recsmith.problems.constraint_files import CONSTRAINTS_SCHEMA, ConstraintsFile
from recsmith.reports.advice import SCHEMA as ADVICE_SCHEMA
from recsmith.reports.comparisons import COMPARISON_SCHEMA, SWEEP_SCHEMA
from recsmith.reports.explanations import EXPLANATION_SCHEMA
from recsmith.reports.plans import RESULT_SCHEMA
from recsmith.reports.run_reference import run_schema
from recsmith.reports.step_memory import SCHEMA as STEP_MEMORY_SCHEMA
from recsmith.sharding import Shard
from recsmith.training.results.variants import SCHEMA as BENCH_SCHEMA
from recsmith.training.results.variants import TrainBench
from recsmith.workloads import workload_schema


def schema_of(noun: str) -> Raw:
    """The schema of a kind of file, such as 'plan'."""
    return {
        "workload": workload_schema,
        "cluster": cluster_schema,
        "constraints": _constraints,
        "plan": _plan,
        "dataset": _dataset,
        "model": lambda: _noun(MODEL_SCHEMA, Model),
        "train-bench": lambda: _noun(BENCH_SCHEMA, TrainBench),
        "result": _result,
        "comparison": _comparison,
        "sweep": _sweep,
        "explanation": _explanation,
        "step-memory": _step_memory,
        "advice": _advice,
        "run": run_schema,
    }[noun]()


def _constraints() -> Raw:
    lists = {field.name: json_schema(field.type) for field in fields(ConstraintsFile)}
    return _file(CONSTRAINTS_SCHEMA, {}, lists)


def _noun(schema: str, noun: type) -> Raw:
    """The schema of a file that has the fields of a noun."""
    made = json_schema(noun)
    properties = {"schema": {"const": schema}, **made["properties"]}
    return {**made, "properties": properties, "required": ["schema", *made.get("required", [])]}


def _dataset() -> Raw:
    """A data spec: the fields of its format, and transforms with the handling of samples that they fail on."""
    transforms: Raw = json_schema(TransformedSpec)["properties"]
    about_wrong = {name: transforms[name] for name in ("wrong", "max_wrong")}
    formats: list[Raw] = []
    definitions: Raw = {}
    for word in known(FORMAT):
        made = json_schema(cast(Any, find(FORMAT, word)).settings)
        definitions |= made.pop("$defs", {})
        own = {"schema": {"const": DATASET_SCHEMA}, "format": {"const": word}, "transforms": {"type": "array"}}
        formats.append(
            {
                **made,
                "properties": {**own, **about_wrong, **made["properties"]},
                "required": ["format", *made.get("required", [])],
            }
        )
    properties = {"schema": {"const": DATASET_SCHEMA}, "format": {"enum": list(known(FORMAT))}}
    return {"type": "object", "properties": properties, "required": ["format"], "oneOf": formats, "$defs": definitions}


def _plan() -> Raw:
    text = {"type": "string"}
    return _file(
        PLAN_SCHEMA,
        {
            "workload": workload_schema(),
            "cluster": plain_cluster_schema(),
            "placements": _placements(),
        },
        {
            "constraints": {"type": "object"},
            "planner": text,
            "cost_model": text,
            "cost": json_schema(StepCost),
            "bound": json_schema(Bound),
            "gap": {"type": ["number", "null"]},
            "shards": json_schema(tuple[Shard, ...]),
            "versions": {"type": "object"},
            "digest": text,
            "extrapolated": json_schema(dict[str, float]),
            "error": json_schema(PublishedError),
            "towers": json_schema(tuple[tuple[str, ...], ...]),
        },
    )


def _placements() -> Raw:
    """Placements in a plan file, whose ranks may be written as runs."""
    made = json_schema(tuple[Placement, ...])
    fields_of = made["$defs"]["Placement"]["properties"]
    fields_of["ranks"] = {"anyOf": [fields_of["ranks"], {"type": "string", "pattern": RUNS}]}
    return made


def _advice() -> Raw:
    """Advice as `recsmith advise --format json` prints it."""
    made = json_schema(Advice)
    more: Raw = {"schema": {"const": ADVICE_SCHEMA}, "verdict": {"type": "string"}, "gain": {"type": "number"}}
    return {**made, "properties": {**more, **made["properties"]}, "required": [*more, *made.get("required", [])]}


def _result() -> Raw:
    number: Raw = {"type": "number"}
    return _file(
        RESULT_SCHEMA,
        {
            "elapsed_s": number,
            "iterations": {"type": "integer"},
            "truncated": {"type": "boolean"},
            "cost_model": {"type": "string"},
            "cost": json_schema(StepCost),
            "bound": json_schema(Bound),
            "gap": {"type": ["number", "null"]},
            "plan": _plan(),
        },
        {
            "members": json_schema(tuple[str, ...]),
            "left_out": json_schema(tuple[str, ...]),
            "extrapolated": json_schema(dict[str, float]),
            "published_error": json_schema(PublishedError),
        },
    )


def _comparison() -> Raw:
    rows: Raw = {"verdict": {"type": "string"}, "judges": json_schema(tuple[str, ...])}
    return _file(
        COMPARISON_SCHEMA, rows | {"rows": json_schema(tuple[PlannerRow, ...])}, {"ties": json_schema(tuple[str, ...])}
    )


def _sweep() -> Raw:
    text = {"type": "string"}
    return _file(
        SWEEP_SCHEMA,
        {
            "planner": text,
            "cost_model": text,
            "space": text,
            "fixed": {"enum": ["batch_size", "global_batch_size"]},
            "left": {"type": "integer"},
            "knees": json_schema(tuple[Knee, ...]),
            "points": json_schema(tuple[Point, ...]),
        },
        {"fewest": json_schema(tuple[Fewest, ...])},
    )


def _explanation() -> Raw:
    maybe = ["number", "null"]
    return _file(
        EXPLANATION_SCHEMA,
        {
            "digest": {"type": "string"},
            "cost_model": {"type": "string"},
            "total_s": {"type": "number"},
            "bound_s": {"type": maybe},
            "gap": {"type": maybe},
            "phases": json_schema(tuple[Phase, ...]),
            "account": json_schema(TableAccount | None),
        },
        {
            "published_error": json_schema(PublishedError),
            "sequences_s": {"type": "number"},
            "hot_rows": json_schema(tuple[HotRowsCost, ...]),
            "fullest": json_schema(FullestRank),
            "caches": json_schema(CacheCurve),
        },
    )


def _step_memory() -> Raw:
    """Output of `recsmith explain --memory`: bytes by phase, kind and rank."""
    size: Raw = {"type": "integer"}
    sizes, texts = json_schema(tuple[int, ...]), json_schema(tuple[str, ...])
    choice = {"type": "object", "required": ["name", "costs", "peak_bytes"], "additionalProperties": False,
              "properties": {"name": {"type": "string"}, "costs": {"type": "string"}, "peak_bytes": sizes}}  # fmt: skip
    seconds = {"type": ["number", "null"]}
    rests = {"weights_bytes": sizes, "state_bytes": sizes, "copy_s": seconds, "exposed_s": seconds}
    stash = {"type": "object", "properties": rests, "required": [*rests], "additionalProperties": False}
    by_kind = {"type": "array", "items": {"type": "array", "items": size}}
    return _file(
        STEP_MEMORY_SCHEMA,
        {
            "digest": {"type": "string"},
            "phases": texts,
            "kinds": texts,
            "bytes": {"type": "array", "items": by_kind},
            "capacity_bytes": sizes,
            "peak_bytes": sizes,
            "peak_phase": texts,
            "dense": {"type": "string"},
            "stash": {"anyOf": [stash, {"type": "null"}]},
            "choices": {"type": "array", "items": choice},
        },
    )


def _file(schema: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> Raw:
    """An object with exactly these fields; `$defs` of its parts are moved to the top, as references need."""
    definitions: Raw = {}
    properties: Raw = {"schema": {"const": schema}, **required, **(optional or {})}
    for part in properties.values():
        definitions |= part.pop("$defs", {})
    return {
        "type": "object", "properties": properties, "required": ["schema", *required], "additionalProperties": False,
        **({"$defs": definitions} if definitions else {}),
    }  # fmt: skip
