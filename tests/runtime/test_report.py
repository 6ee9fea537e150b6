"""The report: what is read from a log after all that happened to it, and the page in a browser."""

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dream_trainer.callbacks import LoggerCallback, LRLoggerCallback
from dream_trainer.configs import LoggingParameters, RunError
from dream_trainer.report import page, reading
from dream_trainer.utils.commands import COMMANDS
from dream_trainer.utils.report_command import report
from tests.runtime.tiny import TinyTrainer, batches, config


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def step(number: int, **values: Any) -> dict[str, Any]:
    return {"step": number, "epoch": 0, "time": 1.0, **values}


START = {"event": "start", "time": 0.0, "world_size": 2, "axes": {"dp_shard": 2, "tp": 1}}


def log(folder: Path, text: str | bytes, name: str = "run") -> Path:
    path = folder / name / "log.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def curve(run: reading.RecordedRun, name: str = "a") -> list[tuple[int, float]]:
    series = run.series[name]
    return list(zip(series.steps, series.values, strict=True))


class TestReading:
    def read(self, folder: Path, text: str | bytes) -> reading.RecordedRun:
        log(folder, text)
        return reading.read_run("run", str(folder))

    def test_a_plain_run(self, tmp_path: Path) -> None:
        text = lines(START, step(1, a=1.0), step(2, a=2.0, b=5), {"event": "end", "time": 9.0})
        run = self.read(tmp_path, text)
        assert curve(run) == [(1, 1.0), (2, 2.0)] and curve(run, "b") == [(2, 5.0)]
        assert [event["event"] for event in run.events] == ["start", "end"]
        assert (run.world_size, run.axes, run.last_step) == (2, START["axes"], 2)

    def test_a_resume_forgets_what_came_after_its_checkpoint(self, tmp_path: Path) -> None:
        resume = {"event": "resume", "time": 0.0, "step": 2}
        first = [step(n, a=float(n), **({"val": 1.0} if n == 3 else {})) for n in range(1, 6)]
        text = lines(START, *first, START, resume, step(3, a=30.0))
        run = self.read(tmp_path, text)
        assert curve(run) == [(1, 1.0), (2, 2.0), (3, 30.0)]
        assert curve(run, "val") == []
        assert [event["step"] for event in run.events] == [None, None, 2]

    def test_a_start_without_a_resume_begins_anew(self, tmp_path: Path) -> None:
        text = lines(START, step(1, a=1.0), step(9, a=9.0, val=1.0), START, step(1, a=10.0))
        run = self.read(tmp_path, text)
        assert curve(run) == [(1, 10.0)] and curve(run, "val") == []

    def test_later_lines_win(self, tmp_path: Path) -> None:
        text = lines(step(1, a=1.0), step(2, a=2.0), step(2, a=20.0), step(2, b=1.0))
        run = self.read(tmp_path, text)
        assert curve(run) == [(1, 1.0), (2, 20.0)] and curve(run, "b") == [(2, 1.0)]

    @pytest.mark.parametrize(
        ("text", "unreadable"),
        [("", 0), ("\n\n", 0), ('{"step": 1, "a', 1), ("[1]\n3\n", 2), ("\0\0\0", 1)],
    )
    def test_empty_or_torn(self, text: str, unreadable: int, tmp_path: Path) -> None:
        run = self.read(tmp_path, text)
        assert run.series == {} and run.unreadable == (
            0 if not text.strip() else 1 + (text[0] == "[")
        )
        assert "no end recorded" in page.render([run])

    def test_torn_in_the_middle(self, tmp_path: Path) -> None:
        text = lines(step(1, a=1.0)) + '{"step": 2, "a"' + "\n" + lines(step(3, a=None))
        run = self.read(tmp_path, text + "\xff\xfe".encode("latin1").decode("latin1"))
        assert run.series["a"].steps.tolist() == [1, 3] and run.unreadable == 2
        assert run.series["a"].thinned(9) == [(1, 1.0), (3, None)]

    def test_odd_values(self, tmp_path: Path) -> None:
        run = self.read(tmp_path, lines(step(1, a="text", b=True, c=[1], d=2)))
        assert set(run.series) == {"b", "d"}

    def test_where_it_is_looked_for(self, tmp_path: Path) -> None:
        path = log(tmp_path, lines(step(1, a=1.0)), "mine")
        for place in ("mine", str(path), str(path.parent)):
            assert reading.read_run(place, str(tmp_path)).name == "mine"
        with pytest.raises(RunError) as caught:
            reading.read_run("yours", "runs")
        assert str(caught.value) == (
            "'yours' has no log: runs/yours/log.jsonl is not there. "
            "Name a run of runs/, the folder of one, or a log."
        )

    def test_thinning_keeps_extremes_ends_and_gaps(self) -> None:
        series = reading.Series()
        draws = random.Random(0)
        for number in range(1, 100_001):
            value = draws.random()
            value = {50_000: 99.0, 70_000: -99.0, 80_000: float("nan")}.get(number, value)
            series.add(number, value)
        points = series.thinned(1_500)
        assert len(points) <= 1_502
        assert {(50_000, 99.0), (70_000, -99.0), (80_000, None)} <= set(points)
        assert (points[0][0], points[-1][0]) == (1, 100_000)
        assert points == sorted(points, key=lambda point: point[0])

    def test_differences(self) -> None:
        runs = [reading.RecordedRun(name) for name in "ab"]
        runs[0].config, runs[1].config = {"x": 1, "y": 2}, {"x": 1, "y": 3, "z": None}
        assert reading.differences(runs) == {"y": ["2", "3"], "z": ["", "null"]}


class TestPage:
    def test_charts(self) -> None:
        names = ["train/loss", "val/loss", "lr/a", "lr/b", "perf/x", "train/grad_norm", "own"]
        run = reading.RecordedRun("r")
        for name in names:
            run.take(step(1, **{name: 1.0}))
        charts = {chart["title"]: chart["names"] for chart in page._charts([run])}
        assert charts == {
            "loss": ["train/loss", "val/loss"],
            "learning rate": ["lr/a", "lr/b"],
            "throughput": ["perf/x"],
            "grad_norm": ["train/grad_norm"],
            "own": ["own"],
        }
        assert list(charts)[:4] == ["loss", "learning rate", "throughput", "grad_norm"]

    def test_names_cannot_break_out(self) -> None:
        run = reading.RecordedRun("</script><b>{x}")
        run.take({**START, "config": {"</td>": "<script>"}})
        run.take(step(1, **{"</script><script>alert(1)//": 1.0}))
        text = page.render([run])
        assert "<b>" not in text and "alert" in text and "</td>&" not in text
        assert text.count("</script>") == 2 and text.count("<script") == 2

    def test_it_needs_nothing_beside_it(self) -> None:
        text = page.render([reading.RecordedRun("r")])
        addresses = set(re.findall(r"(?:https?:)?//[\w.]+", re.sub(r"//( .*)", "", text)))
        assert addresses <= {"http://www.w3.org"}  # The name of SVG, which is not fetched.
        assert not re.findall(r"(?:src|href)=\"(?!data:)", text)


def trained(folder: Path, name: str, rate: float, steps: int = 40) -> None:
    kind = type("Rated", (TinyTrainer,), {"learning_rate": rate})
    logging = LoggingParameters(root_dir=str(folder), log_every_n_steps=1)
    callbacks = [LRLoggerCallback(), LoggerCallback()]
    made = config(callbacks=callbacks, logging=logging, val_every_n_steps=10)
    made.experiment, made.seed = name, int(rate * 100)
    kind(made, batches(steps, rows=8), batches(2, seed=1)).fit()


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two real runs, the second of which was resumed."""
    folder = tmp_path_factory.mktemp("report")
    trained(folder, "slow", 0.05)
    trained(folder, "fast", 0.5)
    path = folder / "fast" / "log.jsonl"
    past = [step(41 + n, **{"train/loss": 9.0 + n, "odd": None}) for n in range(3)]
    resume = {"event": "resume", "time": 3.0, "step": 40}
    again = [step(41, **{"train/loss": 0.5, "odd": None}), step(42, odd=1.0)]
    with path.open("a") as file:
        file.write(lines(START | {"config": {"seed": 50}}, resume, *past))
        file.write(lines(START | {"config": {"seed": 50}}, resume, *again) + '{"step": 43')
    return folder


def made(folder: Path, runs: list[str], output: Path) -> int:
    given = config(logging=LoggingParameters(root_dir=str(folder)))
    return report(lambda _: None, lambda: given, runs=runs, output=output)


def test_command(two_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert COMMANDS["report"].run is report
    output = tmp_path / "new" / "page.html"
    assert made(two_runs, ["slow", "fast"], output) == 0
    assert capsys.readouterr().out == f"{output}\n"
    text = output.read_text()
    assert "dp_shard=2" in text and "unreadable lines: 1" in text and "resume at step 40" in text
    assert made(two_runs, ["slow", "none"], tmp_path / "x.html") == 1
    assert capsys.readouterr().err.startswith("error: 'none' has no log: ")
    assert not (tmp_path / "x.html").exists()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no browser here")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


CURVES = """() => [...document.querySelectorAll('.curve.main')].map(
    (path) => [path.dataset.name, (path.getAttribute('d').match(/[ML]/g) || []).length,
               path.getBoundingClientRect().width])"""
OVERFLOW = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


class TestBrowser:
    @pytest.fixture
    def opened(self, browser: Any, two_runs: Path, tmp_path: Path) -> Iterator[Any]:
        """A tab with the report of both runs; fails where it complains or asks the network."""
        output = tmp_path / "report.html"
        made(two_runs, ["slow", "fast"], output)
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        said: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: said.append(request.url))
        tab.goto(output.as_uri())
        yield tab
        tab.close()
        assert [text for text in said if not text.startswith(("file:", "data:"))] == []

    @pytest.mark.parametrize("width", [1280, 390])
    def test_every_curve_is_drawn(self, width: int, opened: Any) -> None:
        opened.set_viewport_size({"width": width, "height": 900})
        opened.wait_for_timeout(100)
        curves = {name: (count, wide) for name, count, wide in opened.evaluate(CURVES)}
        values = ("train/loss", "train/grad_norm", "lr/optimizer", "perf/samples_per_second")
        for run, points in (("slow", 40), ("fast", 40)):
            for name in values:
                resumed = run == "fast" and name == "train/loss"
                assert curves[f"{run} {name}"][0] == points + resumed, name
            assert curves[f"{run} val/loss"][0] == 4
        assert curves["fast odd"][0] == 1
        assert all(wide > width / 8 for name, (_, wide) in curves.items() if "odd" not in name)
        assert opened.evaluate(OVERFLOW) == 0  # Nothing is cut off, nor scrolled sideways.

    def test_it_answers(self, opened: Any) -> None:
        plot = opened.locator("svg.plot").first
        plot.hover(position={"x": 200, "y": 100})
        told = opened.locator(".readout").first.inner_text()
        assert "step " in told and "slow train/loss" in told and "fast val/loss" in told
        before = opened.evaluate("() => document.querySelector('.curve.main').getAttribute('d')")
        opened.locator("#log").check()
        after = opened.evaluate("() => document.querySelector('.curve.main').getAttribute('d')")
        assert before != after and "NaN" not in after
        opened.locator("#smooth").fill("0.9")
        assert opened.locator(".curve.raw").count() == opened.locator(".curve.main").count()
        count = opened.locator(".curve.main").count()
        opened.locator("button.run").first.click()
        assert 0 < opened.locator(".curve.main").count() < count

    def test_one_run_and_an_empty_one(self, browser: Any, two_runs: Path, tmp_path: Path) -> None:
        log(two_runs, "", "empty")
        for runs, count in ((["slow"], 5), (["empty"], 0), (["empty", "slow"], 5)):
            output = tmp_path / "report.html"
            made(two_runs, runs, output)
            tab = browser.new_page()
            errors: list[str] = []
            tab.on("pageerror", lambda error, kept=errors: kept.append(str(error)))
            tab.goto(output.as_uri())
            assert len(tab.evaluate(CURVES)) == count and errors == []
            tab.close()

    def test_a_huge_log(self, browser: Any, tmp_path: Path) -> None:
        rows = [
            f'{{"step": {n}, "train/loss": {1 / n}, "b": {n % 7}}}\n' for n in range(1, 200_001)
        ]
        log(tmp_path, "".join(rows))
        output = tmp_path / "report.html"
        made(tmp_path, ["run"], output)
        assert output.stat().st_size < 200_000
        tab = browser.new_page()
        tab.goto(output.as_uri())
        assert [900 < count <= 1_502 for _, count, _ in tab.evaluate(CURVES)] == [True] * 2
        tab.close()
