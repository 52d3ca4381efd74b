"""Pages that were merged into others, each with the section that has its text now; the site keeps their addresses."""

from os import path
from pathlib import Path

MOVED = {
    "benchmarks/advise": "advise#advice-and-what-came-of-it",
    "benchmarks/array": "array#measured",
    "benchmarks/capacity": "vocabularies#how-many-rows-measured",
    "benchmarks/compress": "compress#measured-what-quality-each-way-costs",
    "benchmarks/daily": "daily#training-day-by-day-measured",
    "benchmarks/dry-run": "benchmarks/train#what-a-dry-run-tells-beside-the-job",
    "benchmarks/dynamic": "dynamic#measured-raw-ids-beside-hashing",
    "benchmarks/gpu-steps": "benchmarks/gpu#steps-of-a-gpu",
    "benchmarks/gpu-systems": "benchmarks/gpu#every-system-of-training-on-a-gpu",
    "benchmarks/learned-costs": "benchmarks/learned#plans-under-learned-cost-models",
    "benchmarks/loads": "benchmarks/sharding#loads-of-blocks-of-rows",
    "benchmarks/lost-host": "launch#lost-hosts-measured",
    "benchmarks/narrow": "narrow#measured",
    "benchmarks/online": "online#measured-which-update-has-the-least-loss",
    "benchmarks/optimizers": "optimizers#second-order-measured",
    "benchmarks/precision": "precision#measured",
    "benchmarks/predict": "predict#predicted-steps-beside-measured-ones",
    "benchmarks/recd": "datasets#what-deduplicated-batches-bring",
    "benchmarks/remote": "remote#measured",
    "benchmarks/scale": "benchmarks/planning#start-up-and-growth",
    "benchmarks/search": "architecture-search#measured-what-is-reached-and-what-it-costs",
    "benchmarks/sequences": "sequences#measured",
    "benchmarks/storage": "launch#object-storage-measured",
    "benchmarks/tasks": "models#tasks-and-towers-measured",
    "benchmarks/thresholding": "thresholding#measured",
    "benchmarks/tiers": "tiers#measured",
    "benchmarks/torchrec": "benchmarks/planning#inside-a-torchrec-job",
    "benchmarks/towers": "towers#measured",
    "benchmarks/watching": "watch#measured",
    "capacity": "vocabularies#how-many-rows",
    "fleet": "sweep#many-jobs-on-several-pools",
    "gpu": "measurements#measuring-a-gpu",
    "lost-host": "launch#when-a-host-is-lost",
    "neuroshard": "learned#neuroshard",
    "planning": "how-it-works#how-auto-plans",
    "recd": "datasets#deduplicated-batches-recd",
    "reference/data": "reference/python#recsmithdata",
    "reference/planners": "reference/python#planners-and-cost-models-of-your-own",
    "reference/recsmith": "reference/python#recsmith",
    "reference/testing": "reference/python#recsmithtesting",
    "refit": "daily#a-trained-model-fitted-to-todays-data",
    "reshard": "replan#resharding-checkpoints",
    "storage": "launch#data-plans-and-checkpoints-in-object-storage",
    "tasks": "models#several-labels-tasks",
    "testing": "reliability#how-recsmith-is-tested",
    "transforms": "data#transforms",
    "troubleshooting": "faq#troubleshooting",
    "workloads": "files#built-in-workloads-and-samples",
}
FORWARD = """<!doctype html>
<meta charset="utf-8">
<title>This page has moved</title>
<script>location.replace("{page}" + (location.hash || "#{section}"))</script>
<meta http-equiv="refresh" content="0; url={page}#{section}">
<p>This page is now a part of <a href="{page}#{section}">another one</a>.</p>
"""


def write_forwards(site: Path) -> None:
    """A page at each old address that leads to the new one, to the same heading where the address names one."""
    for old, new in MOVED.items():
        page, _, section = new.partition("#")
        place = site / f"{old}.html"
        place.parent.mkdir(parents=True, exist_ok=True)
        there = path.relpath(page, Path(old).parent).replace(path.sep, "/") + ".html"
        place.write_text(FORWARD.format(page=there, section=section), "utf-8")
