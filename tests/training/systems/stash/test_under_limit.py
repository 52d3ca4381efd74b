"""What rests leaves its room under a memory limit, which is exceeded otherwise: inside a memory cgroup."""

from pathlib import Path

import pytest
from support.cgroups import memory_group, run_in

ROOM = """
import sys
from pathlib import Path
import numpy as np
from recsmith._process import keep_freed_memory, proc_bytes
from recsmith.training.systems.stash.resting import RestingMemory

folder, group, rests = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "rests"
keep_freed_memory()  # as training does
table = np.random.default_rng(0).integers(0, 256, 96 * 2**20, dtype=np.uint8)
first, last = table[:: 4096].copy(), table[4095 :: 4096].copy()
memory = RestingMemory(folder, [(table.ctypes.data, table.nbytes)])
(group / "memory.limit_in_bytes").write_text(str(proc_bytes("self/status", "RssAnon") + 48 * 2**20))
for _ in range(2):
    if rests:
        memory.leave()
    activations = np.ones(96 * 2**20, dtype=np.uint8)
    del activations
    memory.come_back()
assert (table[:: 4096] == first).all() and (table[4095 :: 4096] == last).all()
print("trained")
"""


@pytest.mark.parametrize("rests", ["rests", "stays"])
def test_activations_have_the_room_of_tables_that_rest(tmp_path: Path, rests: str) -> None:
    with memory_group() as group:
        code, said, _ = run_in(group, "-W", "ignore", "-c", ROOM, str(tmp_path), str(group), rests)
    assert (code == 0) == (rests == "rests"), said
    assert said.endswith("trained\n") == (rests == "rests"), said
    assert list(tmp_path.iterdir()) == []
