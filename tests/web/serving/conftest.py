"""A server of the page, and a plan that it has opened."""

import pytest
from support.served import Client, client_of

import recsmith
from recsmith.files import dump_json
from recsmith.plans import plan_to_raw


@pytest.fixture
def client() -> Client:
    return client_of()


@pytest.fixture(scope="session")
def plan() -> recsmith.Plan:
    """20 tables on four devices of two hosts, by a planner that is quick."""
    return recsmith.plan(recsmith.sample_workload(20, 0, max_bytes=2**30), "h100:2x2", planner="size_greedy").plan


@pytest.fixture(scope="session")
def plan_text(plan: recsmith.Plan) -> str:
    return dump_json(plan_to_raw(plan))


@pytest.fixture
def opened(client: Client, plan_text: str) -> str:
    """The id of the plan, which the client has opened."""
    answer = client.upload(plan_text, "plan.json")
    assert answer.status_code == 201, answer.text
    return answer.json()["plan"]["id"]
