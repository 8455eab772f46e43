"""The OpenAPI document is true: what it allows is answered as it says, what it forbids is refused."""

import numpy as np
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import negative_data_rejection

from cstc.serving import OnDemandPredictor
from cstc.serving.http.app import Limits, create_app
from serving.worlds import Sources, random_world

TOKEN = {"Authorization": "Bearer a-token-for-the-tests"}
SETTINGS = dict(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


def load_schema(task, seed, *, missing):
    rng = np.random.default_rng(seed)
    world = random_world(rng, task, missing=missing)
    sources = Sources(rng, world.rows, instant=True).extractors
    predictor = OnDemandPredictor(world.model, sources)
    app = create_app(predictor, token="a-token-for-the-tests", limits=Limits(rows=5, sessions=10_000))
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=TOKEN)
    # a session that was removed is gone, whatever a valid request says
    acceptance = schema.config.checks.positive_data_acceptance
    acceptance.expected_statuses = [*acceptance.expected_statuses, "410"]
    return schema


MULTICLASS = load_schema("multiclass", 0, missing=True)
REGRESSION = load_schema("regression", 1, missing=False)


@MULTICLASS.parametrize()
@settings(max_examples=25, **SETTINGS)
def test_every_operation(case):
    case.call_and_validate(headers=TOKEN)


@REGRESSION.include(path_regex="^/(predict|sessions)$").parametrize()
@settings(max_examples=10, **SETTINGS)
def test_a_model_of_numbers_without_missing_values(case):
    case.call_and_validate(headers=TOKEN)


class Sessions(MULTICLASS.as_state_machine()):
    """Sessions are opened, told, answered and removed in any order, along the links of the document."""

    def get_call_kwargs(self, case):
        return {"headers": TOKEN}

    def validate_response(self, response, case, additional_checks=None, **options):
        # a request that is wrong because it lacks the token is not: the token is added above
        left_out = [] if "Authorization" in (case.headers or {}) else [negative_data_rejection]
        case.validate_response(
            response, additional_checks=additional_checks, excluded_checks=left_out, transport_kwargs=options
        )


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=20, stateful_step_count=10, **SETTINGS)
