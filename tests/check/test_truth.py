"""A sample of `tests/benchmarks/checker_truth.py`: what a check says, a set-up then shows."""

from pathlib import Path

import pytest
from truth_configs import make_case
from truth_runtime import Fault, Truth
from truth_verdicts import Verdict, judge, try_case

SAMPLE = range(100, 160)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    tried = []
    for seed in SAMPLE:
        tried.append(try_case(make_case(seed), tmp_path_factory.mktemp("case").resolve()))
    return tried


def test_the_sample_agrees(verdicts: list[Verdict]) -> None:
    wrong = [(v.case.seed, v.faults) for v in verdicts if v.faults]
    assert wrong == []


def test_the_sample_has_every_outcome(verdicts: list[Verdict]) -> None:
    assert {v.outcome for v in verdicts} >= {"sets up", "refused", "runs, to no effect"}


def test_a_case_is_its_seed(tmp_path: Path) -> None:
    assert make_case(7) == make_case(7)
    assert make_case(7).files != make_case(8).files


class TestJudge:
    fault = Fault(frozenset({"DT208", "DT210"}), "left 4 parameters", stops=True)

    def judged(self, truth: Truth, *errors: str) -> list[str]:
        found = {"error": {*errors}, "warning": set(), "info": set()}
        case = make_case(0)
        case.undecidable, case.opaque = False, set()
        return judge(case, truth, found).faults

    def test_a_fault_that_is_missed(self) -> None:
        assert self.judged(Truth([self.fault])) == ["missed DT208/DT210: left 4 parameters"]
        assert self.judged(Truth([self.fault]), "DT201") != []

    def test_a_fault_that_is_found(self) -> None:
        assert self.judged(Truth([self.fault]), "DT210", "DT104") == []

    def test_an_error_where_nothing_is_wrong(self) -> None:
        assert self.judged(Truth(), "DT207") == ["false alarm DT207"]
        assert self.judged(Truth(), "DT504") == []

    def test_an_error_that_no_rule_foresees(self) -> None:
        assert self.judged(Truth(unexplained="ValueError: x")) == ["missed: ValueError: x"]


def test_a_degree_that_is_set_later_is_refused_by_both(tmp_path: Path) -> None:
    case = make_case(0)
    case.breaks, case.undecidable, case.opaque = [], False, set()
    case.files["config.py"] = (
        "from dream_trainer import DreamTrainerConfig\n"
        "from dream_trainer.configs import DeviceParameters\n\n\n"
        "def my_config():\n"
        "    device = DeviceParameters(compile_model=False)\n"
        "    device.dp_shard = 0\n"
        "    return DreamTrainerConfig(device_parameters=device)\n"
    )
    verdict = try_case(case, tmp_path.resolve())
    assert [fault.codes for fault in verdict.truth.faults] == [frozenset({"DT104"})]
    assert verdict.faults == [] and "DT104" in verdict.found["error"]
